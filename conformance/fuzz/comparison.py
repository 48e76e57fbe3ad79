"""Differences after a step: between the two completions, the two states, and in the invariants. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from conformance.checkers.snapshot_checks import check_snapshot
from conformance.driver.ops.base import left_out
from conformance.findings import Finding, Severity
from conformance.gate.judge import TIMES, UNSET, chosen_rules, compare_states
from conformance.observe.canonical_rules import PLAUSIBLE_SINCE_MS
from conformance.observe.differences import same_reading, summarise_pair
from conformance.observe.tables import Snapshot
from conformance.participants.expect import value_text
from conformance.protocol.scripts import BULLMQ_VERSION

CompletionStatus: TypeAlias = Literal["ok", "fail", "info", "unsupported", "broken"]

HARMLESS = (
    "answer.",
    "event.",
    "job.",
    "dedup.next.opts",
    "meta",
    "marker",
    "metrics",
    "log",
    "expiry",
    "unknown",
    "stalled",
    "ttl.",
    "invariant.",
)
"""Places where a difference does not let the two systems diverge, so that the sequence can go on."""

DECIDING_FIELDS = ("job.parent", "job.rjk", "job.deid", "job.atm", "job.delay", "job.priority", "meta.paused")
"""Exceptions: fields on which scripts branch."""

UNORDERED = frozenset({"flow.getFlow", "job.getDependencies", "queue.getWorkers"})
"""Operations that return members of a Redis set: their order depends on the prefix."""

RUNNING_DOWN = frozenset({"queue.getRateLimitTtl"})
"""Operations that return a remaining time, which runs down in Redis while the kit reads."""

# Wide, because the answer is read after the call and Redis goes on counting.
TIME_LEFT_TOLERANCE_MS = 5000

# Below 10 s, the unit of the fuzzer's times: a wrong time to live differs by at least that.
TTL_TOLERANCE_MS = 9000
"""How far the remaining times of two equal keys may be apart (ms): both were set by the same step."""

OWN_WORDS = frozenset({"queue.getVersion"})
"""Operations that return the library's own name."""

REASON_LENGTH = 40
PLAUSIBLE_UNTIL_MS = 4_000_000_000_000
_MILLISECONDS = re.compile(r"(?<!\d)1[4-9]\d{11}(?!\d)")


@dataclass(frozen=True)
class Completion:
    """How a call completed. `value` as JSON values when `ok`; `code` is the driver protocol's error code otherwise.

    `broken`: the driver crashed or broke the protocol; `message` says how.
    """

    status: CompletionStatus
    value: Any = None
    code: str = ""
    message: str = ""

    @property
    def outcome(self) -> str:
        """`ok`, the error code of a refusal, or the status."""
        return self.code if self.status == "fail" else self.status

    def without_prefix(self, *prefixes: str, exact: bool = True) -> Any:
        """The value with these prefixes taken out of every text; unless `exact`, without times, too."""
        plain = self.value
        # One prefix may be the start of another: the longer one must be tried first.
        for prefix in sorted(prefixes, key=len, reverse=True):
            plain = _without(plain, prefix)
        return plain if exact else _timeless(plain)


class DifferenceClass(msgspec.Struct, frozen=True, order=True):
    """Findings of one class count as one: the same operation leaves the same kind of difference at the same place."""

    op: str
    where: str
    kind: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.op}: {self.kind} {self.where}"

    @property
    def harmless(self) -> bool:
        """Whether the sequence can go on after it."""
        if self.kind.startswith("outcome "):
            return False
        return self.where.startswith(HARMLESS) and not self.where.startswith(DECIDING_FIELDS)


@dataclass(frozen=True)
class StepDifference:
    """One disagreement after one step. `key`: its job or key; the values as short texts."""

    op: str
    where: str
    kind: str
    key: str
    expected: str
    actual: str
    severity: Severity = "wrong-behaviour"

    @property
    def group(self) -> DifferenceClass:
        """The class of this difference."""
        return DifferenceClass(self.op, self.where, self.kind)

    @property
    def spot(self) -> tuple[str, str, str]:
        """Identifies the difference over several steps."""
        return self.where, self.kind, self.key

    def __str__(self) -> str:
        """One line."""
        at = f" at {self.key}" if self.key else ""
        return f"{self.kind} {self.where}{at}: expected {self.expected}, got {self.actual}"


