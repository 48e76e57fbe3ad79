"""The workers of a load: drivers of any client, started beside the producers, and told to follow each job's steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from conformance.driver.ops.lifecycle import Close, Open
from conformance.driver.transports import ChildProcess
from conformance.problems import EnvironmentProblem
from reports.load.result import WAITING
from reports.load.target import Launched, Target

CLOSE_DEADLINE_MS = 30_000
LOOK_EVERY_S = 0.2

IDLE_LOOKS = 2
"""Looks one after the other in which nothing was left to do."""

Counts = Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Crew:
    """So many processes of one client, each with a worker of this concurrency for every queue."""

    client: Launched
    processes: int = 1
    concurrency: int = 100


@contextmanager
def fleet(target: Target, crews: Sequence[Crew]) -> Iterator[list[ChildProcess]]:
    """Run workers for the duration of the block; afterwards they are closed as a user would close them."""
    with ExitStack() as stack:
        drivers = [stack.enter_context(_driver(crew)) for crew in crews for _ in range(crew.processes)]
        concurrencies = [crew.concurrency for crew in crews for _ in range(crew.processes)]
        for driver, concurrency in zip(drivers, concurrencies, strict=True):
            _open_workers(driver, target, concurrency)
        yield drivers
        for driver in drivers:
            for queue in target.workload.queue_names:
                driver.call(Close(), handle=f"worker-{queue}", deadline_ms=CLOSE_DEADLINE_MS)


@contextmanager
def _driver(crew: Crew) -> Iterator[ChildProcess]:
    driver = ChildProcess.start(crew.client.command, seed=0, env=crew.client.environment)
    try:
        yield driver
    finally:
        driver.close()


def _open_workers(driver: ChildProcess, target: Target, concurrency: int) -> None:
    for queue in target.workload.queue_names:
        worker = Open(
            role="worker",
            queue=queue,
            prefix=target.prefix,
            redis=target.address.for_drivers,
            processor="steps",
            options={"concurrency": concurrency},
        )
        driver.call(worker, handle=f"worker-{queue}", deadline_ms=CLOSE_DEADLINE_MS)


def wait_for_end(
    look: Callable[[], Counts], drivers: Sequence[ChildProcess], *, patience_s: float, told: Callable[[Counts], None]
) -> None:
    """Wait until no job is left that somebody has to work on; `told` gets every look.

    `patience_s`: how long nothing may happen. Raises DriverBroken for a worker that died, EnvironmentProblem when
    nothing happens any more.
    """
    last: Counts = {}
    since = time.monotonic()
    idle = 0
    while True:
        counts = look()
        told(counts)
        # A look is not of one instant: a job may change its container between two replies.
        idle = 0 if any(counts.get(container) for container in WAITING) else idle + 1
        if idle == IDLE_LOOKS:
            return
        for driver in drivers:
            if not driver.alive:
                driver.call(Close(), handle="none", deadline_ms=1000)
        if counts != last:
            last, since = counts, time.monotonic()
        elif time.monotonic() - since > patience_s:
            shown = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
            raise EnvironmentProblem(
                f"the workers have done nothing for {patience_s:g} s; left: {shown}", hint="look at the workers' logs"
            )
        time.sleep(LOOK_EVERY_S)
