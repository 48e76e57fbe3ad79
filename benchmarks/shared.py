"""Jobs that Node.js and the reference client work off together, while workers are killed and connections are cut.

    python -m benchmarks.shared [--jobs 1000000] [--workers 2] [--concurrency 50] [--kill-every 5] [--cut-every 3]

One private Redis, `--workers` processes of each client. Every few seconds one of them is killed with SIGKILL and
started again, and all connections of the workers are cut with CLIENT KILL. The events of the queue are counted per
job. Exit code 0 if each job has completed exactly once and nothing is left in the queue, 1 otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console

from benchmarks.peers import NODE, REFERENCE, command_of
from conformance.reference_impl import Queue
from conformance.reference_impl.connection.connection import CONNECTION_LOST, flat_mapping, text
from conformance.servers import open_server

QUEUE: Final = "shared"
PREFIX: Final = "soak"
BATCH: Final = 1000
MOST_WAITING: Final = 20_000
"""Jobs that wait at most: the producer pauses, so that the memory of Redis does not depend on the number of jobs."""

KEPT_EVENTS: Final = 1_000_000
WITHOUT_PROGRESS_S: Final = 240
"""Jobs of a killed worker come back within a minute; a run in which this long none ends is over."""


@dataclass
class Tally:
    """What the events say: completions per job, failures, and results by client."""

    completions: bytearray
    failures: list[str] = field(default_factory=list)
    clients: Counter[str] = field(default_factory=Counter)
    ended: int = 0

    def note(self, fields: dict[str, str]) -> None:
        """Count an event."""
        if fields["event"] == "completed":
            number = int(fields["jobId"])
            self.ended += not self.completions[number]
            self.completions[number] = min(self.completions[number] + 1, 255)
            self.clients[json.loads(fields["returnvalue"])] += 1
        elif fields["event"] == "failed":
            self.failures.append(f"job {fields['jobId']}: {fields.get('failedReason')}")

    def lost(self) -> list[int]:
        """The jobs that never completed."""
        return [number for number in range(1, len(self.completions)) if not self.completions[number]]

    def repeated(self) -> list[int]:
        """The jobs that completed more than once."""
        return [number for number, count in enumerate(self.completions) if count > 1]


class WorkerProcess:
    """One worker of one client, which can be killed and started again."""

    def __init__(self, client: str, address: dict[str, Any], concurrency: int) -> None:
        self._client = client
        self._command = command_of(client, lambda _line: None)
        options = {"queue": QUEUE, "prefix": PREFIX, "concurrency": concurrency, "maxStalledCount": 1000}
        args = {**address, **options, "jobs": sys.maxsize, "result": client}
        self._request = json.dumps({"task": "work", "args": args}) + "\n"
        self._process = self._started()

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Kill the process and start another one."""
        self.kill()
        self._process = self._started()

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self._command.words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self._command.environment},
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write(self._request)
        process.stdin.flush()
        return process


async def produce(queue: Queue, jobs: int) -> None:
    """Add all jobs, in batches; their ids are 1 to `jobs`."""
    for first in range(0, jobs, BATCH):
        while await queue.getJobCountByTypes("waiting") > MOST_WAITING:  # noqa: ASYNC110 - Redis tells no one
            await asyncio.sleep(0.05)
        count = min(BATCH, jobs - first)
        await queue.addBulk([{"name": "job", "data": {}, "opts": {"removeOnComplete": True}} for _ in range(count)])


async def count_events(queue: Queue, reader: Queue, tally: Tally) -> None:
    """Count the events of the queue, from the first on, until cancelled."""
    last = "0-0"
    while True:
        key = queue.toKey("events")
        reply = await reader.connection.command("XREAD", "COUNT", 5000, "BLOCK", 1000, "STREAMS", key, last)
        for entry, fields in reply[0][1] if reply else ():
            last = text(entry)
            tally.note(flat_mapping(fields))


async def disturb(workers: list[WorkerProcess], every_s: float, chance: random.Random, tally: Counter[str]) -> None:
    """Kill a worker and start it again, until cancelled."""
    while True:
        await asyncio.sleep(every_s * chance.uniform(0.5, 1.5))
        worker = chance.choice(workers)
        await asyncio.to_thread(worker.restart)
        tally["kills"] += 1