@dataclass
class KnownDifferences:
    """Known differences: classes, and all differences at places that match a pattern (glob)."""

    groups: set[DifferenceClass] = field(default_factory=set)
    places: tuple[str, ...] = ()

    def covers(self, difference: StepDifference) -> bool:
        """Whether a difference is known. As in the gate, a cosmetic difference is never a finding."""
        return (
            difference.severity == "cosmetic"
            or difference.group in self.groups
            or any(fnmatchcase(difference.where, place) for place in self.places)
        )


class StateObservation(Protocol):
    """An observed state of one system."""

    @property
    def snapshot(self) -> Snapshot:
        """The typed tables."""
        ...

    @property
    def fingerprint(self) -> str:
        """A text that is only equal for two observations if no relevant part differs; see `StateDump`."""
        ...

    @property
    def times_left(self) -> Mapping[str, int]:
        """Times to live in ms by key without prefix, of the keys that expire."""
        ...

    @property
    def modelled(self) -> bool:
        """Whether this is the model's state, which is in no Redis."""
        ...


def completion_differences(
    op: str, expected: Completion, actual: Completion, prefixes: tuple[str, str], *, frozen: bool
) -> list[StepDifference]:
    """The differences between two completions. `prefixes`: the oracle's and the client's."""
    if expected.outcome != actual.outcome:
        kind = f"outcome {_outcome(expected)}, not {actual.outcome}"
        return [StepDifference(op, f"answer.{op}", kind, "", _summary(expected), _summary(actual))]
    if expected.value == actual.value:
        return []
    # Both prefixes on both sides: equal texts that mention one of them must stay equal.
    values = [completion.without_prefix(*prefixes, exact=frozen) for completion in (expected, actual)]
    return [
        StepDifference(op, place.where, "wrong-answer", "", *summarise_pair(place.expected, place.actual))
        for place in value_disagreements(op, *values, exact=frozen)
    ]


def _summary(completion: Completion) -> str:
    return f"{completion.outcome}: {completion.message or value_text(completion.value)}"


def _outcome(completion: Completion) -> str:
    """The outcome; refusals of arguments are distinguished by the oracle's message, without its numbers and names."""
    if completion.code != "invalid-argument":
        return completion.outcome
    reason = re.sub(r"\d+|'[^']*'|\"[^\"]*\"", "…", completion.message)
    return f"{completion.outcome} ({reason[:REASON_LENGTH]})"


@dataclass(frozen=True)
class ValueDisagreement:
    """A place where two values differ."""

    where: str
    expected: Any
    actual: Any


def value_disagreements(op: str, expected: Any, actual: Any, *, exact: bool) -> list[ValueDisagreement]:
    """Differences between two values (without prefixes). `exact`: clocks are frozen, so times are compared, too."""
    if op in OWN_WORDS:
        return []
    if op in UNORDERED:
        expected, actual = _in_order(expected), _in_order(actual)
    found = list(_differences(f"answer.{op}", expected, actual, exact=exact))
    if op in RUNNING_DOWN:
        found = [place for place in found if not _both_running(place.expected, place.actual)]
    return found


def _differences(where: str, expected: Any, actual: Any, *, exact: bool) -> Iterator[ValueDisagreement]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        skipped = left_out(expected, actual) | (frozenset() if exact else TIMES)
        for name in {**expected, **actual}:
            if name not in skipped:
                yield from _differences(f"{where}.{name}", expected.get(name), actual.get(name), exact=exact)
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for wanted, got in zip(expected, actual, strict=True):
            yield from _differences(where, wanted, got, exact=exact)
    elif not _same_leaf(where, expected, actual):
        yield ValueDisagreement(where, expected, actual)


def _same_leaf(where: str, expected: Any, actual: Any) -> bool:
    if where.endswith("_raw") and isinstance(expected, str) and isinstance(actual, str):
        # How a client formats a value for its user is its own choice; the value in Redis is compared exactly.
        return expected == actual or same_reading(expected, actual)
    return _same(expected, actual)


def _same(expected: Any, actual: Any) -> bool:
    if isinstance(expected, bool) != isinstance(actual, bool):
        return False
    return expected == actual or (expected in UNSET and actual in UNSET)


