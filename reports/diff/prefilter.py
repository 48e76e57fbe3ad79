"""Find at once the jobs that are certainly the same on both sides, a bucket of jobs at a time. No Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from conformance.observe.canonical import ALL_RULES, canonicalise
from conformance.observe.canonical_rules import CLOCK_TOLERANCE_MS, PLAUSIBLE_SINCE_MS
from conformance.observe.tables import Job, Snapshot
from conformance.protocol.states import DELAY_FACTOR, JOB_CONTAINERS
from reports.diff.columns import (
    UNKNOWN,
    Flags,
    HashColumn,
    Positions,
    at,
    equal_texts,
    flags,
    holds,
    keys_of,
    positions_in,
    times,
    whole_numbers,
)
from reports.diff.values import DiffSettings, DiffSide
from reports.snapshot.rows import as_text

_STREAM_ID = r"^(?P<ms>[0-9]{1,18})-(?P<number>[0-9]{1,18})$"


def same_events(
    jobs: pa.Array, streams: Sequence[pa.Table], prefixes: Sequence[str], trimmed: Collection[str]
) -> Flags:
    """For each of these jobs (keys) whether its events are certainly the same. `streams`: events of both sides.

    In a queue whose stream was trimmed, events count only where both sides have the first one; a job that has no
    `added` on one of them has therefore nothing that could differ.
    """
    if not any(len(stream) for stream in streams):
        return np.ones(len(jobs), np.bool_)
    left, right = (_JobEvents(jobs, stream, prefix) for stream, prefix in zip(streams, prefixes, strict=True))
    same: Flags = (left.counts == right.counts) & left.plain & right.plain
    same &= _same_in_order(left, right, same)
    forgotten = _is_in_queue(jobs, trimmed) & ~(left.has_beginning & right.has_beginning)
    return same | forgotten


def _is_in_queue(jobs: pa.Array, queues: Collection[str]) -> Flags:
    found = np.zeros(len(jobs), np.bool_)
    for queue in queues:
        found |= flags(pc.starts_with(jobs, queue.encode("utf-8", "surrogateescape") + b":"))
    return found


@dataclass(frozen=True)
class _JobEvents:
    """The events of one side that belong to the jobs."""

    jobs: pa.Array
    events: pa.Table
    prefix: str

    @cached_property
    def _job(self) -> Positions:
        return positions_in(keys_of(self.events), self.jobs)

    @cached_property
    def fields(self) -> HashColumn:
        """Names and values of all events."""
        return HashColumn(self.events.column("fields").combine_chunks())

    @cached_property
    def _name(self) -> pa.Array:
        return self.events.column("name").combine_chunks().view(pa.binary())

    @cached_property
    def counts(self) -> Positions:
        """Events of each job."""
        return np.bincount(self._job[self._job >= 0], minlength=len(self.jobs))

    @cached_property
    def has_beginning(self) -> Flags:
        """Whether a job has the event `added`."""
        return self._jobs_of(flags(pc.equal(self._name, b"added")))

    @cached_property
    def plain(self) -> Flags:
        """Jobs without an event that a rule concerns: one with a time in it, with the prefix, or with an odd id."""
        odd = flags(pc.equal(self._name, b"delayed")) | self.fields.rows_that_mention(f"{self.prefix}:")
        return ~self._jobs_of(odd | (self._id[0] < 0))

    @cached_property
    def _id(self) -> tuple[Positions, Positions]:
        """Both parts of the stream id; -1 where it is not of that form."""
        ids = self.events.column("key").combine_chunks().view(pa.binary()).view(pa.string())
        parts = pc.extract_regex(ids, _STREAM_ID)
        first, second = (
            np.asarray(pc.fill_null(pc.cast(pc.struct_field(parts, [n]), pa.int64()), -1)).astype(np.int64)
            for n in (0, 1)
        )
        return first, second

    def in_order(self, wanted: Flags) -> Positions:
        """The events of the wanted jobs, job by job, each in the order of the stream."""
        chosen = np.flatnonzero(self._job >= 0)
        chosen = chosen[wanted[self._job[chosen]]]
        return chosen[np.lexsort((self._id[1][chosen], self._id[0][chosen], self._job[chosen]))]

    def job_of(self, events: Positions) -> Positions:
        """The job of each of these events."""
        return self._job[events]

    def _jobs_of(self, events: Flags) -> Flags:
        found = np.zeros(len(self.jobs), np.bool_)
        found[self._job[events & (self._job >= 0)]] = True
        return found


def _same_in_order(left: _JobEvents, right: _JobEvents, wanted: Flags) -> Flags:
    """Whether the events of each wanted job, of which both sides have as many, are the same one by one."""
    first, second = left.in_order(wanted), right.in_order(wanted)
    lengths = [np.diff(side.fields.offsets)[events] for side, events in ((left, first), (right, second))]
    other = lengths[0] != lengths[1]
    pairs = [
        _pairs_of(side.fields, events[~other], lengths[0][~other]) for side, events in ((left, first), (right, second))
    ]
    equal = np.ones(len(pairs[0]), np.bool_)
    for column in ("names", "texts"):
        equal &= equal_texts(at(getattr(left.fields, column), pairs[0]), at(getattr(right.fields, column), pairs[1]))
    owner = np.repeat(left.job_of(first[~other]), lengths[0][~other])
    same = np.ones(len(wanted), np.bool_)
    same[left.job_of(first[other])] = False
    same[owner[~equal]] = False
    return same


def _pairs_of(fields: HashColumn, rows: Positions, lengths: Positions) -> Positions:
    """The positions of the pairs of these rows, row by row."""
    ends = np.cumsum(lengths)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    found: Positions = np.repeat(fields.offsets[:-1][rows], lengths) + within
    return found


TEXT_RULES = {"opts": "opts-parsed-json", "parent": "opts-parsed-json", "stacktrace": "stack-trace-text"}
"""Fields whose canonical form depends on nothing but their own text, with the rule that makes it."""


def same_by_rule(field: str, left: pa.Array, right: pa.Array, settings: DiffSettings) -> Flags:
    """Whether the rule of the field makes the same text of both. Each different text is compared once."""
    rules = [rule for rule in settings.rules() if rule.name == TEXT_RULES[field]]
    both_there = flags(pc.and_(pc.is_valid(left), pc.is_valid(right)))
    if not rules or not both_there.any():
        return np.zeros(len(left), np.bool_)
    coded = pa.chunked_array([left, right]).combine_chunks().dictionary_encode()
    forms = _canonical_texts(field, [as_text(text) for text in coded.dictionary.to_pylist()], settings)
    known = {form: number for number, form in enumerate(dict.fromkeys(forms))}
    number_of = np.array([known[form] for form in forms], np.int64)
    codes = np.asarray(pc.fill_null(coded.indices, 0)).astype(np.int64)
    numbers = number_of[codes]
    same: Flags = both_there & (numbers[: len(left)] == numbers[len(left) :])
    return same


def _canonical_texts(field: str, texts: Sequence[str], settings: DiffSettings) -> list[str]:
    jobs = tuple(Job(queue="", id="", fields={field: text}) for text in texts)
    rules = [rule for rule in settings.rules() if rule.name == TEXT_RULES[field]]
    found = canonicalise(Snapshot(prefix="", taken_ms=0, jobs=jobs), rules, settings.context)
    return [job.fields[field] for job in found.jobs]


UNDERSTOOD = frozenset({
    "opts-parsed-json", "own-prefix", "generated-uuids", "lock-token", "lock-ttl", "dedup-ttl", "limiter-ttl",
    "stalled-check-ttl", "stream-ids", "stack-trace-text", "library-version", "worker-clock", "iteration-ids",
    "worker-traces",
})  # fmt: skip
"""Rules that the prefilter was written for. With any other rule, no job is certain."""

MOST_NAMES = 64
"""The most names of fields that are compared; jobs with other fields are left in."""

_TIMES = (b"timestamp", b"processedOn", b"finishedOn")
_ALONE = ("logs", "dependencies")
_TIMED = tuple(container.key.encode() for container in JOB_CONTAINERS if container.score in {"time", "due time"})

Tables = Mapping[str, pa.Table]
Numbers = npt.NDArray[np.float64]
_Members: TypeAlias = "tuple[pa.Array, Numbers, Flags]"


@dataclass(frozen=True)
class BucketSide:
    """One side: its tables, and the jobs among them by key."""

    tables: Tables
    facts: DiffSide

    @cached_property
    def keys(self) -> pa.Array:
        """Keys of all jobs."""
        return keys_of(self.tables["jobs"])

    @cached_property
    def fields(self) -> HashColumn:
        """Their hashes."""
        return HashColumn(self.tables["jobs"].column("fields").combine_chunks())

    def text(self, name: bytes, rows: Positions) -> pa.Array:
        """A field of these jobs."""
        return at(self.fields.texts, self.fields.where(name)[rows])

    def time(self, name: bytes, rows: Positions) -> Positions:
        """A field of these jobs as a time that the server's clock has reached."""
        return times(self.text(name, rows), PLAUSIBLE_SINCE_MS, self.facts.taken_ms + CLOCK_TOLERANCE_MS)


