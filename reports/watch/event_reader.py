"""Counts the events of a queue since the look before, in slices that are bounded in number and in bytes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from redis.exceptions import ResponseError

from conformance.checkers.queue_looks import EventCounts
from conformance.protocol import keys

SLICE = 500
"""Entries of one read."""

SMALLEST_SLICE = 5
"""Entries of one read of a stream whose entries are large: they contain the results of jobs."""

LARGE_SLICE_BYTES = 1_000_000
MOST_ENTRIES = 20_000
MOST_BYTES = 8_000_000
"""The most that one look reads of a queue; then it continues with the newest entry."""


class EventReader:
    """Reads the stream of one queue from look to look."""

    def __init__(self, prefix: str, queue: str) -> None:
        self._key = keys.QueueKeys(prefix, queue).key(keys.EVENTS).encode("utf-8", "surrogateescape")
        self._last = b""
        self._slice = SLICE

    def read(self, client: Any) -> EventCounts:
        """The events since the last call; the first call counts none, and is not complete. Raises redis errors."""
        try:
            return self._read(client)
        except ResponseError as error:
            if not str(error).startswith("WRONGTYPE"):
                raise
            return EventCounts(complete=False)

    def _read(self, client: Any) -> EventCounts:
        newest = _id_of(client.xrevrange(self._key, count=1))
        if not self._last or not newest:
            started, self._last = bool(self._last), newest or b"0-0"
            return EventCounts(complete=started)
        if newest == self._last:
            return EventCounts()
        # Read first: entries that are trimmed meanwhile are noticed by the next look.
        complete = _order(_id_of(client.xrange(self._key, count=1))) <= _order(self._last) or self._last == b"0-0"
        counted: Counter[bytes] = Counter()
        entries = size = 0
        while self._last != newest and entries < MOST_ENTRIES and size < MOST_BYTES:
            found = client.xrange(self._key, min=b"(" + self._last, max=newest, count=self._slice)
            if not found:
                break
            counted.update(fields.get(b"event", b"") for _, fields in found if fields)
            self._last = found[-1][0]
            entries += len(found)
            here = sum(len(value) for _, fields in found if fields for value in fields.values())
            size += here
            if here > LARGE_SLICE_BYTES:
                self._slice = max(SMALLEST_SLICE, self._slice // 4)
        if self._last != newest:
            self._last, complete = newest, False
        return EventCounts(
            active=counted[b"active"], stalled=counted[b"stalled"], added=counted[b"added"], complete=complete
        )


def _id_of(entries: Any) -> bytes:
    return bytes(entries[0][0]) if entries else b""


def _order(entry_id: bytes) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition(b"-")
    return int(milliseconds or 0), int(number or 0)