def _both_running(expected: Any, actual: Any) -> bool:
    numbers = all(isinstance(value, int | float) and value > 0 for value in (expected, actual))
    return numbers and abs(expected - actual) <= TIME_LEFT_TOLERANCE_MS


def _in_order(value: Any) -> Any:
    if isinstance(value, list):
        return sorted(map(_in_order, value), key=repr)
    if isinstance(value, dict):
        return {name: _in_order(inner) for name, inner in value.items()}
    return value


def _without(value: Any, prefix: str) -> Any:
    if isinstance(value, str):
        return value.replace(prefix, "<prefix>") if prefix in value else value
    if isinstance(value, dict):
        return {_without(name, prefix): _without(inner, prefix) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without(inner, prefix) for inner in value]
    return value


def _timeless(value: Any) -> Any:
    """The value without times, which also occur in ids and options of scheduled jobs."""
    if isinstance(value, str):
        return _MILLISECONDS.sub("<ms>", value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "<ms>" if PLAUSIBLE_SINCE_MS <= value <= PLAUSIBLE_UNTIL_MS else value
    if isinstance(value, dict):
        return {name: _timeless(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_timeless(inner) for inner in value]
    return value


def state_differences(
    op: str, expected: StateObservation, actual: StateObservation, *, frozen: bool, version: str = BULLMQ_VERSION
) -> list[StepDifference]:
    """Differences between the two states, and invariants of the oracle's version that only the client breaks."""
    late = list(_late_ends(op, expected, actual))
    if expected.fingerprint == actual.fingerprint:
        return late
    rules = chosen_rules(frozen=frozen, managed=False)
    found = [
        StepDifference(op, place.where, place.kind, place.key, place.expected, place.actual, place.severity)
        for place in compare_states(expected.snapshot, actual.snapshot, rules)
        if not (place.kind == "ttl" and _both_run_down(place.expected, place.actual))
    ]
    if actual.modelled:  # an invariant that the model breaks shows as a difference anyway
        return [*found, *late]
    return [*found, *late, *_broken_invariants(op, expected.snapshot, actual.snapshot, version)]


def unchanged(before: StateObservation, after: StateObservation) -> bool:
    """Whether no compared part of one system has changed between two observations."""
    if before.modelled:
        return before.snapshot == after.snapshot
    if before.fingerprint != after.fingerprint or before.times_left.keys() != after.times_left.keys():
        return False
    return all(abs(left - after.times_left[key]) <= TTL_TOLERANCE_MS for key, left in before.times_left.items())


def _both_run_down(expected: str, actual: str) -> bool:
    """Whether two remaining times (ms) only differ by the time between the observations.

    The canonical rules know the bands of most keys; a rate window longer than the queue's newest limit has none.
    """
    return expected.isdecimal() and actual.isdecimal() and abs(int(expected) - int(actual)) <= TTL_TOLERANCE_MS


def _late_ends(op: str, expected: StateObservation, actual: StateObservation) -> Iterator[StepDifference]:
    """Keys that expire in both systems, but at times far apart, which the bands of the canonical rules do not show."""
    for key, expected_ms in expected.times_left.items():
        actual_ms = actual.times_left.get(key)
        if actual_ms is not None and abs(actual_ms - expected_ms) > TTL_TOLERANCE_MS:
            kind = key.rpartition(":")[2] if key.endswith((":lock", ":limiter", ":stalled-check")) else "de"
            yield StepDifference(op, f"ttl.{kind}", "ttl", key, f"about {expected_ms} ms", f"about {actual_ms} ms")


def _broken_invariants(op: str, expected: Snapshot, actual: Snapshot, version: str) -> Iterator[StepDifference]:
    """Invariants of a version that the client's state breaks and the oracle's does not."""
    excused = {_broken_place(broken) for broken in check_snapshot(expected, version=version)}
    for broken in check_snapshot(actual, version=version):
        if _broken_place(broken) not in excused:
            yield StepDifference(op, broken.where, "invariant", broken.key, "holds", broken.actual, broken.severity)


def _broken_place(broken: Finding) -> tuple[str, str, str]:
    """Identifies a broken invariant independently of the prefix."""
    return broken.kind, broken.place, broken.key.partition(":")[2]
