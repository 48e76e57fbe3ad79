"""The differences that stay if the values by which others are judged are the same on both sides. Pure.

A rule may mask a value on one side only because a neighbour differs: the score of a job without `delay`, a timestamp
that an extra option seems to have chosen, a token named after a lock that is missing. Only the neighbour is wrong then.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from conformance.observe.differences import Difference
from conformance.observe.tables import Event, Job, Snapshot

Place: TypeAlias = tuple[str, str, str]
Names: TypeAlias = Mapping[str, str]
"""`QUEUE:ID` in canonical form, by `QUEUE:ID` as read."""

OF_CLOCK = ("job.opts.timestamp", "job.opts.delay")
"""Options that an iteration takes from its timestamp; of other jobs the user chose them."""

LEVELS: tuple[tuple[str, ...], ...] = (
    ("job", "lock", "lock.left", "job.rjk", "meta*", "limiter", "dedup.job", "scheduler.every"),
    ("job.opts*",),
    ("job.timestamp",),
    ("job.delay", "job.processedOn", *OF_CLOCK),
    ("job.finishedOn",),
    ("membership.state", "membership.*.score"),
    ("event.delayed.delay",),
)
"""Locators (patterns), each level judged by those before it. Locators on no level are judged by all of them."""

LAST = len(LEVELS)
_OWN_OPTIONS = ("timestamp", "delay", "prevMillis")
"""Options of a scheduler's iteration that come from the client's clock."""


def level_of(found: Difference) -> int:
    """The level of a difference."""
    # An event is as late as the score of its job; an offset is judged by its period.
    where = "membership.state" if found.kind in {"missing-event", "extra-event"} else found.where
    if where.endswith(".offset"):
        return LAST
    if where in OF_CLOCK and ":repeat:" not in found.key:
        where = "job.opts"
    return max(
        (level for level, places in enumerate(LEVELS) if any(fnmatchcase(where, place) for place in places)),
        default=LAST,
    )


def place(found: Difference) -> Place:
    """The place of a difference. The same text in another spelling is the same place."""
    return found.where.removesuffix(".text"), found.key, found.field


def undisputed(
    found: list[Difference],
    sides: tuple[Snapshot, Snapshot],
    canonical: Sequence[Snapshot],
    compare: Callable[[Snapshot, Snapshot], Iterable[Difference]],
) -> list[Difference]:
    """Those of the differences that stay when the values that they are judged by no longer differ.

    `sides`: as read, expected first; `canonical`: the same by the rules with which `compare` finds differences.
    """
    names = [_names(*both) for both in zip(sides, canonical, strict=True)]
    for level in range(LAST):
        disputed = [difference for difference in found if level_of(difference) == level]
        if not disputed or all(level_of(difference) <= level for difference in found):
            continue
        jobs = {names[0][_id(row.queue, row.id)]: row for row in sides[0].jobs}
        missing, extra = (
            [other for other in disputed if other.kind != kind] for kind in ("extra-event", "missing-event")
        )
        expected = _settled(sides[0], missing, names[0], sides[0], jobs)
        sides = expected, _settled(sides[1], extra, names[1], sides[0], jobs)
        still = {place(difference) for difference in compare(*sides)}
        found = [difference for difference in found if level_of(difference) <= level or place(difference) in still]
    return found


def _id(queue: str, job: str) -> str:
    return f"{queue}:{job}" if job else f"{queue}:events"


def _names(side: Snapshot, canonical: Snapshot) -> Names:
    both = zip(side.jobs, canonical.jobs, strict=True)
    return {_id(row.queue, row.id): _id(other.queue, other.id) for row, other in both}


def _settled(
    side: Snapshot, disputed: Sequence[Difference], names: Names, expected: Snapshot, jobs: Mapping[str, Job]
) -> Snapshot:
    """One side without the rows and times in dispute, and with the options and settings of the expected side.

    `jobs`: those of the expected side, by canonical name.
    """
    places = Counter((difference.where, difference.key) for difference in disputed)

    def is_kept(row: Any, *wheres: str) -> bool:
        owner = _id(row.queue, row.job)
        return not any(places[where, names.get(owner, owner)] for where in ("job", *wheres))

    def is_event_kept(row: Event) -> bool:
        # Of equal events, as many go as there are too many.
        surplus = (f"event.{row.name}", names.get(owner := _id(row.queue, row.job), owner))
        places[surplus] -= 1
        is_undated = row.name == "delayed" and places["event.delayed.delay", surplus[1]] > 0
        return places[surplus] < 0 and not is_undated and is_kept(row)

    wheres = {difference.where.partition(".")[0] for difference in disputed}
    records = {(row.queue, row.id): row.fields for row in expected.schedulers if row.fields}
    owners = {(row.queue, row.id): row.job for row in expected.deduplications}
    values = {row.queue: row.value for row in expected.limiters}
    return replace(
        side,
        jobs=tuple(
            replace(row, fields=_settled_fields(row, jobs.get(name, row), name, places))
            for row in side.jobs
            if not places["job", name := names[_id(row.queue, row.id)]]
        ),
        memberships=tuple(
            row for row in side.memberships if is_kept(row, "membership.state", f"membership.{row.container}.score")
        ),
        locks=tuple(row for row in side.locks if is_kept(row, "lock", "lock.left")),
        events=tuple(row for row in side.events if is_event_kept(row)),
        schedulers=tuple(
            replace(row, fields={**row.fields, "every": record["every"]})
            if row.fields and "every" in (record := records.get((row.queue, row.id), {}))
            else row
            for row in side.schedulers
        ),
        deduplications=tuple(replace(row, job=owners.get((row.queue, row.id), row.job)) for row in side.deduplications),
        metas=expected.metas if "meta" in wheres else side.metas,
        limiters=tuple(replace(row, value=values.get(row.queue, row.value)) for row in side.limiters),
    )


def _settled_fields(row: Job, expected: Job, name: str, places: Mapping[tuple[str, str], int]) -> dict[str, str]:
    """The hash without the times in dispute, with the options of the expected side but the times of its own clock."""
    kept = {field: text for field, text in row.fields.items() if not places.get((f"job.{field}", name))}
    if places.get(("job.rjk", name)) and "rjk" in expected.fields:
        kept["rjk"] = expected.fields["rjk"]
    if not any(key == name and where.startswith("job.opts") for where, key in places):
        return kept
    opts = dict(expected.opts)
    if row.is_iteration:
        opts |= {option: value for option, value in row.opts.items() if option in _OWN_OPTIONS}
        repeats: list[Any] = [side.opts.get("repeat") for side in (expected, row)]
        if all(isinstance(repeat, dict) and "offset" in repeat for repeat in repeats):
            opts["repeat"] = {**repeats[0], "offset": repeats[1]["offset"]}
    return {**kept, "opts": json.dumps(opts)}
