"""What can only be seen while a load runs: the backlog over time, and how soon a listener sees a finished job."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from redis.exceptions import RedisError

from conformance.observe.keyspace import LISTS, STATES
from conformance.servers.connection import Client, connect
from reports.load.target import Target
from reports.measure.histograms import Histogram

MOST_POINTS = 400
"""Points of a series that a report keeps."""

LOOK_EVERY_S = 0.25
_FINISHED = {b"completed", b"failed"}


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One look: ms since the start of the load, and members of each container over all queues. `added`: ever."""

    at_ms: int
    counts: dict[str, int]
    added: int


def counts_of(client: Client, target: Target) -> tuple[dict[str, int], int]:
    """Members of each container over all queues of the load, and how many jobs were ever added. Raises redis errors."""
    untyped: Any = client
    bases = [f"{target.prefix}:{queue}:" for queue in target.workload.queue_names]
    pipeline = untyped.pipeline() if hasattr(client, "get_primaries") else untyped.pipeline(transaction=False)
    for base in bases:
        for name in STATES:
            (pipeline.llen if name in LISTS else pipeline.zcard)(base + name)
        pipeline.get(f"{base}id")
    replies = pipeline.execute()
    width = len(STATES) + 1
    by_queue = [replies[start : start + width] for start in range(0, len(replies), width)]
    counts = {name: sum(int(reply[number]) for reply in by_queue) for number, name in enumerate(STATES)}
    return counts, sum(int(reply[-1] or 0) for reply in by_queue)


class Series:
    """Looks at the backlog from time to time."""

    def __init__(self, target: Target) -> None:
        self.points: list[Point] = []
        self.latest: dict[str, int] = {}
        self.added = 0
        self._target = target

    def look(self, client: Client) -> None:
        """Take one look. Raises redis errors."""
        self.latest, self.added = counts_of(client, self._target)
        at_ms = int(time.time() * 1000) - self._target.start_ms
        self.points.append(Point(at_ms=at_ms, counts=self.latest, added=self.added))

    def thinned(self) -> list[Point]:
        """At most MOST_POINTS of the points, evenly chosen, the last one included."""
        step = -(-len(self.points) // MOST_POINTS) or 1
        return [point for number, point in enumerate(reversed(self.points)) if number % step == 0][::-1]


class Listener:
    """Reads the event streams and measures from an entry's own time (the server's clock) to the moment it is here."""

    def __init__(self, target: Target) -> None:
        self.histogram = Histogram()
        self._last: dict[str, str] = {f"{target.prefix}:{queue}:events": "0-0" for queue in target.workload.queue_names}

    def read(self, client: Client) -> None:
        """Take what is new. Raises redis errors."""
        untyped: Any = client
        for key, last in self._last.items():
            for _, entries in untyped.xread({key: last}, count=5000) or ():
                self._take(key, entries)

    def _take(self, key: str, entries: Sequence[tuple[bytes, Mapping[bytes, bytes]]]) -> None:
        now_ms = int(time.time() * 1000)
        for entry, fields in entries:
            if fields.get(b"event") in _FINISHED:
                self.histogram.record(now_ms - int(entry.split(b"-")[0]))
        self._last[key] = entries[-1][0].decode()


@contextmanager
def observing(target: Target) -> Iterator[tuple[Series, Listener]]:
    """Look and listen in the background for the duration of the block, and once more at its end."""
    series, listener, ended = Series(target), Listener(target), threading.Event()

    def work() -> None:
        with connect(target.address) as client:
            while not ended.wait(LOOK_EVERY_S):
                # A Redis that is away for a moment is the producers' business; there is just no point for it.
                try:
                    series.look(client)
                    listener.read(client)
                except RedisError:
                    continue

    thread = threading.Thread(target=work, name="observing", daemon=True)
    thread.start()
    try:
        yield series, listener
    finally:
        ended.set()
        thread.join()