async def cut(queue: Queue, ours: set[str], every_s: float, chance: random.Random, tally: Counter[str]) -> None:
    """Cut all connections but our own, until cancelled."""
    while True:
        await asyncio.sleep(every_s * chance.uniform(0.5, 1.5))
        for line in await queue.connection.client_lines():
            client = dict(word.partition("=")[::2] for word in line.split(" "))
            if client["id"] not in ours:
                tally["cuts"] += int(await queue.connection.command("CLIENT", "KILL", "ID", client["id"]))


async def share(options: argparse.Namespace, node: str, console: Console) -> bool:
    """Run it, print the result, and return whether each job completed exactly once."""
    host, _, port = node.rpartition(":")
    address = {"host": host, "port": int(port)}
    client_options: dict[str, Any] = {"connection": address, "prefix": PREFIX}
    tally, disturbances = Tally(bytearray(options.jobs + 1)), Counter[str]()
    started = time.monotonic()
    async with (
        Queue(QUEUE, {**client_options, "streams": {"events": {"maxLen": KEPT_EVENTS}}}) as queue,
        Queue(QUEUE, {**client_options, "skipMetasUpdate": True}) as reader,
    ):
        ours = {text(await opened.connection.command("CLIENT", "ID")) for opened in (queue, reader)}
        with ExitStack() as stack:
            names = [REFERENCE, NODE] * options.workers
            workers = [WorkerProcess(name, address, options.concurrency) for name in names]
            for worker in workers:
                stack.callback(worker.kill)
            chance = random.Random(options.seed)
            tasks = [
                asyncio.create_task(produce(queue, options.jobs)),
                asyncio.create_task(count_events(queue, reader, tally)),
                asyncio.create_task(disturb(workers, options.kill_every, chance, disturbances)),
                asyncio.create_task(cut(queue, ours, options.cut_every, chance, disturbances)),
            ]
            try:
                await _until_ended(tally, options.jobs, tasks, console)
                left = {state: count for state, count in (await queue.getJobCounts()).items() if count}
            finally:
                for task in tasks:
                    task.cancel()
                    with suppress(asyncio.CancelledError, *CONNECTION_LOST):
                        await task
    lost, repeated = tally.lost(), tally.repeated()
    console.print(
        f"{options.jobs} jobs in {time.monotonic() - started:.0f} s, {disturbances['kills']} kills, "
        f"{disturbances['cuts']} cut connections; completed by {dict(tally.clients)}; lost {len(lost)} {lost[:5]}, "
        f"completed twice {len(repeated)} {repeated[:5]}, failed {len(tally.failures)} {tally.failures[:3]}, "
        f"left {left}"
    )
    return not (lost or repeated or tally.failures or left)


async def _until_ended(tally: Tally, jobs: int, tasks: list[asyncio.Task[None]], console: Console) -> None:
    seen, since = -1, time.monotonic()
    while tally.ended < jobs and time.monotonic() - since < WITHOUT_PROGRESS_S:
        for task in tasks:
            if task.done():
                task.result()
        if tally.ended != seen:
            if tally.ended // (jobs // 10 or 1) != seen // (jobs // 10 or 1):
                console.print(f"{tally.ended} of {jobs} have completed")
            seen, since = tally.ended, time.monotonic()
        await asyncio.sleep(0.5)
    # A second completion of the last jobs would come within moments.
    await asyncio.sleep(2)


def main() -> int:
    """Run it and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2, help="processes of each client")
    parser.add_argument("--concurrency", type=int, default=50)
    parser.add_argument("--kill-every", type=float, default=5.0, help="seconds, on average")
    parser.add_argument("--cut-every", type=float, default=3.0, help="seconds, on average")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--redis", default=None)
    options = parser.parse_args()
    console = Console(soft_wrap=True)
    with open_server(options.redis, announce=console.print) as server:
        return 0 if asyncio.run(share(options, server.nodes[0], console)) else 1


if __name__ == "__main__":
    sys.exit(main())
