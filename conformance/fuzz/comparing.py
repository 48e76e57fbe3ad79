"""What is different after a step: the two answers, the two states, the invariants. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Protocol

from conformance.checkers.snapshot_checks import check_snapshot
from conformance.fuzz.answers import Answer, disagreements
from conformance.fuzz.findings import StepDifference
from conformance.gate.judge import canonical_pair, chosen_rules
from conformance.observe.diff import diff
from conformance.observe.differences import summarise_pair
from conformance.observe.tables import Snapshot
from conformance.participants.expect import shown

REASON_LENGTH = 40
TTL_TOLERANCE_MS = 9000
"""How far the times left of two equal keys may be apart: both were set by the same step."""


class Sight(Protocol):
    """What was seen of one side."""

    @property
    def snapshot(self) -> Snapshot:
        """The typed tables."""
        ...

    @property
    def essence(self) -> str:
        """A text that is equal for two sights only if nothing that matters differs; see `dump.Dump`."""
        ...

    @property
    def times_left(self) -> Mapping[str, int]:
        """Times to live in ms by key without prefix, of the keys that expire."""
        ...

    @property
    def imagined(self) -> bool:
        """Whether nobody has seen this in Redis: it is the model's state."""
        ...


def answer_differences(
    op: str, theirs: Answer, ours: Answer, prefixes: tuple[str, str], *, frozen: bool
) -> list[StepDifference]:
    """Where the client's answer differs from the oracle's. `prefixes`: of the oracle's side and of the client's."""
    where = f"answer.{op}"
    if theirs.outcome != ours.outcome:
        kind = f"outcome {_outcome(theirs)}, not {ours.outcome}"
        said = [f"{one.outcome}: {one.message or shown(one.value)}" for one in (ours, theirs)]
        return [StepDifference(op, where, kind, "", said[1], said[0])]
    if theirs.value == ours.value:
        return []
    expected = theirs.without_prefix(prefixes[0], exact=frozen)
    actual = ours.without_prefix(prefixes[1], exact=frozen)
    return [
        StepDifference(op, one.where, "wrong-answer", "", *summarise_pair(one.expected, one.actual))
        for one in disagreements(op, expected, actual, exact=frozen)
    ]


def _outcome(answer: Answer) -> str:
    """The outcome; refusals of arguments are told apart by what the oracle says, without its numbers and names."""
    if answer.code != "invalid-argument":
        return answer.outcome
    said = re.sub(r"\d+|'[^']*'|\"[^\"]*\"", "…", answer.message)
    return f"{answer.outcome} ({said[:REASON_LENGTH]})"


def state_differences(op: str, theirs: Sight, ours: Sight, *, frozen: bool) -> list[StepDifference]:
    """Where the two states differ, and which invariants only the client's breaks."""
    late = list(_late_ends(op, theirs, ours))
    if theirs.essence == ours.essence:
        return late
    expected, actual = canonical_pair(theirs.snapshot, ours.snapshot, chosen_rules(frozen=frozen, managed=False))
    found = [
        StepDifference(op, one.where, one.kind, one.key, one.expected, one.actual, one.severity)
        for one in diff(expected, actual)
        if not (one.kind == "ttl" and _both_run_down(one.expected, one.actual))
    ]
    if ours.imagined:  # what the model breaks, it breaks by being different
        return [*found, *late]
    return [*found, *late, *_broken_invariants(op, theirs.snapshot, ours.snapshot)]


def unchanged(before: Sight, after: Sight) -> bool:
    """Whether nothing that is compared has changed on one side between two looks."""
    if before.imagined:
        return before.snapshot == after.snapshot
    if before.essence != after.essence or before.times_left.keys() != after.times_left.keys():
        return False
    return all(abs(left - after.times_left[key]) <= TTL_TOLERANCE_MS for key, left in before.times_left.items())


def _both_run_down(expected: str, actual: str) -> bool:
    """Whether two times left (ms) only differ by the moments between the looks.

    The canonical rules know the bands of most; a rate window that is longer than the queue's newest limit has none.
    """
    return expected.isdecimal() and actual.isdecimal() and abs(int(expected) - int(actual)) <= TTL_TOLERANCE_MS


def _late_ends(op: str, theirs: Sight, ours: Sight) -> Iterator[StepDifference]:
    """Keys that both sides let expire, but at times far apart: the canonical rules only look at bands."""
    for key, expected in theirs.times_left.items():
        actual = ours.times_left.get(key)
        if actual is not None and abs(actual - expected) > TTL_TOLERANCE_MS:
            kind = key.rpartition(":")[2] if key.endswith((":lock", ":limiter", ":stalled-check")) else "de"
            yield StepDifference(op, f"ttl.{kind}", "ttl", key, f"about {expected} ms", f"about {actual} ms")


def _broken_invariants(op: str, theirs: Snapshot, ours: Snapshot) -> Iterator[StepDifference]:
    """Invariants that the client's state breaks and the oracle's does not."""
    excused = {(one.check, one.where, one.key.partition(":")[2]) for one in check_snapshot(theirs)}
    for one in check_snapshot(ours):
        if (one.check, one.where, one.key.partition(":")[2]) not in excused:
            where = f"invariant.{one.check}"
            yield StepDifference(op, where, "invariant", one.key, "holds", one.message, one.severity)
