"""Clocks that are off: of one client, while all others and Redis are right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chaos.faults.registry import fault
from chaos.members import Member
from chaos.stage import Stage
from chaos.workload import MAIN, Mix
from conformance.driver.ops.queue import IsPaused
from conformance.driver.ops.worker import IsWorkerRunning

HOUR_MS = 3_600_000
NO_DUE_TIMES = Mix(weights={"plain": 20, "prioritized": 6, "retries": 6, "fails": 3, "slow": 2, "narrow": 6})
"""A clock that is an hour ahead would delay a job by an hour, which is right and takes too long."""


@contextmanager
def skewed(stage: Stage, name: str, member: Member, steps: tuple[float, ...], handle: str) -> Iterator[None]:
    """Set a member's clock off, in steps one after the other; right it at the end."""
    tick = IsWorkerRunning() if handle.startswith("worker") else IsPaused()
    worst = max(steps, key=abs)
    with stage.window(name, member.name, skew_ms=worst, resume_ms=stage.stall_ms):
        for step in steps:
            member.set_skew(step, handle, tick)
            stage.pause(600)
        try:
            yield
        finally:
            member.set_right()


def _worker(stage: Stage) -> Member:
    return stage.random.choice(stage.workers).member


@fault("clock.worker-ahead", group="clocks", hold_ms=1000, times=1)
@contextmanager
def worker_ahead(stage: Stage) -> Iterator[None]:
    """A worker's clock is 3 s ahead: it promotes early by as much, and no more."""
    with skewed(stage, "clock.ahead", _worker(stage), (3000,), f"worker-{MAIN}"):
        yield


@fault("clock.worker-behind", group="clocks", hold_ms=1000, times=1)
@contextmanager
def worker_behind(stage: Stage) -> Iterator[None]:
    """A worker's clock is 3 s behind."""
    with skewed(stage, "clock.behind", _worker(stage), (-3000,), f"worker-{MAIN}"):
        yield


@fault("clock.producer-ahead", group="clocks", hold_ms=1000, times=1)
@contextmanager
def producer_ahead(stage: Stage) -> Iterator[None]:
    """A producer's clock is 2 s ahead: its delayed jobs are due later by as much."""
    with skewed(stage, "clock.ahead", stage.producers[0].member, (2000,), f"queue-{MAIN}"):
        yield


@fault("clock.worker-hour-ahead", group="clocks", hold_ms=1000, times=1, mix=NO_DUE_TIMES)
@contextmanager
def worker_hour_ahead(stage: Stage) -> Iterator[None]:
    """A worker's clock is an hour ahead."""
    with skewed(stage, "clock.ahead", _worker(stage), (HOUR_MS,), f"worker-{MAIN}"):
        yield


@fault("clock.worker-jumps", group="clocks", hold_ms=500, times=1, mix=NO_DUE_TIMES)
@contextmanager
def worker_jumps(stage: Stage) -> Iterator[None]:
    """A worker's clock jumps an hour ahead, back by two, and then is right again."""
    with skewed(stage, "clock.jumps", _worker(stage), (HOUR_MS, -HOUR_MS), f"worker-{MAIN}"):
        yield
