"""Which differences after a step count, and which do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from conformance.fuzz.comparison import (
    Completion,
    DifferenceClass,
    completion_differences,
    state_differences,
    unchanged,
    value_disagreements,
)
from conformance.fuzz.keyspace import StateDump
from conformance.observe.tables import Snapshot
from tests.observe.snapshot_builders import Stream, event, job, snapshot

PREFIXES = ("bc01", "bc02")


@dataclass(frozen=True)
class HandmadeObservation:
    snapshot: Snapshot
    fingerprint: str = ""
    times_left: Mapping[str, int] = field(default_factory=dict)
    modelled: bool = False


def _observations(theirs: dict[str, Any], ours: dict[str, Any]) -> tuple[HandmadeObservation, HandmadeObservation]:
    return HandmadeObservation(snapshot(theirs), "a"), HandmadeObservation(snapshot(ours, prefix="o"), "b")


def test_equal_answers_have_no_differences() -> None:
    answers = Completion("ok", {"key": "bc01:q:1"}), Completion("ok", {"key": "bc02:q:1"})
    assert completion_differences("queue.getJob", *answers, PREFIXES, frozen=True) == []


def test_an_unset_value_may_have_several_forms() -> None:
    assert value_disagreements("queue.getJob", {"delay": None}, {"delay": 0}, exact=True) == []
    assert value_disagreements("queue.getJob", {"delay": None}, {"delay": 1}, exact=True) != []
    assert value_disagreements("queue.isPaused", {"value": True}, {"value": 1}, exact=True) != []


@pytest.mark.parametrize(
    ("theirs", "ours", "kind"),
    [
        (Completion("ok"), Completion("fail", code="other"), "outcome ok, not other"),
        (Completion("fail", code="missing-job"), Completion("ok"), "outcome missing-job, not ok"),
        (Completion("fail", code="missing-job"), Completion("fail", code="other"), "outcome missing-job, not other"),
        (Completion("ok"), Completion("broken", message="gone"), "outcome ok, not broken"),
        (
            Completion("fail", code="invalid-argument", message="Priority should be between 0 and 2097152"),
            Completion("ok"),
            "outcome invalid-argument (Priority should be between … and …), not ok",
        ),
        (Completion("ok", {"value": 1}), Completion("ok", {"value": 2}), "wrong-answer"),
    ],
)
def test_outcomes_and_values_are_compared(theirs: Completion, ours: Completion, kind: str) -> None:
    [found] = completion_differences("job.promote", theirs, ours, PREFIXES, frozen=True)
    assert found.kind == kind
    assert found.group.harmless == (kind == "wrong-answer")


def test_times_are_compared_only_where_both_clocks_stand_still() -> None:
    theirs = {"job": {"id": "repeat:s:1700000000000", "timestamp": 1_700_000_000_000}}
    ours = {"job": {"id": "repeat:s:1700000000005", "timestamp": 1_700_000_000_005}}
    answers = Completion("ok", theirs), Completion("ok", ours)
    assert len(completion_differences("queue.getJob", *answers, PREFIXES, frozen=True)) == 2
    assert completion_differences("queue.getJob", *answers, PREFIXES, frozen=False) == []


def test_a_time_left_is_compared_with_tolerance() -> None:
    op = "queue.getRateLimitTtl"
    assert value_disagreements(op, {"count": 20_000}, {"count": 19_000}, exact=True) == []
    assert value_disagreements(op, {"count": 20_000}, {"count": 0}, exact=True) != []
    assert value_disagreements(op, {"count": 60_000}, {"count": 20_000}, exact=True) != []


def test_members_of_a_set_have_no_order() -> None:
    op = "job.getDependencies"
    assert value_disagreements(op, {"unprocessed": ["a", "b"]}, {"unprocessed": ["b", "a"]}, exact=True) == []
    trees = [{"children": [{"id": "x", "children": [{"id": child} for child in ids]}]} for ids in ("ab", "ba")]
    assert value_disagreements(op, *trees, exact=True) == []
    assert value_disagreements("queue.getJobs", {"jobs": ["a", "b"]}, {"jobs": ["b", "a"]}, exact=True) != []


def test_the_canonical_rules_apply() -> None:
    theirs = {"q:1": job(parentKey="p:q:9"), "q:wait": ["1"], "q:meta": {"version": "bullmq:5.62.0"}}
    ours = {"q:1": job(parentKey="o:q:9"), "q:wait": ["1"], "q:meta": {"version": "mine:1"}}
    assert state_differences("queue.add", *_observations(theirs, ours), frozen=True) == []


def test_a_field_and_a_broken_invariant_are_found() -> None:
    theirs = {"q:1": job(), "q:wait": ["1"], "q:events": Stream([event("added", jobId="1", name="n")])}
    ours = {**theirs, "q:1": job(delay="NaN")}
    found = state_differences("queue.add", *_observations(theirs, ours), frozen=True)
    assert [(difference.where, difference.kind) for difference in found] == [
        ("job.delay", "wrong-value"),
        ("invariant.numbers", "invariant"),
    ]


def test_an_invariant_that_the_oracle_breaks_too_is_not_a_difference() -> None:
    broken = {"q:1": job(delay="NaN"), "q:wait": ["1"]}
    assert state_differences("queue.add", *_observations(broken, dict(broken)), frozen=True) == []


@pytest.mark.parametrize(
    ("version", "ours", "broken"),
    [
        ("5.62.0", "wait", ["invariant.paused-list"]),
        ("5.62.0", "paused", []),
        ("6.7.0", "wait", []),
        ("6.7.0", "paused", ["invariant.nothing-parked"]),
    ],
)
def test_the_invariants_are_those_of_the_oracles_version(version: str, ours: str, broken: list[str]) -> None:
    """6.0.0 has changed where the jobs of a paused queue are stored."""
    theirs = {"wait": "paused", "paused": "wait"}[ours]
    keys = {"q:1": job(), "q:meta": {"paused": "1"}}
    states = _observations({**keys, f"q:{theirs}": ["1"]}, {**keys, f"q:{ours}": ["1"]})
    found = state_differences("queue.pause", *states, frozen=True, version=version)
    assert [difference.where for difference in found if difference.kind == "invariant"] == broken


def test_times_to_live_far_apart_are_found_even_in_equal_states() -> None:
    state = snapshot({"q:1": job(), "q:active": ["1"]})
    theirs, ours = (
        HandmadeObservation(state, "x", {"q:1:lock": 30_000}),
        HandmadeObservation(state, "x", {"q:1:lock": 60_000}),
    )
    [found] = state_differences("worker.getNextJob", theirs, ours, frozen=True)
    assert (found.where, found.kind, found.key) == ("ttl.lock", "ttl", "q:1:lock")
    near = HandmadeObservation(state, "x", {"q:1:lock": 28_000})
    assert state_differences("worker.getNextJob", theirs, near, frozen=True) == []


def test_a_rate_window_that_runs_down_is_not_a_difference() -> None:
    """Longer than the queue's newest limit, it matches no band of the canonical rules."""
    keys = {"q:meta": {"max": "2", "duration": "20000"}, "q:limiter": "1"}

    def observed(ttl_ms: int, fingerprint: str) -> HandmadeObservation:
        return HandmadeObservation(snapshot(keys, ttls={"q:limiter": ttl_ms}), fingerprint, {"q:limiter": ttl_ms})

    assert state_differences("queue.add", observed(59_997, "a"), observed(60_000, "b"), frozen=True) == []
    found = state_differences("queue.add", observed(40_000, "a"), observed(60_000, "b"), frozen=True)
    assert {difference.kind for difference in found} == {"ttl"}


