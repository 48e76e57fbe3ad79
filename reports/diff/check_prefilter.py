"""Find the jobs of one store that certainly pass every check, a bucket of jobs at a time. No Spark."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conformance.checkers.jobs import CLOCK_TOLERANCE_MS, REQUIRED
from conformance.protocol.keys import WAITING_CHILDREN
from conformance.protocol.states import DELAY_FACTOR, PRIORITY_FACTOR, STATE_CONTAINERS
from reports.diff.columns import UNKNOWN, Flags, Positions, at, flags, holds, keys_of, positions_in, whole_numbers
from reports.diff.prefilter import BucketSide, Numbers

ADDED_TOLERANCE_MS = 60_000
"""How far a job's timestamp may be from when Redis took its event `added`: other clocks, large batches."""

_FINISHED = {b"completed": b"returnvalue", b"failed": b"failedReason"}
_JSON_FIELDS = {b"data": b"", b"opts": b"{", b"returnvalue": b"", b"progress": b"", b"stacktrace": b"["}
"""Fields that hold JSON, and the first character if it must be an object or an array."""

_SET_APART = (b"parent", b"parentKey", b"rjk")
_ALONE = ("logs", "dependencies")


@dataclass(frozen=True)
class CheckPrefilter:
    """The jobs of a bucket that the gate's checks would have nothing to say of.

    The checks are slow because they process one row at a time. This removes jobs that certainly pass all checks, and
    never reports a failure itself. Jobs with flows, iterations, logs or chosen timestamps are left to the checks.
    """

    side: BucketSide

    def keys(self) -> pa.Array:
        """Keys of the jobs that are certainly in order."""
        if not len(self.side.keys):
            return self.side.keys
        sound = self._usual() & self._whole() & self._times_in_order() & self._where_it_says() & self._json()
        return self.side.keys.filter(pa.array(sound & self._added_in_time()))

    @cached_property
    def _rows(self) -> Positions:
        return np.arange(len(self.side.keys))

    def _has(self, name: bytes) -> Flags:
        return self.side.fields.where(name) >= 0

    def _usual(self) -> Flags:
        side = self.side
        usual: Flags = np.bincount(positions_in(side.keys, side.keys), minlength=len(side.keys)) == 1
        for table in _ALONE:
            usual &= positions_in(side.keys, keys_of(side.tables[table])) < 0
        for name in _SET_APART:
            usual &= ~self._has(name)
        return usual & ~holds(side.text(b"opts", self._rows), '"timestamp"', "\\u")

    def _whole(self) -> Flags:
        """All fields are there, and the numbers among them are numbers."""
        whole = np.ones(len(self._rows), np.bool_)
        for field in REQUIRED:
            whole &= self._has(field.encode())
        for name in (b"delay", b"priority"):
            whole &= self._number(name) != UNKNOWN
        counts = {name: np.where(self._has(name), self._number(name), 0) for name in (b"ats", b"atm", b"stc")}
        for number in counts.values():
            whole &= number != UNKNOWN
        return whole & (counts[b"atm"] <= counts[b"ats"])

    def _number(self, name: bytes) -> Positions:
        return whole_numbers(self.side.text(name, self._rows))

    @cached_property
    def _times(self) -> tuple[Positions, Positions, Positions]:
        added, active, finished = (
            self.side.time(name, self._rows) for name in (b"timestamp", b"processedOn", b"finishedOn")
        )
        return added, active, finished

    def _times_in_order(self) -> Flags:
        added, active, finished = self._times
        has_active, has_finished = self._has(b"processedOn"), self._has(b"finishedOn")
        since = np.where(has_active, active, added)
        good: Flags = added != UNKNOWN
        good &= ~has_active | ((active != UNKNOWN) & (active >= added - CLOCK_TOLERANCE_MS))
        good &= ~has_finished | ((finished != UNKNOWN) & (finished >= since - CLOCK_TOLERANCE_MS))
        return good

    def _where_it_says(self) -> Flags:
        """The job is in one container, has the fields that belong to it, and the score that follows from them."""
        container, score, alone = self._members()
        is_finished = np.zeros(len(self._rows), np.bool_)
        # A parent waits for something only together with its children, which stay in.
        good = alone & ~flags(pc.equal(container, WAITING_CHILDREN.encode()))
        for name, result in _FINISHED.items():
            here = flags(pc.equal(container, name))
            is_finished |= here
            good &= ~here | (self._has(result) & (score == self._times[2]))
        good &= is_finished == self._has(b"finishedOn")
        return good & self._delayed(container, score) & self._prioritized(container, score)

    def _members(self) -> tuple[pa.Array, Numbers, Flags]:
        """Container and score of each job, and whether it is in just one."""
        members = self.side.tables["memberships"]
        names = members.column("name").combine_chunks().view(pa.binary())
        is_state = flags(pc.is_in(names, value_set=pa.array([name.encode() for name in STATE_CONTAINERS], pa.binary())))
        job = np.where(is_state, positions_in(keys_of(members), self.side.keys), -1)
        counts = np.bincount(job[job >= 0], minlength=len(self._rows))
        member = np.full(len(self._rows), -1, np.int64)
        member[job[job >= 0]] = np.flatnonzero(job >= 0)
        scores = at(members.column("score").combine_chunks(), member)
        return at(names, member), np.asarray(pc.fill_null(scores, float("nan"))).astype(np.float64), counts == 1

    def _delayed(self, container: pa.Array, score: Numbers) -> Flags:
        due = (self._times[0] + self._number(b"delay")).astype(np.float64) * DELAY_FACTOR
        return ~flags(pc.equal(container, b"delayed")) | ((score >= due) & (score < due + DELAY_FACTOR))

    def _prioritized(self, container: pa.Array, score: Numbers) -> Flags:
        start = self._number(b"priority").astype(np.float64) * PRIORITY_FACTOR
        return ~flags(pc.equal(container, b"prioritized")) | ((score >= start) & (score < start + PRIORITY_FACTOR))

    def _json(self) -> Flags:
        good = np.ones(len(self._rows), np.bool_)
        for name, beginning in _JSON_FIELDS.items():
            good &= are_json(self.side.text(name, self._rows), beginning)
        return good

    def _added_in_time(self) -> Flags:
        added_ms = added_times(self.side)
        in_time: Flags = (added_ms == UNKNOWN) | (np.abs(added_ms - self._times[0]) <= ADDED_TOLERANCE_MS)
        return in_time


