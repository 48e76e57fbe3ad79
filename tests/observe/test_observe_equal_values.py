"""Equal raw values are never a difference, for any other content of the two stores.

`PAIRS_OF_STORES=5000 pytest tests/observe/test_observe_equal_values.py` tries that many random pairs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.observe.canonical import ALL_RULES, DEFAULT_RULES, FROZEN_CLOCK_RULES
from conformance.observe.canonical_rules import UUID, CanonicalRule, map_texts
from conformance.observe.diff import compare
from conformance.observe.differences import Difference, difference
from conformance.observe.tables import Job, Snapshot
from tests.observe.snapshot_builders import ADDED, NOW, Stream, Zset, busy, event, job, snapshot
from tests.observe.test_observe_properties import SCORES, TEXTS, TIMES, snapshots

PAIRS = int(os.environ.get("PAIRS_OF_STORES", "150"))

FIELDS = (
    *(
        "timestamp",
        "processedOn",
        "finishedOn",
        "delay",
        "data",
        "opts",
        "parent",
        "stacktrace",
        "rjk",
        "atm",
        "priority",
    ),
    "unknown",
)
VALUES = st.one_of(st.none(), st.just(""), TEXTS, TIMES.map(str), st.just(f'{{"timestamp":{ADDED}}}'))
"""None: the field is missing."""


@st.composite
def store_pairs(draw: st.DrawFn) -> tuple[Snapshot, Snapshot]:
    """A store, and the same with fields and rows that are empty, missing, extra, unknown or other ones."""
    # An id that looks like a label would hide from `raw_values` which job is meant.
    left = map_texts(draw(st.one_of(snapshots(), st.just(busy()))), lambda text: text.replace("<uuid", "<id"))
    jobs = tuple(_changed(row, draw(CHANGES)) for row in left.jobs if draw(OFTEN))
    members = tuple(
        replace(row, score=draw(SCORES)) if row.score is not None and not draw(OFTEN) else row
        for row in left.memberships
        if draw(OFTEN)
    )
    events = tuple(row for row in left.events if draw(OFTEN))
    emptied: dict[str, Any] = {name: () for name in OTHERS if getattr(left, name) and not draw(OFTEN)}
    right = replace(left, jobs=jobs, memberships=members, events=events, **emptied)
    # Another prefix and another moment: what is a time of the past for one side is none for the other.
    return left, replace(
        right, prefix=draw(st.sampled_from(["p", "other"])), taken_ms=draw(st.sampled_from([NOW, ADDED]))
    )


CHANGES: st.SearchStrategy[dict[str, str | None]] = st.one_of(
    st.just({}), st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=3)
)
OFTEN = st.integers(0, 9).map(bool)
OTHERS = ("locks", "markers", "schedulers", "deduplications", "metas", "limiters", "dependencies", "logs")


def _changed(row: Job, changes: Mapping[str, str | None]) -> Job:
    fields = {**row.fields, **changes}
    return replace(row, fields={name: text for name, text in fields.items() if text is not None})


@settings(max_examples=PAIRS, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(store_pairs(), st.sampled_from([DEFAULT_RULES, FROZEN_CLOCK_RULES, ALL_RULES]))
@pytest.mark.slow
def test_equal_raw_values_never_differ(pair: tuple[Snapshot, Snapshot], rules: tuple[CanonicalRule, ...]) -> None:
    for expected, actual in (pair, pair[::-1]):
        for found in compare(expected, actual, rules):
            sides = [raw_values(side, found) for side in (expected, actual)]
            assert sides[0] != sides[1], f"{found}, although both sides hold {sides[0]!r}"


def raw_values(side: Snapshot, found: Difference) -> Any:
    """The values of one side that a difference is about, as they were read: found without the comparison's own code."""
    first, _, below = found.where.partition(".")
    return _LOOKUPS.get(first, _rows)(side, found, below)


def _jobs(side: Snapshot, found: Difference, below: str) -> Any:
    fields = [row.fields for row in side.jobs if f"{row.queue}:{row.id}" == _own_id(side, found.key)]
    return [hash_.get(found.field) if below else "there" for hash_ in fields]


def _members(side: Snapshot, found: Difference, below: str) -> Any:
    if below.endswith(".order"):
        return [row.job for row in side.memberships if f"{row.queue}:{row.container}" == found.key]
    rows = [row for row in side.memberships if f"{row.queue}:{row.job}" == _own_id(side, found.key)]
    if below.endswith(".score"):
        return [row.score for row in rows if row.container == below.removesuffix(".score")]
    return sorted(row.container for row in rows)