def test_changes_between_two_observations() -> None:
    state, other = snapshot({"q:1": job(), "q:wait": ["1"]}), snapshot({"q:1": job(), "q:paused": ["1"]})
    before = HandmadeObservation(state, "x", {"q:1:lock": 30_000})
    assert unchanged(before, HandmadeObservation(state, "x", {"q:1:lock": 29_000}))
    assert not unchanged(before, HandmadeObservation(state, "y", {"q:1:lock": 30_000}))
    assert not unchanged(before, HandmadeObservation(state, "x", {"q:1:lock": 60_000}))
    assert not unchanged(before, HandmadeObservation(state, "x"))
    modelled = HandmadeObservation(state, modelled=True)
    assert unchanged(modelled, HandmadeObservation(state, modelled=True))
    assert not unchanged(modelled, HandmadeObservation(other, modelled=True))


def test_which_differences_let_a_sequence_go_on() -> None:
    harmless = {"event.added.name", "job.opts.delay", "invariant.numbers", "meta", "marker.base"}
    grave = {"job", "membership.state", "job.parentKey", "job.atm", "lock", "meta.paused", "counter.id"}
    assert all(DifferenceClass("op", where, "wrong-value").harmless for where in harmless)
    assert not any(DifferenceClass("op", where, "wrong-value").harmless for where in grave)


def test_a_fingerprint_leaves_out_what_differs_by_nature_and_nothing_else() -> None:
    def dump(
        prefix: str, *, ttl: int = 5, data: bytes = b"{}", trace: bytes = b'["at x"]', entry: bytes = b"1-1"
    ) -> StateDump:
        own = prefix.encode()
        rows = [
            [own + b":q:1", b"hash", -1, [b"data", data, b"stacktrace", trace, b"parentKey", own + b":q:2"]],
            [own + b":q:1:lock", b"string", ttl, b"token"],
            [own + b":q:events", b"stream", -1, [[entry, [b"event", b"added"]]]],
        ]
        return StateDump(prefix, [[b"1", b"0"], rows])

    first = dump("bc01")
    assert first.fingerprint == dump("bc02", ttl=9, trace=b'["at another"]', entry=b"2-7").fingerprint
    assert first.fingerprint != dump("bc02", data=b'{"a":1}').fingerprint
    assert first.fingerprint != dump("bc02", trace=b"[]").fingerprint
    assert first.fingerprint != dump("bc02", ttl=-1).fingerprint
    assert first.times_left == {"q:1:lock": 5}
    assert first.snapshot.locks[0].token == "token"
