from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest

from conformance.checkers.live_queues import WatchLimits
from conformance.protocol.keys import QueueKeys
from conformance.servers import RedisInstance, open_server
from conformance.servers.setting import split_node
from reports.watch.judgement import WatchFinding
from reports.watch.reader import ReadingLimits
from reports.watch.session import WatchSession
from reports.watch.target import watch_target

INTERVAL_S = 0.1
DEADLINE_S = 60.0
QUICK = WatchLimits(deaf_ms=1500, growth_ms=2000, growth_jobs=20, stalls=1, settle_ms=500)
READING = ReadingLimits(overdue_ms=500, settle_ms=500)


@pytest.fixture(scope="session")
def server() -> Iterator[RedisInstance]:
    with open_server(None, announce=lambda _: None) as opened:
        yield opened


@dataclass
class Stage:
    """A prefix of its own, workers in processes, and a watch."""

    server: RedisInstance
    prefix: str
    stack: ExitStack

    @cached_property
    def client(self) -> Any:
        return self.stack.enter_context(self.server.connect())

    @property
    def target(self) -> str:
        return f"{self.server.url}#{self.prefix}"

    def keys(self, queue: str) -> QueueKeys:
        return QueueKeys(self.prefix, queue)

    def start_worker(self, queue: str, *, job_ms: int = 0, **options: Any) -> subprocess.Popen[bytes]:
        """Start it, and wait until Redis shows its connection as waiting."""
        port = str(split_node(self.server.nodes[0])[1])
        words = [port, self.prefix, queue, str(job_ms), json.dumps(options)]
        before = len(self.connections(queue))
        worker = subprocess.Popen([sys.executable, "-m", "tests.watch.worker_program", *words])
        self.stack.callback(worker.wait)
        self.stack.callback(worker.kill)
        self.until(lambda: len(self.connections(queue)) > before, "the worker connects")
        if not job_ms:
            self.until(lambda: any("b" in flags for flags in self.connections(queue)), "the worker waits for jobs")
        return worker

    def connections(self, queue: str) -> list[str]:
        """The flags of the connections of all workers of a queue."""
        name = f"{self.prefix}:{base64.b64encode(queue.encode()).decode()}"
        return [
            str(each["flags"])
            for each in self.client.client_list()
            if each["name"] == name or each["name"].startswith(f"{name}:w:")
        ]

    def idle_s(self, worker: str) -> int:
        """For how long no connection of this worker has sent anything, in whole seconds."""
        return min(int(each["idle"]) for each in self.client.client_list() if each["name"].endswith(f":w:{worker}"))

    def until(self, holds: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while not holds():
            assert time.monotonic() < end, f"never: {what}"
            time.sleep(0.02)

    def freeze(self, worker: subprocess.Popen[bytes]) -> None:
        os.kill(worker.pid, signal.SIGSTOP)
        self.stack.callback(os.kill, worker.pid, signal.SIGCONT)

    def add(self, queue: str, number: int = 1, *, marker: bool = True) -> None:
        """Jobs as a client adds them, with or without the marker that wakes a worker."""
        keys, client = self.keys(queue), self.client
        client.hset(keys.key("meta"), mapping={"opts.maxLenEvents": "10000", "version": "bullmq:5.62.0"})
        for _ in range(number):
            job = str(client.incr(keys.key("id")))
            client.hset(keys.key(job), mapping={"name": "n", "data": "{}", "opts": "{}", "timestamp": "1700000000000"})
            client.xadd(keys.key("events"), {"event": "added", "jobId": job})
            client.lpush(keys.key("wait"), job)
        if marker:
            client.zadd(keys.key("marker"), {"0": 0})

    def watch(self, limits: WatchLimits = QUICK, queue: str = "") -> WatchSession:
        session = WatchSession(watch_target(self.target), queue, limits, READING, INTERVAL_S * 1000)
        return self.stack.enter_context(closing(session))

    def finding(self, kind: str, session: WatchSession | None = None) -> WatchFinding:
        """Look until there is one of this kind, and no other kind."""
        session = session or self.watch()
        end, shown = time.monotonic() + DEADLINE_S, []
        while time.monotonic() < end:
            moment = session.look()
            shown = [f"{finding.kind}: {finding.message}" for finding in moment.findings] or [moment.error]
            for finding in moment.findings:
                if finding.kind == kind:
                    return finding
            time.sleep(INTERVAL_S)
        raise AssertionError(f"no finding {kind!r}; the last look showed {shown}")


@pytest.fixture
def stage(server: RedisInstance) -> Iterator[Stage]:
    prefix = server.fresh_prefix()
    with ExitStack() as stack:
        stack.callback(server.remove_prefix, prefix)
        yield Stage(server, prefix, stack)
