"""A wrong value is one difference: it does not make its neighbours wrong, by any canonical rule, on any clock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.observe.canonical import DEFAULT_RULES
from conformance.observe.canonical_rules import CanonicalContext
from conformance.observe.diff import compare
from conformance.observe.event_order import INDEPENDENT_EVENTS
from conformance.observe.tables import Snapshot
from tests.observe.snapshot_builders import ADDED, Stream, Zset, event, job, snapshot

CHOSEN, DELAY, EVERY = ADDED - 86_400_000, 5000, 60_000
RULES = (INDEPENDENT_EVENTS, *DEFAULT_RULES)

Defects = Mapping[str, Any]
"""New values by the locator of a difference and the id of its job, `job.delay 2`; None removes the value."""

WRONG = (
    dict[str, list[Any]]()
    | {f"job.timestamp {name}": [None, ADDED // 1000] for name in ("1", "2", "3", "5", "6", "repeat")}
    | {f"job.opts.timestamp {name}": [ADDED] for name in ("1", "2", "5")}
    | {f"job.opts.timestamp {name}": [None] for name in ("4", "repeat")}
    | {f"job.delay {name}": [None, "0"] for name in ("2", "3", "repeat")}
    | {f"event.{name}": [None] for name in ("added 1", "added 2", "delayed 2", "delayed 3", "added 5")}
    | {f"membership.completed.score {name}": [1] for name in ("5", "8")}
    | {"job.opts.delay 2": [None, 7], "job.opts.delay 3": [8000], "job.rjk repeat": [None, ""], "job.opts.de 6": [None]}
    | {"job.processedOn 5": [None, ""], "job.finishedOn 5": [None, ADDED // 1000], "scheduler.every": [None, "1"]}
    | {"job.opts.repeat.every repeat": [None, 1], "job.opts.repeat.offset repeat": [None, -1], "lock 7": [None]}
    | {"meta.duration": [None, "1"], "limiter": ["1"], "dedup.job": ["5"], "membership.delayed.score 2": [1]}
    | {"event.delayed.delay 2": ["1"], "scheduler.next": [1]}
)


def store(start: int, steps: list[int], defects: Defects) -> Snapshot:
    """A queue with every value that a relative rule judges, made by a clock that starts at `start` (ms)."""
    at = [start + sum(steps[: count + 1]) for count in range(len(steps))]
    due = at[0] + EVERY
    jobs: dict[str, dict[str, Any]] = {
        "1": {"timestamp": at[0]},
        "2": {"timestamp": at[1], "delay": DELAY, "opts": {"delay": DELAY}},
        "3": {"timestamp": at[1], "delay": 7000, "processedOn": at[2]},
        "4": {"timestamp": CHOSEN, "opts": {"timestamp": CHOSEN}},
        "5": {"timestamp": at[1], "processedOn": at[3], "finishedOn": at[4]},
        "6": {"timestamp": at[2], "opts": {"de": {"id": "d", "ttl": 9000}}},
        "7": {"timestamp": at[2], "processedOn": at[3]},
        "8": {"timestamp": at[2], "processedOn": at[3], "finishedOn": at[5]},
        "repeat": {
            "timestamp": at[2],
            "delay": due - at[2],
            "rjk": "s",
            "opts": {
                "timestamp": at[2],
                "delay": due - at[2],
                "prevMillis": due,
                "repeat": {"every": EVERY, "offset": due % EVERY, "count": 1},
            },
        },
    }
    rest: dict[str, Any] = {"meta.duration": "1000", "limiter": "2", "scheduler.every": str(EVERY), "dedup.job": "6"}
    rest |= {"lock 7": "t", "lock 8": "t", "scheduler.next": due}
    rest |= {"membership.delayed.score 2": (at[1] + DELAY) * 4096, "membership.delayed.score 3": (at[4] + 7000) * 4096}
    rest |= {"membership.completed.score 5": at[4], "membership.completed.score 8": at[5]}
    rest |= {"event.delayed.delay 2": str(at[1] + DELAY), "event.delayed.delay 3": str(at[4] + 7000)}
    for where, value in defects.items():
        place, _, name = where.partition(" ")
        if place.startswith("job."):
            hold: Any = jobs[name]
            *path, last = place.split(".")[1:]
            for part in path:
                hold = hold.setdefault(part, {})
            hold[last] = value
        else:
            rest[where] = value
    return _assembled(jobs, rest, defects, due, start + 60_000)


def _assembled(jobs: dict[str, Any], rest: dict[str, Any], defects: Defects, due: int, now: int) -> Snapshot:
    scores = {where: value for where, value in rest.items() if where.startswith("membership.")}
    ids = {name: f"repeat:s:{due}" if name == "repeat" else name for name in jobs}
    keys: dict[str, Any] = {}
    for name, fields in jobs.items():
        texts = {
            field: json.dumps({"attempts": 0, **_without_none(value)}) if field == "opts" else str(value)
            for field, value in {"opts": {}, **fields}.items()
        }
        hash_ = {**job(), **texts}
        keys[f"q:{ids[name]}"] = {field: text for field, text in hash_.items() if fields.get(field, "") is not None}
    for container in ("delayed", "completed"):
        found = {
            where.split()[1]: score for where, score in scores.items() if where.startswith(f"membership.{container}")
        }
        keys[f"q:{container}"] = Zset({**found, **({ids["repeat"]: due * 4096} if container == "delayed" else {})})
    entries = [event(kind, jobId=name) for name in "12358" for kind in ("added", "waiting")]
    for name, position in (("2", 3), ("3", 11)):
        entries.insert(position, event("delayed", jobId=name, delay=rest[f"event.delayed.delay {name}"]))
    keys["q:events"] = Stream(row for row in entries if f"event.{row['event']} {row['jobId']}" not in defects)
    record = {"every": rest["scheduler.every"], "offset": str(due % EVERY), "name": "s"}
    keys |= {
        "q:wait": ["1", "4", "6"],
        "q:active": ["7", "8"],
        "q:de:d": rest["dedup.job"],
        "q:limiter": rest["limiter"],
    }
    keys |= {"q:repeat": Zset({"s": rest["scheduler.next"]}), "q:repeat:s": record}
    keys |= {"q:meta": {"version": "bullmq:5.62.0", "duration": rest["meta.duration"]}}
    keys |= {f"q:{name}:lock": rest[f"lock {name}"] for name in "78"}
    keys["q:marker"] = Zset(
        {"1": min(scores["membership.delayed.score 2"], scores["membership.delayed.score 3"]) // 4096}
    )
    kept = {
        name: _without_none(value) if isinstance(value, dict) and not isinstance(value, Zset) else value
        for name, value in keys.items()
    }
    ttls = {"q:7:lock": 20_000, "q:8:lock": 20_000, "q:limiter": 900, "q:de:d": 8000}
    return snapshot({name: value for name, value in kept.items() if value is not None}, ttls=ttls, now=now)


def _without_none(value: Any) -> Any:
    """A hash or an object without the names whose value is None."""
    if not isinstance(value, dict):
        return value
    return {name: _without_none(inner) for name, inner in value.items() if inner is not None}


def places(expected: Snapshot, actual: Snapshot) -> set[str]:
    found = compare(expected, actual, RULES, CanonicalContext(lock_duration_ms=None))
    return {f"{row.where} {'repeat' if ':repeat:' in row.key else row.key.partition(':')[2]}" for row in found}


def names_of(defects: Defects) -> set[str]:
    return {where.split()[0] for where in defects}


STEPS = st.lists(st.integers(0, 40), min_size=6, max_size=6)
STARTS = st.integers(ADDED, ADDED + 30_000)


@settings(max_examples=300, deadline=None)
@given(STARTS, STARTS, STEPS, STEPS, st.data())
def test_only_what_is_wrong_differs_on_two_clocks(
    one: int, other: int, steps: list[int], others: list[int], data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.sampled_from(sorted(WRONG)), max_size=3, unique=True))
    defects = {where: data.draw(st.sampled_from(WRONG[where])) for where in chosen}
    found = places(store(one, steps, {}), store(other, others, defects))
    assert {where.split()[0] for where in found} <= names_of(defects), found


@pytest.mark.parametrize("where", sorted(WRONG))
def test_a_wrong_value_differs(where: str) -> None:
    steps = [1, 2, 3, 4, 5, 6]
    for value in WRONG[where]:
        found = places(store(ADDED, steps, {}), store(ADDED + 777, steps, {where: value}))
        assert {place.split()[0] for place in found} == names_of({where: value}), found