def are_json(texts: pa.Array, beginning: bytes) -> Flags:
    """Whether each text is absent, or JSON with this beginning. Each different text is parsed once."""
    coded = texts.dictionary_encode()
    good = np.array([_is_json(text, beginning) for text in coded.dictionary.to_pylist()], np.bool_)
    codes = np.asarray(pc.fill_null(coded.indices, -1)).astype(np.int64)
    return np.append(good, True)[codes]


def _is_json(text: bytes, beginning: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return text.startswith(beginning)


def added_times(side: BucketSide) -> Positions:
    """When Redis took the first event `added` of each job, Unix ms; UNKNOWN where there is none."""
    found = np.full(len(side.keys), UNKNOWN, np.int64)
    events = side.tables["events"]
    is_added = flags(pc.equal(events.column("name").combine_chunks().view(pa.binary()), b"added"))
    added = events.filter(pa.array(is_added))
    jobs, instants = positions_in(keys_of(added), side.keys), first_parts(added.column("key").combine_chunks())
    for job, instant in zip(jobs[::-1].tolist(), instants[::-1].tolist(), strict=True):
        if job >= 0:
            found[job] = instant
    return found


def first_parts(ids: pa.Array) -> Positions:
    """The ms of stream ids; UNKNOWN for what is none."""
    digits = pc.struct_field(pc.extract_regex(ids, r"^(?P<ms>[0-9]{1,18})-[0-9]{1,18}$"), [0])
    return np.asarray(pc.fill_null(pc.cast(digits, pa.int64()), UNKNOWN)).astype(np.int64)
