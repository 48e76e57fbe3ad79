from __future__ import annotations

from dataclasses import replace

import pytest

from conformance.observe.canonical import DEFAULT_RULES, FROZEN_CLOCK_RULES, Context, Rule, canonicalise, without
from conformance.observe.diff import diff
from conformance.observe.tables import Snapshot

from .observe_builders import recorded

CONTEXT = Context(lock_duration_ms=60_000, stalled_interval_ms=60_000)


def canonical(name: str, rules: tuple[Rule, ...]) -> Snapshot:
    once = canonicalise(recorded(name), rules, CONTEXT)
    assert canonicalise(once, rules, CONTEXT) == once
    return once


@pytest.mark.parametrize(
    ("left", "right", "rules"),
    [
        ("real_a", "real_b", DEFAULT_RULES),
        ("frozen_a", "frozen_b", FROZEN_CLOCK_RULES),
        ("real_a", "frozen_b", DEFAULT_RULES),
    ],
    ids=["two real clocks", "two frozen clocks", "one of each"],
)
def test_two_runs_of_real_bullmq_are_equal(left: str, right: str, rules: tuple[Rule, ...]) -> None:
    found = diff(canonical(left, rules), canonical(right, rules))
    assert found == [], "\n".join(map(str, found))


@pytest.mark.parametrize("table", ["jobs", "memberships", "locks", "dependencies", "logs", "events", "schedulers"])
def test_the_recordings_fill_the_tables(table: str) -> None:
    assert getattr(recorded("real_a"), table)


def test_nothing_of_bullmq_is_unknown_or_expires_unexpectedly() -> None:
    assert recorded("real_a").unknown == ()
    assert recorded("real_a").expiries == ()


@pytest.mark.parametrize(
    "name",
    ["own-prefix", "generated-uuids", "lock-ttl", "stream-ids", "worker-clock"],
)
def test_these_rules_are_needed_for_two_equal_runs(name: str) -> None:
    rules = without(DEFAULT_RULES, name)
    left, right = (canonicalise(recorded(run), rules, CONTEXT) for run in ("real_a", "real_b"))
    assert diff(left, right) != []


def test_a_difference_of_one_byte_in_a_recording_is_found() -> None:
    whole = recorded("frozen_a")
    jobs = list(whole.jobs)
    jobs[0] = replace(jobs[0], fields={**jobs[0].fields, "name": jobs[0].fields["name"] + " "})
    left, right = (
        canonicalise(side, FROZEN_CLOCK_RULES, CONTEXT) for side in (whole, replace(whole, jobs=tuple(jobs)))
    )
    assert [found.where for found in diff(left, right)] == ["job.name"]
