"""Whether jobs have the same events on both sides, in the same order. No Spark."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reports.diff.columns import Fields, Flags, Positions, at, equal_texts, flags, keys_of, positions_in

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
    left, right = (_Stream(jobs, stream, prefix) for stream, prefix in zip(streams, prefixes, strict=True))
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
class _Stream:
    """The events of one side that belong to the jobs."""

    jobs: pa.Array
    events: pa.Table
    prefix: str

    @cached_property
    def _job(self) -> Positions:
        return positions_in(keys_of(self.events), self.jobs)

    @cached_property
    def fields(self) -> Fields:
        """Names and values of all events."""
        return Fields(self.events.column("fields").combine_chunks())

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
        """Jobs without an event that a rule looks at: one with a time in it, with the prefix, or with an odd id."""
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


def _same_in_order(left: _Stream, right: _Stream, wanted: Flags) -> Flags:
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


def _pairs_of(fields: Fields, rows: Positions, lengths: Positions) -> Positions:
    """Where the pairs of these rows stand, row after row."""
    ends = np.cumsum(lengths)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    found: Positions = np.repeat(fields.offsets[:-1][rows], lengths) + within
    return found