def _events(side: Snapshot, found: Difference, below: str) -> Any:
    rows = side.events
    if below != "order":
        rows = tuple(
            row for row in rows if row.name == below.split(".", maxsplit=1)[0] and _key(row) == _own_id(side, found.key)
        )
    return [row.get(found.field) if found.field else row.fields for row in rows]


def _key(row: Any) -> str:
    return f"{row.queue}:{row.job}" if row.job else f"{row.queue}:events"


def _markers(side: Snapshot, found: Difference, _: str) -> Any:
    return [row.score for row in side.markers if row.member == found.field]


def _locks(side: Snapshot, found: Difference, below: str) -> Any:
    rows = [row for row in side.locks if f"{row.queue}:{row.job}" == _own_id(side, found.key)]
    return [row.ttl_ms if below == "ttl" else row.token for row in rows]


def _schedulers(side: Snapshot, found: Difference, below: str) -> Any:
    rows = [row for row in side.schedulers if f"{row.queue}:repeat:{row.id}" == found.key]
    return [row.next if below == "next" else (row.fields or {}).get(below) if found.field else row for row in rows]


def _rows(side: Snapshot, _: Difference, __: str) -> Any:
    """All rows of the tables that are compared row by row; a prefix is a part of their keys."""
    whole = ("logs", "dependencies", "deduplications", "metas", "limiters", "stalled_checks", "counters", "metrics")
    return [getattr(side, table) for table in (*whole, "expiries", "unknown")]


_LOOKUPS: dict[str, Callable[[Snapshot, Difference, str], Any]] = {
    "job": _jobs,
    "membership": _members,
    "event": _events,
    "marker": _markers,
    "lock": _locks,
    "scheduler": _schedulers,
}


def _own_id(side: Snapshot, key: str) -> str:
    """The key of a job as this side has it: canonical rules number the ids that a client makes up."""
    jobs = (f"{row.queue}:{row.id}" for row in side.jobs)
    names = [*jobs, *map(_key, side.events), *map(_key, side.memberships), *map(_key, side.locks)]
    forms = {name.replace(f":{ADDED}", ":<time 1>"): name for name in names}
    for name in names:
        queue, _, job_id = name.partition(":")
        forms |= {
            f"{queue}:{label}": name for label in (f"<{job_id}>", "<uuid 1>", "<uuid 2>") if UUID.fullmatch(job_id)
        }
    return key if key in names else forms.get(key, key)


DELAYED = {"delay": "5000", "opts": f'{{"delay":5000,"timestamp":{ADDED}}}'}


def store(fields: dict[str, str], now: int = NOW) -> Snapshot:
    keys: dict[str, Any] = {
        "q:1": job(**fields),
        "q:delayed": Zset({"1": (ADDED + 5000) * 4096}),
        "q:events": Stream([event("added", jobId="1"), event("delayed", jobId="1", delay=str(ADDED + 5000))]),
    }
    return snapshot(keys, now=now)


def test_a_score_that_follows_a_wrong_timestamp_is_not_wrong_itself() -> None:
    later = store({**DELAYED, "timestamp": str(ADDED + 1000)})
    moved = [replace(row, score=(ADDED + 6000) * 4096) for row in later.memberships]
    found = compare(store(DELAYED), replace(later, memberships=tuple(moved)), DEFAULT_RULES)
    assert [place.where for place in found] == ["job.timestamp"]


def test_an_id_that_both_sides_have_keeps_its_name() -> None:
    ids = ["0b5f6a9e-25d0-4d3c-8b0e-0a1f5f0f6a01", "1b5f6a9e-25d0-4d3c-8b0e-0a1f5f0f6a02"]
    both = {f"q:{job_id}": job(name=str(number)) for number, job_id in enumerate(ids)}
    whole = snapshot({**both, "q:wait": ids})
    part = snapshot({f"q:{ids[1]}": job(name="1"), "q:wait": ids[1:]})
    assert [(place.kind, place.key) for place in compare(whole, part, DEFAULT_RULES)] == [("missing-job", "q:<uuid 1>")]


def test_a_text_that_mentions_the_other_sides_prefix_is_the_same_text() -> None:
    left, right = (snapshot({"q:1": job(data='"p:q:1"')}, prefix=prefix) for prefix in ("p", "other"))
    assert compare(left, right, DEFAULT_RULES) == []


def test_a_difference_between_equal_values_is_an_error_of_the_kit() -> None:
    with pytest.raises(AssertionError, match=r"job\.atm at q:1"):
        difference("wrong-value", "job.atm", "q:1", "1", "1")