@dataclass(frozen=True)
class Prefilter:
    """Takes out of a bucket the jobs of which rules and comparison would find nothing to say.

    Only the gate's rules and comparison decide what differs. They process one row at a time, which is too slow for
    millions of equal jobs. So this first removes jobs whose texts are byte for byte equal, and whose times have
    on both sides the relation that the rule `worker-clock` requires. Everything unusual (a prefix in a text, a flow, a
    log, a chosen timestamp, a time out of its relation) is left to the comparison. A job that is wrongly left in costs
    time; a job that is wrongly removed would be a bug, and a property test compares the prefilter with the rules.
    `rows`: positions on each side of the jobs that both have.
    """

    left: BucketSide
    right: BucketSide
    settings: DiffSettings

    @cached_property
    def rows(self) -> tuple[Positions, Positions]:
        """The positions on each side of the jobs that both have."""
        found = positions_in(self.left.keys, self.right.keys)
        both = np.flatnonzero(found >= 0)
        return both, found[both]

    @cached_property
    def common(self) -> pa.Array:
        """The keys of these jobs."""
        return self.left.keys.take(pa.array(self.rows[0]))

    @property
    def _sides(self) -> tuple[tuple[BucketSide, Positions], tuple[BucketSide, Positions]]:
        return (self.left, self.rows[0]), (self.right, self.rows[1])

    @cached_property
    def _clock_is_masked(self) -> bool:
        return self.settings.has_rule("worker-clock")

    def certain(self) -> pa.Array:
        """Keys of the jobs that are certainly the same."""
        return self.common.filter(pa.array(self._same))

    @cached_property
    def _same(self) -> Flags:
        """Which of the jobs that both sides have are certainly the same."""
        if not {rule.name for rule in ALL_RULES} <= UNDERSTOOD or not len(self.common):
            return np.zeros(len(self.common), np.bool_)
        same = self._usual() & self._same_fields() & self._same_members()
        same &= same_events(
            self.common,
            [side.tables["events"] for side, _ in self._sides],
            [side.facts.prefix for side, _ in self._sides],
            self.settings.trimmed,
        )
        return same

    def hidden(self) -> Mapping[str, int]:
        """How many values of these jobs differ and are hidden, by rule: texts, times, and scores that follow them."""
        found: Counter[str] = Counter()
        if not self._same.any():
            return found
        for name in {*TEXT_RULES, *(time.decode() for time in _TIMES)}:
            left, right = (side.text(name.encode(), rows) for side, rows in self._sides)
            found[TEXT_RULES.get(name, "worker-clock")] += int((self._same & ~equal_texts(left, right)).sum())
        (_, left_scores, _), (_, right_scores, _) = self._both_members
        found["worker-clock"] += int((self._same & ~_equal_numbers(left_scores, right_scores)).sum())
        return +found

    def _usual(self) -> Flags:
        """Jobs about which no rule knows anything special: no flow, log, scheduler, chosen time, or own prefix."""
        usual = np.ones(len(self.common), np.bool_)
        for side, rows in self._sides:
            for table in _ALONE:
                usual &= positions_in(self.common, keys_of(side.tables[table])) < 0
            usual &= ~side.fields.rows_that_mention(f"{side.facts.prefix}:")[rows]
            usual &= np.bincount(positions_in(side.keys, self.common) + 1, minlength=len(self.common) + 1)[1:] == 1
            usual &= ~holds(self.common, f"{side.facts.prefix}:", ":repeat:")
            usual &= side.fields.where(b"rjk")[rows] < 0
            usual &= ~holds(side.text(b"opts", rows), '"timestamp"', "\\u")
        return usual

    def _same_fields(self) -> Flags:
        names = set(self.left.fields.known) | set(self.right.fields.known)
        compared = set(sorted(names)[:MOST_NAMES])
        same = np.ones(len(self.common), np.bool_)
        for side, rows in self._sides:
            same &= ~side.fields.rows_with_other_names(compared)[rows]
        for name in compared:
            if not (self._clock_is_masked and name in _TIMES):
                same &= self._same_field(name)
        return same & self._same_times() if self._clock_is_masked else same

    def _same_field(self, name: bytes) -> Flags:
        left, right = (side.text(name, rows) for side, rows in self._sides)
        same = equal_texts(left, right)
        if name.decode("utf-8", "replace") in TEXT_RULES and not same.all():
            other = np.flatnonzero(~same)
            same[other] = same_by_rule(
                name.decode(), left.take(pa.array(other)), right.take(pa.array(other)), self.settings
            )
        return same

    def _same_times(self) -> Flags:
        """Whether all times have their relation on both sides, and exist on both or on neither."""
        kept: Flags = np.ones(len(self.common), np.bool_)
        there: list[Flags] = []
        for side, rows in self._sides:
            added, active, finished = (side.time(name, rows) for name in _TIMES)
            has_active, has_finished = (side.fields.where(name)[rows] >= 0 for name in _TIMES[1:])
            since = np.where(has_active, active, added)
            kept &= added != UNKNOWN
            kept &= ~has_active | (active >= added - CLOCK_TOLERANCE_MS) & (active != UNKNOWN)
            kept &= ~has_finished | (finished >= since - CLOCK_TOLERANCE_MS) & (finished != UNKNOWN)
            there.append(np.stack([has_active, has_finished]))
        kept &= (there[0] == there[1]).all(axis=0)
        return kept

    def _same_members(self) -> Flags:
        """Whether each job is in exactly one container, the same on both sides, with a score that means the same."""
        (left, left_scores, one), (right, right_scores, other) = self._both_members
        same = one & other & flags(pc.equal(left, right))
        timed = flags(pc.is_in(left, value_set=pa.array(_TIMED, pa.binary()))) & self._clock_is_masked
        equal = _equal_numbers(left_scores, right_scores)
        return same & np.where(timed, self._scores_follow(left, left_scores, right_scores), equal)

    @cached_property
    def _both_members(self) -> tuple[_Members, _Members]:
        return self._members(self.left), self._members(self.right)

    def _members(self, side: BucketSide) -> _Members:
        """Container and score of each job, and whether it is in just one container."""
        members = side.tables["memberships"]
        job = positions_in(keys_of(members), self.common)
        counts = np.bincount(job[job >= 0], minlength=len(self.common))
        member = np.full(len(self.common), -1, np.int64)
        member[job[job >= 0]] = np.flatnonzero(job >= 0)
        names = at(members.column("name").combine_chunks().view(pa.binary()), member)
        scores = at(members.column("score").combine_chunks(), member)
        return names, np.asarray(pc.fill_null(scores, float("nan"))).astype(np.float64), counts == 1

    def _scores_follow(self, containers: pa.Array, *scores: Numbers) -> Flags:
        """Whether both scores are what the rule makes the same text of: they follow from the times of their own job."""
        follow = np.ones(len(self.common), np.bool_)
        is_finished = flags(pc.is_in(containers, value_set=pa.array([b"completed", b"failed"], pa.binary())))
        is_delayed = flags(pc.equal(containers, b"delayed"))
        for (side, rows), score in zip(self._sides, scores, strict=True):
            added, finished = side.time(b"timestamp", rows), side.time(b"finishedOn", rows)
            delay = whole_numbers(side.text(b"delay", rows))
            due = (added + delay).astype(np.float64) * DELAY_FACTOR
            in_step = (delay != UNKNOWN) & (score >= due) & (score < due + DELAY_FACTOR)
            follow &= np.where(is_finished, score == finished, is_delayed & in_step)
        return follow


def _equal_numbers(left: Numbers, right: Numbers) -> Flags:
    """Whether two columns hold the same number; none equals none."""
    same: Flags = (left == right) | (np.isnan(left) & np.isnan(right))
    return same
