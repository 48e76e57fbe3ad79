"""The cost of a Redis without memory: log lines and processor time of workers whose every fetch is refused.

    python -m benchmarks.full_redis [--seconds 60] [--workers 1]

A private Redis is filled up to its `maxmemory`; the workers of one process then find jobs that they cannot take. Exit
code 1 if a minute costs 20 log lines or 5 % of a processor, or a job does not run once there is memory again.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from contextlib import ExitStack
from typing import Any, Final

from rich.console import Console

from conformance.reference_impl import Job, Queue, QueueEvents, Worker
from conformance.servers.binary import any_binary
from conformance.servers.opening import private_server

MOST_LINES: Final = 20
LARGEST_SHARE: Final = 0.05
JOBS: Final = 10


class LineCounter(logging.Handler):
    """Counts the lines of the text of all records."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter())
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text of a record."""
        self.records.append(self.format(record))


async def measure(options: argparse.Namespace, node: str, counted: LineCounter, console: Console) -> bool:
    """Fill Redis, wait, and return whether the costs are low and the jobs run afterwards."""
    host, _, port = node.rpartition(":")
    shared: dict[str, Any] = {"connection": {"host": host, "port": int(port)}, "prefix": "full"}
    done: set[str] = set()
    all_done = asyncio.Event()

    def process(job: Job) -> None:
        done.add(job.known_id)
        if len(done) == JOBS:
            all_done.set()

    async with Queue("q", shared) as queue, QueueEvents("q", shared):
        await queue.addBulk([{"name": "job", "data": {}} for _ in range(JOBS)])
        await queue.connection.command("CONFIG", "SET", "maxmemory", "1")
        workers = [Worker("q", process, shared) for _ in range(options.workers)]
        used, started = time.process_time(), time.monotonic()
        await asyncio.sleep(options.seconds)
        share = (time.process_time() - used) / (time.monotonic() - started)
        lines = sum(len(text.splitlines()) for text in counted.records)
        records = len(counted.records)
        was_refused = not done
        await queue.connection.command("CONFIG", "SET", "maxmemory", "0")
        async with asyncio.timeout(60):
            await all_done.wait()
        for worker in workers:
            await worker.close()
    per_minute = lines * 60 / max(options.seconds, 60)
    console.print(
        f"{options.workers} workers, {options.seconds:.0f} s on a full Redis: {records} log records of {lines} lines, "
        f"{share:.2%} of a processor"
    )
    for text in counted.records:
        console.print(text.splitlines()[0], markup=False)
    return was_refused and per_minute < MOST_LINES and share < LARGEST_SHARE


def main() -> int:
    """Measure and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    console, counted = Console(soft_wrap=True), LineCounter()
    logging.getLogger("bullmq").addHandler(counted)
    with ExitStack() as stack:
        server = stack.enter_context(private_server(any_binary(console.print), {}))
        node = server.server.nodes[0]
        return 0 if asyncio.run(measure(options, node, counted, console)) else 1


if __name__ == "__main__":
    sys.exit(main())
