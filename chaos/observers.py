"""The kit's own observers: event streams, backlog, rest, memory, and CPU starvation of the machine."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil
from redis.exceptions import RedisClusterException, RedisError

from chaos.processes import ClientProcess
from chaos.recorder import HistoryRecorder
from chaos.topologies import Topology
from chaos.workload import NARROW, NARROW_CONCURRENCY
from conformance.checkers.histories.end_state import permanently_waiting
from conformance.checkers.histories.evidence import KIT, LATE, REDIS
from conformance.checkers.histories.history import MachineStarved, ResourceSample, StreamEventLine
from conformance.driver.run_queue import RunQueue
from conformance.environment.background import BackgroundThread
from conformance.environment.starvation import STARVED_MS, TICK_S
from conformance.observe.reader import read_snapshot
from conformance.observe.tables import Snapshot
from conformance.protocol.states import LIST_CONTAINERS, UNFINISHED_CONTAINERS
from conformance.servers.connection import Client, wait_until

# Short, so that the observer notices the end of the run soon.
BLOCK_MS = 100
BATCH = 1000
END_OF_MS = 0.999
"""Redis truncates its times to whole ms. With this added, an entry is never ordered before its cause."""
RETRY_S = 0.1
# Four samples a second show how the backlog grows during a fault of a second.
SAMPLE_MS = 250
CATCH_UP_S = 10.0
SLOWEST_DRAIN = 5
"""How many deadlines a drain may take in total, as long as it makes progress."""
# A single observation proves rest, so a short step only shortens the wait.
LOOK_S = 0.05
PERIOD_S = 1.0
LATE_MS = 100
"""A thread that sleeps 50 ms and wakes up this much too late was starved, by the machine or by other threads."""
STARVED_SHARE = 0.7
"""A process that waited for the CPU for this share of a period may lose a lock because of it."""


class QueueObserver(BackgroundThread):
    """Records every entry of the queues' streams, and periodically the number of waiting jobs."""

    def __init__(self, topology: Topology, recorder: HistoryRecorder, prefix: str, queues: tuple[str, ...]) -> None:
        super().__init__()
        self._topology = topology
        self._recorder = recorder
        self._prefix = prefix
        self._queues = queues
        # From the beginning: the streams are created before the observer reads them for the first time.
        self._last = dict.fromkeys(queues, "0-0")
        self._sampled_ms = 0.0

    def last_entry(self, queue: str) -> str:
        """The id of the last recorded entry of a queue's stream."""
        return self._last[queue]

    def catch_up(self) -> bool:
        """Wait until all current entries of the streams are recorded; returns whether that worked in time."""
        with self._topology.connect() as client:
            untyped: Any = client
            # The ends are read first: entries that are added later are not waited for.
            ends = {queue: untyped.xrevrange(self._key(queue), count=1) for queue in self._queues}
        wanted = {queue: entries[0][0].decode() for queue, entries in ends.items() if entries}
        return wait_until(
            lambda: all(_number(self._last[queue]) >= _number(entry) for queue, entry in wanted.items()),
            deadline_s=CATCH_UP_S,
        )

    def _key(self, queue: str) -> str:
        return f"{self._prefix}:{queue}:events"

    def run(self) -> None:
        """Run until stopped."""
        while not self.ended.is_set():
            # Redis is away during many faults, so errors are expected and the observer connects again.
            with suppress(RedisError, RedisClusterException, OSError), self._topology.connect(timeout_s=2.0) as client:
                while not self.ended.is_set():
                    self._read(client)
                    self._sample(client)
            self.ended.wait(RETRY_S)

    def _read(self, client: Client) -> None:
        untyped: Any = client
        # From the last recorded entry, so that nothing is lost or recorded twice after a reconnection.
        streams = {self._key(queue): self._last[queue] for queue in self._queues}
        for key, entries in untyped.xread(streams, count=BATCH, block=BLOCK_MS) or ():
            queue = key.decode().rsplit(":", 2)[1]
            for entry, fields in entries:
                self._record(queue, entry.decode(), fields)

    def _record(self, queue: str, entry: str, raw: dict[bytes, bytes]) -> None:
        fields = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in raw.items()}
        self._last[queue] = entry
        self._recorder.put(
            StreamEventLine(
                # The end of the ms: an event must not seem to come before the call that caused it.
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
            self._recorder.put(ResourceSample(at_ms=now, backlog=backlog(client, self._prefix, self._queues)))


def backlog(client: Client, prefix: str, queues: tuple[str, ...]) -> dict[str, int]:
    """The number of jobs in each unfinished state, over all queues. Raises redis errors."""
    untyped: Any = client
    # Not a transaction: the numbers need not be of one instant. The pipeline of a cluster has no such option.
    pipeline = untyped.pipeline(transaction=False) if not hasattr(client, "get_nodes") else untyped.pipeline()
    for queue in queues:
        for state in UNFINISHED_CONTAINERS:
            length = pipeline.llen if state in LIST_CONTAINERS else pipeline.zcard
            length(f"{prefix}:{queue}:{state}")
    lengths = pipeline.execute()
    return {
        state: total
        for offset, state in enumerate(UNFINISHED_CONTAINERS)
        if (total := sum(int(length) for length in lengths[offset :: len(UNFINISHED_CONTAINERS)]))
    }


def _number(entry: str) -> tuple[int, int]:
    milliseconds, _, sequence = entry.partition("-")
    return int(milliseconds), int(sequence or 0)


@dataclass(frozen=True)
class Quiescence:
    """Whether everything ended in time, and else the last observation."""

    reached: bool
    seen: str = ""


def wait_for_quiescence(
    topology: Topology, prefix: str, queues: tuple[str, ...], running: Callable[[], int], *, deadline_s: float
) -> Quiescence:
    """Wait until no job is in a state from which it could go on, and no processor runs.

    Producers have stopped before this call. Empty containers stay empty then, so a single observation of empty
    containers without a running processor proves rest. `deadline_s` restarts with every progress: a client that drains
    a rate-limited queue slowly is not stuck.
    """
    started_s = time.monotonic()
    ends, fewest = started_s + deadline_s, math.inf
    seen = "nothing could be read"
    # The total limit: a queue in which jobs come and go without an end makes progress for ever.
    while time.monotonic() < min(ends, started_s + SLOWEST_DRAIN * deadline_s):
        try:
            with topology.connect(timeout_s=5.0) as client:
                left = backlog(client, prefix, queues)
                at_rest = not running() and (not left or _waits_permanently(client, prefix, left))
        except (RedisError, RedisClusterException, OSError) as error:
            seen = f"Redis cannot be read: {error}"
        else:
            if at_rest:
                return Quiescence(reached=True)
            # Fewer jobs than ever before is progress; a number that goes up and down is not.
            if (count := sum(left.values())) < fewest:
                ends, fewest = time.monotonic() + deadline_s, count
            seen = ", ".join(f"{state} {count}" for state, count in left.items()) or f"{running()} processors run"
        time.sleep(LOOK_S)
    return Quiescence(reached=False, seen=seen)


def _waits_permanently(client: Client, prefix: str, left: dict[str, int]) -> bool:
    """Whether only parents of failed children remain, which nothing will ever release."""
    if left.keys() != {"waiting-children"}:
        return False
    return left["waiting-children"] == len(permanently_waiting(read_snapshot(client, prefix)))


def final_snapshot(topology: Topology, prefix: str) -> Snapshot:
    """Read all keys under the prefix. Raises EnvironmentProblem if Redis cannot be read."""
    with topology.connect() as client:
        return read_snapshot(client, prefix)


class StarvationMonitor(BackgroundThread):
    """Detects CPU starvation of the machine, so that a client is not blamed for it."""

    def __init__(self, recorder: HistoryRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def run(self) -> None:
        """Run until stopped."""
        last = self._recorder.now_ms()
        while not self.ended.wait(TICK_S):
            now = self._recorder.now_ms()
            late_ms = now - last - TICK_S * 1000
            # Lateness is measured on this thread, so any reason counts: the machine or other threads of the kit.
            if late_ms > LATE_MS:
                self._recorder.put(ResourceSample(at_ms=now, waited_ms={LATE: round(late_ms, 1)}))
            if now - last > STARVED_MS:
                self._recorder.put(MachineStarved(at_ms=now, since_ms=last))
            last = now


class ProcessMonitor(BackgroundThread):
    """Samples memory once a second, and records `starved` when a client may be late because of the machine.

    `pids` is called every time, because faults replace processes.
    """

    def __init__(self, recorder: HistoryRecorder, pids: Callable[[], Mapping[str, int]]) -> None:
        super().__init__()
        self._recorder = recorder
        self._pids = pids
        self._run_queue = RunQueue()

    def run(self) -> None:
        """Run until stopped."""
        last_ms = self._recorder.now_ms()
        while not self.ended.wait(PERIOD_S):
            pids, now_ms = self._pids(), self._recorder.now_ms()
            waited = {
                name: round(self._run_queue.newly_waited_s(pid) * 1000, 1)
                for name, pid in {KIT: os.getpid(), **pids}.items()
            }
            # Not of the kit, whose starvation is recorded by the other monitor.
            for name in pids:
                if waited[name] / (now_ms - last_ms) > STARVED_SHARE:
                    # Every client waits for Redis, and none of them for another client.
                    process = "" if name == REDIS else name
                    self._recorder.put(MachineStarved(at_ms=now_ms, since_ms=last_ms, process=process))
            last_ms = now_ms
            memory = {}
            for name, pid in {KIT: os.getpid(), **pids}.items():
                # A process may have ended since it was listed.
                with suppress(psutil.Error):
                    memory[name] = psutil.Process(pid).memory_info().rss
            self._recorder.put(ResourceSample(at_ms=self._recorder.now_ms(), memory=memory, waited_ms=waited))


def set_limits(topology: Topology, prefix: str) -> None:
    """Set the global concurrency of the narrow queue, as `Queue.setGlobalConcurrency` does, which some clients lack."""
    with topology.connect() as client:
        client.hset(f"{prefix}:{NARROW}:meta", "concurrency", str(NARROW_CONCURRENCY))


def sample_connections(recorder: HistoryRecorder, processes: Iterable[ClientProcess]) -> dict[str, int]:
    """Record and return the number of open connections of each live process."""
    found = {process.name: len(process.tap.connections()) for process in processes if process.alive}
    recorder.put(ResourceSample(at_ms=recorder.now_ms(), connections=found))
    return found
