"""Which jobs with generated ids are the same on both sides: those with the same content. No Spark.

The gate numbers uuids in the order in which they appear, so a missing job would change the number of all later ones.
Between two stores a job is therefore identified by its content: hash, containers, events, logs and place in its flow.
Only jobs with the same content are matched by their order.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from conformance.observe.canonical import canonicalise
from conformance.observe.canonical_rules import GENERATED_UUIDS, UUID, ids_by_appearance, with_uuids_named
from conformance.observe.tables import Snapshot
from reports.diff.hidden_values import HiddenCounts, note_hidden
from reports.diff.values import DiffSettings

Uuids: TypeAlias = Mapping[str, str]
"""For jobs of the actual side, which job of the expected side they are."""

_ANY = "<uuid>"
_KEY_OF_UUID = re.compile(rf".*:({UUID.pattern})", re.IGNORECASE)


def paired_by_content(
    sides: Sequence[Snapshot], settings: DiffSettings, hidden: HiddenCounts, tables: Sequence[str]
) -> list[Snapshot]:
    """Both sides, jobs that are the same with the uuid that the expected side has for them.

    Values that differ only before the pairing are added to `hidden`. Nothing changes without uuids, or where the rule
    about them is switched off.
    """
    has_uuids = any(UUID.fullmatch(job) for side in sides for job in ids_by_appearance(side))
    if not (has_uuids and settings.has_rule(GENERATED_UUIDS.name)):
        return list(sides)
    rules = settings.rules(GENERATED_UUIDS.name)
    canonical = [canonicalise(side, rules, settings.context) for side in sides]
    known = partners(JobContents(canonical[0]), JobContents(canonical[1]))
    named = [sides[0], with_uuids_named(sides[1], known)]
    note_hidden(GENERATED_UUIDS.name, sides, named, hidden, tables)
    return named


@dataclass(frozen=True)
class JobContents:
    """The jobs with uuids of one side, in the order in which they appear. `side`: in canonical form."""

    side: Snapshot

    @cached_property
    def ids(self) -> list[str]:
        """Every job id."""
        return list(dict.fromkeys(ids_by_appearance(self.side)))

    @cached_property
    def uuids(self) -> list[str]:
        """Those that are uuids."""
        return [job for job in self.ids if UUID.fullmatch(job)]

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {job: place for place, job in enumerate(self.ids)}

    def place(self, job: str) -> int:
        """The position of a job in the order of appearance."""
        return self._places[job]

    @cached_property
    def fields(self) -> Mapping[str, Mapping[str, str]]:
        """Hashes, with nothing left of the uuids in them."""
        return {
            row.id: {name: UUID.sub(_ANY, text) for name, text in row.fields.items()}
            for row in self.side.jobs
            if UUID.fullmatch(row.id)
        }

    @cached_property
    def parents(self) -> Mapping[str, str]:
        """The parents that have uuids themselves."""
        found = ((row.id, _KEY_OF_UUID.fullmatch(row.fields.get("parentKey", ""))) for row in self.side.jobs)
        return {job: match[1] for job, match in found if match and match[1] != job}

    @cached_property
    def _children(self) -> Mapping[str, list[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for job, parent in self.parents.items():
            found[parent].append(job)
        return found

    @cached_property
    def _traces(self) -> Mapping[str, list[str]]:
        """The containers and events of a job."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for event in self.side.events:
            found[event.job].append(f"event {event.queue} {event.fields}")
        for member in self.side.memberships:
            found[member.job].append(f"in {member.queue} {member.container}")
        for line in self.side.logs:
            found[line.job].append(f"log {line.queue} {line.text}")
        for child in self.side.dependencies:
            found[child.parent].append(f"child {child.queue} {child.kind} {child.child} {child.value}")
        return {job: sorted(UUID.sub(_ANY, trace) for trace in traces) for job, traces in found.items()}

    def hash(self, job: str) -> Hashable:
        """The fields of a job."""
        return tuple(sorted(self.fields.get(job, {}).items()))

    def alone(self, job: str) -> Hashable:
        """Everything that there is of a job itself."""
        return self.hash(job), tuple(self._traces.get(job, ()))

    @cached_property
    def _families(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for job in reversed(self._from_the_top):
            below = tuple(sorted(found[child] for child in self._children.get(job, ()) if child in found))
            found[job] = hash((self.alone(job), below))
        return found

    def family(self, job: str) -> Hashable:
        """The same, and everything that there is of the jobs below it in its flow."""
        return self._families.get(job)

    @cached_property
    def _from_the_top(self) -> list[str]:
        return [job for generation in self.generations for job in generation]

    @cached_property
    def generations(self) -> list[list[str]]:
        """Jobs without a parent, their children, and so on. Jobs that are their own ancestors come last."""
        left = dict.fromkeys(self.uuids)
        generation = [job for job in left if self.parents.get(job) not in left]
        found: list[list[str]] = []
        while generation:
            found.append(generation)
            for job in generation:
                del left[job]
            generation = [child for job in generation for child in self._children.get(job, ()) if child in left]
        return [*found, list(left)] if left else found


_Likeness: TypeAlias = Callable[[JobContents, str, Uuids], Hashable]
"""A value that two jobs must share to be the same job; None: not usable for this job."""


def _flow(side: JobContents, job: str, names: Uuids) -> Hashable:
    """The job's parent, whose partner has been found before."""
    parent = side.parents.get(job)
    return None if parent is None else names.get(parent, parent)


def _some(*wanted: str) -> _Likeness:
    def likeness(side: JobContents, job: str, names: Uuids) -> Hashable:
        fields = side.fields.get(job)
        return None if fields is None else (_flow(side, job, names), *(fields.get(name) for name in wanted))

    return likeness


_LIKENESSES: tuple[_Likeness, ...] = (
    lambda side, job, names: (_flow(side, job, names), side.family(job)),
    lambda side, job, names: (_flow(side, job, names), side.alone(job)),
    lambda side, job, names: (_flow(side, job, names), side.hash(job)) if job in side.fields else None,
    _some("name", "data", "opts"),
    _some("name", "data"),
    _some("data", "opts"),
    _some("name", "opts"),
)
"""From the strictest to the loosest: what is changed in a job must not hide which one it is."""


def partners(expected: JobContents, actual: JobContents) -> Uuids:
    """The job of the expected side that each one of the actual side is, where there is one.

    A uuid that both sides have is the same job: copies of one store have the same ones, and two stores never do by
    chance.
    """
    there = set(expected.uuids)
    found = {job: job for job in actual.uuids if job in there}
    common = set(found)
    left: tuple[list[str], list[str]] = ([], [])
    for number in range(max(len(expected.generations), len(actual.generations))):
        for side, waiting in zip((expected, actual), left, strict=True):
            generation = side.generations[number] if number < len(side.generations) else []
            waiting += [job for job in generation if job not in common]
        pairs = list(_pairs((expected, actual), left, found))
        found.update((second, first) for first, second in _in_order(expected, actual, pairs, found))
    return found


def _pairs(
    sides: tuple[JobContents, JobContents], left: tuple[list[str], list[str]], names: Uuids
) -> Iterator[tuple[str, str]]:
    """The same job on both sides, of those that are left; they are so no longer."""
    for likeness in _LIKENESSES:
        first = _grouped(sides[0], left[0], {}, likeness)
        second = _grouped(sides[1], left[1], names, likeness)
        pairs = [pair for what, jobs in first.items() for pair in zip(jobs, second.get(what, ()), strict=False)]
        paired = {job for pair in pairs for job in pair}
        for waiting in left:
            waiting[:] = [job for job in waiting if job not in paired]
        yield from pairs


def _in_order(
    expected: JobContents, actual: JobContents, pairs: Iterable[tuple[str, str]], names: Uuids
) -> list[tuple[str, str]]:
    """The same pairs; of jobs that are alike, the first one has the partner that stands first.

    It makes no difference which of them has which partner, but for the order in their list.
    """
    straight = _straightened(pairs, (expected, actual), {})
    turned = _straightened([(second, first) for first, second in straight], (actual, expected), names)
    return [(first, second) for second, first in turned]


def _straightened(
    pairs: Iterable[tuple[str, str]], sides: tuple[JobContents, JobContents], names: Uuids
) -> list[tuple[str, str]]:
    partner = dict(pairs)
    firsts = sorted(partner, key=sides[0].place)
    found: list[tuple[str, str]] = []
    for alike in _grouped(sides[0], firsts, names, _LIKENESSES[0]).values():
        found += zip(alike, sorted((partner[job] for job in alike), key=sides[1].place), strict=True)
    return found


def _grouped(side: JobContents, jobs: Iterable[str], names: Uuids, likeness: _Likeness) -> Mapping[Hashable, list[str]]:
    """Jobs that have this in common, in their order."""
    found: defaultdict[Hashable, list[str]] = defaultdict(list)
    for job in jobs:
        what = likeness(side, job, names)
        if what is not None:
            found[what].append(job)
    return found
