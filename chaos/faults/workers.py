"""Faults of worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from chaos.faults.registry import fault
from chaos.stage import Stage
from chaos.workers import WorkerMember
from chaos.workload import Mix
from conformance.observe.tap.recording import NotSeen
from conformance.observe.tap.rules import Hold, Phase, Trigger
from conformance.servers.waiting import wait_until

REACH_MS = 3000
"""A busy worker calls its scripts more often than that."""
A_WHILE_MS = 100


def victim(stage: Stage) -> WorkerMember:
    """A worker, by the seed."""
    return stage.random.choice(stage.workers)


def in_the_middle_of_a_job(stage: Stage) -> WorkerMember:
    """The worker whose job runs longest, as soon as one has run for a while; if that does not come, any."""

    def goes_on() -> bool:
        return min(each.running_since_ms for each in stage.workers) < stage.recorder.now_ms() - A_WHILE_MS

    if not wait_until(goes_on, deadline_s=REACH_MS / 1000):
        return victim(stage)
    return min(stage.workers, key=lambda each: each.running_since_ms)


@contextmanager
def killed(stage: Stage, name: str, worker: WorkerMember, *, hold_ms: float = 300) -> Iterator[None]:
    """Kill it, and put another process in its place after a while."""
    with stage.window(name, worker.member.name, resume_ms=stage.stall_ms):
        worker.member.kill()
        try:
            yield
            stage.pause(hold_ms)
        finally:
            worker.member.start()


@fault("worker.kill", group="workers", hold_ms=200, times=3)
@contextmanager
def kill(stage: Stage) -> Iterator[None]:
    """A worker process dies at a moment of chance (SIGKILL), and another takes its place."""
    with killed(stage, "worker.kill", victim(stage)):
        yield


@contextmanager
def killed_at(stage: Stage, name: str, script: str, phase: Phase) -> Iterator[None]:
    """Kill a worker while a call of a script is exactly there."""
    worker = victim(stage)
    with stage.window(name, worker.member.name, resume_ms=stage.stall_ms):
        with worker.member.tap.when(Trigger(script=script, phase=phase), Hold()) as barrier:
            with suppress(NotSeen):  # the queue is empty: dying idle is a fault too
                barrier.reached.wait(REACH_MS)
            worker.member.kill()
        try:
            yield
        finally:
            worker.member.start()


@fault("worker.kill-claiming", group="workers", hold_ms=200, times=2)
@contextmanager
def kill_claiming(stage: Stage) -> Iterator[None]:
    """A worker dies when Redis has given it a job and it does not know yet: before its first renewal."""
    with killed_at(stage, "worker.kill-claiming", "moveToActive", "after-execute"):
        yield


@fault("worker.kill-finishing", group="workers", hold_ms=200, times=2)
@contextmanager
def kill_finishing(stage: Stage) -> Iterator[None]:
    """A worker dies while its finish is on the way, which Redis has not seen."""
    with killed_at(stage, "worker.kill-finishing", "moveToFinished", "before-send"):
        yield


@fault("worker.kill-finished", group="workers", hold_ms=200, times=2)
@contextmanager
def kill_finished(stage: Stage) -> Iterator[None]:
    """A worker dies when Redis has finished its job and handed out the next, and it does not know yet."""
    with killed_at(stage, "worker.kill-finished", "moveToFinished", "after-execute"):
        yield


@fault("worker.kill-renewing", group="workers", hold_ms=200, times=2, mix=Mix(weights={"slow": 4, "plain": 10}))
@contextmanager
def kill_renewing(stage: Stage) -> Iterator[None]:
    """A worker dies in the middle of a job, while it renews its locks."""
    with killed_at(stage, "worker.kill-renewing", "extendLocks", "before-send"):
        yield


@fault("worker.kill-all", group="workers", hold_ms=500, times=2)
@contextmanager
def kill_all(stage: Stage) -> Iterator[None]:
    """All workers die at once."""
    with stage.window("worker.kill-all", "all workers", resume_ms=stage.stall_ms):
        for worker in stage.workers:
            worker.member.kill()
        try:
            yield
        finally:
            for worker in stage.workers:
                worker.member.start()


@fault("worker.freeze", group="workers", hold_ms=4500, times=1)
@contextmanager
def freeze(stage: Stage) -> Iterator[None]:
    """A worker stands still (SIGSTOP) until its locks have expired, and goes on: its late finishes must be refused."""
    worker = in_the_middle_of_a_job(stage)
    with stage.window("worker.freeze", worker.member.name, resume_ms=stage.stall_ms):
        worker.member.freeze()
        try:
            yield
        finally:
            worker.member.thaw()
