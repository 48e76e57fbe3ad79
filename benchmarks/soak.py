"""The reference client at work for a long time: a producer, a worker and an event reader, whose connections are cut.

    python -m benchmarks.soak [--minutes 60] [--tls | --redis cluster] [--rate 300] [--concurrency 50] [--cut-every 10]

All three are in this process, on one private Redis: with `--tls` one whose clients speak TLS, with `--redis cluster` a
cluster (`--redis` takes the settings of `run`). Every few seconds Redis ends all connections. Some jobs are delayed,
some fail once. Exit code 0 if each job has completed exactly once by the count of Redis itself, nothing is left in the
queue, and the memory of the process did not grow: the medians of its second and last fifth differ by less than 8 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
from redis.asyncio import Redis, RedisCluster
from redis.exceptions import RedisError
from rich.console import Console

from benchmarks import sessions
from conformance.problems import UsageProblem
from conformance.reference_impl import Job, Queue, QueueEvents, Worker
from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.connection import CONNECTION_LOST
from conformance.reference_impl.connection.own_commands import client_of
from conformance.servers import open_server
from conformance.servers.binary import any_binary
from conformance.servers.local import free_port
from conformance.servers.opening import private_server
from tests.reference_impl.secure_redis import Certificates, why_no_tls

QUEUE: Final = "q"
PREFIX: Final = "{soak}"
"""In braces, so that a cluster keeps the queue on one node."""

TICK_S: Final = 0.1
MOST_WAITING: Final = 20_000
"""The producer pauses when more jobs wait."""

KEPT_JOBS: Final = 10_000
"""Completed jobs that stay: an `addBulk` whose reply was lost is repeated, which adds no job that is still there."""

LOCK_MS: Final = 5000
STALLED_CHECK_MS: Final = 2000
"""Short: a job whose fetching reply was cut off comes back by the stalled check."""

WITHOUT_PROGRESS_S: Final = 60
LARGEST_GROWTH_MB: Final = 8.0
MEGABYTE: Final = 1_000_000
MOST_ERRORS: Final = 5
_NUMBER: Final = re.compile(r"[0-9a-f-]{12,}[:0-9]*|[0-9]+")


@dataclass
class Tally:
    """Counts of this process. `runs`: by job, how often its processor has returned."""

    runs: bytearray = field(default_factory=bytearray)
    resident_mb: list[float] = field(default_factory=list)
    completed_events: int = 0
    cuts: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def never_run(self) -> int:
        """The number of jobs that no processor has finished."""
        return self.runs.count(0)

    def growth_mb(self) -> float:
        """Median memory of the last fifth of the time minus that of the second, in MB."""
        fifth = max(len(self.resident_mb) // 5, 1)
        # A soak of a moment has no second fifth.
        early = self.resident_mb[fifth : 2 * fifth] or self.resident_mb
        return statistics.median(self.resident_mb[-fifth:]) - statistics.median(early)


class Application:
    """The clients of one queue. All share `connection`, in a form that `Address.of` takes."""

    def __init__(self, connection: dict[str, Any], options: argparse.Namespace) -> None:
        shared: dict[str, Any] = {"connection": connection, "prefix": PREFIX}
        self.tally = Tally()
        self.queue = Queue(QUEUE, shared)
        self.events = QueueEvents(QUEUE, shared)
        self.events.on("completed", self._note_completed)
        self.worker = Worker(
            QUEUE,
            self._process,
            {
                **shared,
                "concurrency": options.concurrency,
                "lockDuration": LOCK_MS,
                "stalledInterval": STALLED_CHECK_MS,
                "maxStalledCount": 1_000_000,
                "metrics": {"maxDataPoints": 1},
                "autorun": False,
            },
        )
        for client in (self.queue, self.events, self.worker):
            client.on("error", self._note_error)

    async def produce(self, rate: int, until: float) -> None:
        """Add this number of jobs per second until a time of the monotonic clock."""
        portion = max(round(rate * TICK_S), 1)
        due = time.monotonic()
        while due < until:
            due += TICK_S
            await asyncio.sleep(max(due - time.monotonic(), 0))
            if len(self.tally.runs) - self.tally.completed_events > MOST_WAITING:
                continue
            first = len(self.tally.runs)
            self.tally.runs.extend(bytes(portion))
            await self._add([_job(number) for number in range(first, first + portion)])

    async def _add(self, jobs: list[dict[str, Any]]) -> None:
        while True:
            with suppress(*CONNECTION_LOST):
                await self.queue.addBulk(jobs)
                return
            await asyncio.sleep(TICK_S)

    async def _process(self, job: Job) -> None:
        await asyncio.sleep(0.001)
        if job.name == "fails-once" and not job.attemptsMade:
            raise RuntimeError("the first attempt")
        number = int(job.known_id.removeprefix("j"))
        self.tally.runs[number] = min(self.tally.runs[number] + 1, 255)

    def _note_completed(self, *_event: Any) -> None:
        self.tally.completed_events += 1

    def _note_error(self, error: BaseException) -> None:
        # Without ids and tokens, of which there are as many as jobs.
        self.tally.errors[_NUMBER.sub("N", f"{type(error).__name__}: {error}")[:100]] += 1

    async def completed(self) -> int:
        """Completions by the count of Redis: the script of a completion counts it."""
        return int((await self.queue.getMetrics("completed"))["meta"]["count"])

    async def left(self) -> dict[str, int]:
        """Jobs that are in the queue and not completed."""
        counts = await self.queue.getJobCounts()
        return {state: count for state, count in counts.items() if count and state != "completed"}


def _job(number: int) -> dict[str, Any]:
    opts: dict[str, Any] = {"jobId": f"j{number}", "removeOnComplete": {"count": KEPT_JOBS}}
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("plain", {}),
        ("delayed", {"delay": 50}),
        ("plain", {"priority": 3}),
        ("fails-once", {"attempts": 3, "backoff": {"type": "fixed", "delay": 20}}),
    ]
    name, special = kinds[number % len(kinds)]
    return {"name": name, "data": {"number": number, "text": "x" * 100}, "opts": {**opts, **special}}


async def cut(client: Redis | RedisCluster, every_s: float, chance: random.Random, tally: Tally) -> None:
    """Let all nodes end all connections but the one that says so, until cancelled."""
    nodes = {"target_nodes": RedisCluster.ALL_NODES} if isinstance(client, RedisCluster) else {}
    untyped: Any = client
    while True:
        await asyncio.sleep(every_s * chance.uniform(0.5, 1.5))
        # The client of the cutting itself has more than one connection in a cluster.
        with suppress(RedisError):
            ended = await untyped.execute_command("CLIENT KILL", "TYPE", "normal", **nodes)
            tally.cuts += sum(ended.values()) if isinstance(ended, dict) else int(ended)


async def sample(tally: Tally, console: Console) -> None:
    """Note the memory of this process every second, and print a line per minute, until cancelled."""
    process, started = psutil.Process(), time.monotonic()
    while True:
        tally.resident_mb.append(process.memory_info().rss / MEGABYTE)
        if len(tally.resident_mb) % 60 == 0:
            share = time.process_time() / (time.monotonic() - started)
            console.print(
                f"{len(tally.resident_mb) // 60} min: {len(tally.runs)} jobs, {tally.completed_events} completed, "
                f"{tally.resident_mb[-1]:.1f} MB, {share:.0%} of a processor, {tally.cuts} connections cut"
            )
        await asyncio.sleep(1)


@asynccontextmanager
async def running(*tasks: asyncio.Task[None]) -> AsyncIterator[None]:
    """Cancel the tasks after the block; the first error of one is raised there."""
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


async def soak(options: argparse.Namespace, connection: dict[str, Any], console: Console) -> bool:
    """Run it, print the result, and return whether nothing was lost and the memory did not grow."""
    application = Application(connection, options)
    tally, chance = application.tally, random.Random(options.seed)
    async with AsyncExitStack() as stack:
        for client in (application.queue, application.events, application.worker):
            await stack.enter_async_context(client)
        cutter = client_of(Address.of(connection))
        stack.push_async_callback(cutter.aclose)
        working = asyncio.create_task(application.worker.run())
        cutting = cut(cutter, options.cut_every, chance, tally)
        async with running(asyncio.create_task(cutting), asyncio.create_task(sample(tally, console))):
            await application.produce(options.rate, time.monotonic() + options.minutes * 60)
        await _until_still(application)
        completed, left = await application.completed(), await application.left()
    await working
    jobs, growth_mb = len(tally.runs), tally.growth_mb()
    console.print(
        f"{jobs} jobs in {options.minutes:g} min, {tally.cuts} connections cut\n"
        f"completed {completed} by the count of Redis, {tally.completed_events} events; never run {tally.never_run}, "
        f"run again {sum(count > 1 for count in tally.runs)}, left {left}\n"
        f"memory {tally.resident_mb[-1]:.1f} MB, grown by {growth_mb:.1f} MB\n"
        f"{tally.errors.total()} errors reported: {dict(tally.errors.most_common(MOST_ERRORS))}",
        markup=False,
    )
    return jobs == completed and not (tally.never_run or left) and growth_mb < LARGEST_GROWTH_MB


async def _until_still(application: Application) -> None:
    """Wait until all jobs have completed, or nothing has happened for a while."""
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < WITHOUT_PROGRESS_S:
        with suppress(*CONNECTION_LOST):
            completed = await application.completed()
            if completed >= len(application.tally.runs) and not await application.left():
                return
            if completed != seen:
                seen, since = completed, time.monotonic()
        await asyncio.sleep(TICK_S)


@contextmanager
def connection_of(options: argparse.Namespace, announce: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Start the Redis for the duration of the block; gives the option `connection` of the clients."""
    if not options.tls:
        with open_server(options.redis, announce=announce) as server:
            nodes = [node.rpartition(":") for node in server.nodes]
            places = [{"host": host, "port": int(port)} for host, _, port in nodes]
            yield {"mode": "cluster", "nodes": places} if server.mode == "cluster" else places[0]
        return
    if why_no_tls():
        raise UsageProblem(f"--tls: {why_no_tls()}")
    with tempfile.TemporaryDirectory() as folder:
        certificates, port = Certificates.make(Path(folder)), free_port(cluster=False)
        settings = {
            "tls-port": str(port),
            "tls-ca-cert-file": str(certificates.ca),
            "tls-cert-file": str(certificates.cert),
            "tls-key-file": str(certificates.key),
        }
        with private_server(any_binary(announce), settings):
            yield {"host": "127.0.0.1", "port": port, "tls": certificates.tls}


def main() -> None:
    """Run it; exits with 1 if something was lost, or the memory grew."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=sessions.positive, default=300, help="jobs per second (%(default)s)")
    parser.add_argument("--concurrency", type=sessions.positive, default=50)
    parser.add_argument("--cut-every", type=float, default=10.0, help="seconds, on average (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--tls", action="store_true", help="a private Redis that speaks TLS")
    where.add_argument("--redis", default=None)
    options = parser.parse_args()
    console = Console(soft_wrap=True)
    # Each of the many outages would be a line.
    logging.getLogger("bullmq").setLevel(logging.CRITICAL)
    with connection_of(options, console.print) as connection:
        sys.exit(not asyncio.run(soak(options, connection, console)))


if __name__ == "__main__":
    sessions.run(main)
