"""Reads the event streams while the run goes on, so that what Redis told survives what happens to Redis."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from redis.exceptions import RedisClusterException, RedisError

from chaos.background import Background
from chaos.recorder import Recorder
from chaos.topologies.base import Topology
from conformance.checkers.histories.lines import Event, Sample
from conformance.servers.connection import Client
from conformance.servers.waiting import wait_until

BLOCK_MS = 100
BATCH = 1000
END_OF_MS = 0.999
"""Redis cuts its times off to whole ms. At the end of its ms, an entry never stands before what has caused it."""
RETRY_S = 0.1
SAMPLE_MS = 250
CATCH_UP_S = 10.0
STATES = ("wait", "paused", "active", "delayed", "prioritized", "waiting-children")


class Observer(Background):
    """Records every entry of the queues' streams, and now and then the lengths of what waits."""

    def __init__(self, topology: Topology, recorder: Recorder, prefix: str, queues: tuple[str, ...]) -> None:
        super().__init__()
        self._topology = topology
        self._recorder = recorder
        self._prefix = prefix
        self._queues = queues
        self._last = dict.fromkeys(queues, "0-0")
        self._sampled_ms = 0.0

    def catch_up(self) -> bool:
        """Wait until everything that is in the streams now has been recorded; whether that worked in time."""
        with self._topology.connect() as client:
            untyped: Any = client
            ends = {queue: untyped.xrevrange(self._key(queue), count=1) for queue in self._queues}
        wanted = {queue: entries[0][0].decode() for queue, entries in ends.items() if entries}
        return wait_until(
            lambda: all(_number(self._last[queue]) >= _number(entry) for queue, entry in wanted.items()),
            deadline_s=CATCH_UP_S,
        )

    def _key(self, queue: str) -> str:
        return f"{self._prefix}:{queue}:events"

    def go_on(self) -> None:
        """Work until the end."""
        while not self.ended.is_set():
            with suppress(RedisError, RedisClusterException, OSError), self._topology.connect(timeout_s=2.0) as client:
                while not self.ended.is_set():
                    self._read(client)
                    self._sample(client)
            self.ended.wait(RETRY_S)

    def _read(self, client: Client) -> None:
        untyped: Any = client
        streams = {self._key(queue): self._last[queue] for queue in self._queues}
        for key, entries in untyped.xread(streams, count=BATCH, block=BLOCK_MS) or ():
            queue = key.decode().rsplit(":", 2)[1]
            for entry, fields in entries:
                self._record(queue, entry.decode(), fields)

    def _record(self, queue: str, entry: str, raw: dict[bytes, bytes]) -> None:
        fields = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in raw.items()}
        self._last[queue] = entry
        self._recorder.put(
            Event(
                at_ms=self._recorder.of_unix_ms(int(entry.partition("-")[0]) + END_OF_MS),
                queue=queue,
                entry=entry,
                name=fields.pop("event", ""),
                job=fields.pop("jobId", ""),
                fields=fields,
            )
        )

    def _sample(self, client: Client) -> None:
        now = self._recorder.now_ms()
        if now - self._sampled_ms >= SAMPLE_MS:
            self._sampled_ms = now
            self._recorder.put(Sample(at_ms=now, backlog=backlog(client, self._prefix, self._queues)))


def backlog(client: Client, prefix: str, queues: tuple[str, ...]) -> dict[str, int]:
    """How many jobs are in each state that is no end, over all queues. Raises redis errors."""
    untyped: Any = client
    pipeline = untyped.pipeline(transaction=False) if not hasattr(client, "get_nodes") else untyped.pipeline()
    for queue in queues:
        for state in STATES:
            length = pipeline.llen if state in {"wait", "paused", "active"} else pipeline.zcard
            length(f"{prefix}:{queue}:{state}")
    lengths = pipeline.execute()
    return {
        state: total
        for offset, state in enumerate(STATES)
        if (total := sum(int(length) for length in lengths[offset :: len(STATES)]))
    }


def _number(entry: str) -> tuple[int, int]:
    milliseconds, _, sequence = entry.partition("-")
    return int(milliseconds), int(sequence or 0)
