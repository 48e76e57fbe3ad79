"""Faults of the client's processes: killed, frozen, or with a clock that is off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from chaos.faults.base import ChaosSystem, fault
from chaos.processes import ClientProcess
from chaos.workload import MAIN, WITHOUT_DUE_TIMES, WorkloadMix
from conformance.driver.ops.queue import IsPaused
from conformance.driver.ops.worker import IsWorkerRunning
from conformance.observe.tap.recording import NotSeen
from conformance.observe.tap.rules import Hold, Trigger, TriggerPhase, Watch
from conformance.servers.connection import wait_until

REACH_MS = 3000
"""A busy worker or producer calls its scripts more often than that."""
A_WHILE_MS = 100
WORKER_AWAY_MS = 300
WORKS_AGAIN_MS = (50, 500)
"""How long a worker that has reconnected works, before it is killed."""
HOUR_MS = 3_600_000
NO_DUE_TIMES = WorkloadMix(
    weights={"plain": 20, "prioritized": 6, "retries": 6, "fails": 3, "slow": 2, "narrow": 6},
    opening=WITHOUT_DUE_TIMES,
)
"""A clock that is an hour ahead would delay a job by an hour, which is correct but takes too long."""
BULKS = WorkloadMix(weights={"bulk": 5, "plain": 1})
FLOWS = WorkloadMix(weights={"flow": 5, "plain": 1})
SLOW_JOBS = WorkloadMix(weights={"slow": 4, "plain": 10})


def victim(system: ChaosSystem) -> ClientProcess:
    """A worker's process, by the seed."""
    return system.random.choice(system.workers).process


def _in_the_middle_of_a_job(system: ChaosSystem) -> ClientProcess:
    """The process of the worker whose job runs longest, as soon as one has run for a while; else of any worker."""

    def runs_for_a_while() -> bool:
        # A worker between two jobs holds no lock, so freezing it would not let one expire.
        return min(worker.running_since_ms for worker in system.workers) < system.recorder.now_ms() - A_WHILE_MS

    if not wait_until(runs_for_a_while, deadline_s=REACH_MS / 1000):
        return victim(system)
    return min(system.workers, key=lambda worker: worker.running_since_ms).process


@contextmanager
def _killed_at(
    system: ChaosSystem, process: ClientProcess, trigger: Trigger, *, resume_ms: float | None = None
) -> Iterator[None]:
    """Kill a process while a command is exactly at this point, and start another one at the end."""
    with system.window(victims=[process], resume_ms=resume_ms):
        # The tap holds the command until the kill: else the command would go on while the signal is in flight.
        with process.tap.when(trigger, Hold()) as barrier:
            with suppress(NotSeen):  # no such command came: a death while idle, or in between, is a fault, too
                barrier.reached.wait(REACH_MS)
            process.kill()
        try:
            yield
        finally:
            process.start()


def _worker_killed_at(system: ChaosSystem, script: str, phase: TriggerPhase) -> AbstractContextManager[None]:
    trigger = Trigger(script=script, phase=phase)
    return _killed_at(system, victim(system), trigger, resume_ms=system.stall_ms)


def _producer_killed_at(system: ChaosSystem, trigger: Trigger) -> AbstractContextManager[None]:
    return _killed_at(system, system.random.choice(system.producers).process, trigger)


@fault("worker.kill", group="workers", hold_ms=200, times=3)
@contextmanager
def kill_worker(system: ChaosSystem) -> Iterator[None]:
    """A worker process dies at a random moment (SIGKILL), and another takes its place."""
    process = victim(system)
    with system.window(victims=[process], resume_ms=system.stall_ms):
        process.kill()
        try:
            yield
            # The others must work without the dead worker for a while.
            system.pause(WORKER_AWAY_MS)
        finally:
            process.start()


@fault("worker.kill-claiming", group="workers", hold_ms=200, times=2)
@contextmanager
def kill_claiming(system: ChaosSystem) -> Iterator[None]:
    """A worker dies after Redis has given it a job and before it receives the reply: before its first renewal."""
    with _worker_killed_at(system, "moveToActive", "after-execute"):
        yield


@fault("worker.kill-finishing", group="workers", hold_ms=200, times=2)
@contextmanager
def kill_finishing(system: ChaosSystem) -> Iterator[None]:
    """A worker dies before its call to finish a job reaches Redis."""
    with _worker_killed_at(system, "moveToFinished", "before-send"):
        yield


@fault("worker.kill-finished", group="workers", hold_ms=200, times=2)
@contextmanager
def kill_finished(system: ChaosSystem) -> Iterator[None]:
    """A worker dies after Redis has finished its job and given it the next, before it receives the reply."""
    with _worker_killed_at(system, "moveToFinished", "after-execute"):
        yield


@fault("worker.kill-renewing", group="workers", hold_ms=200, times=2, mix=SLOW_JOBS)
@contextmanager
def kill_renewing(system: ChaosSystem) -> Iterator[None]:
    """A worker dies in the middle of a job, while it renews its locks."""
    with _worker_killed_at(system, "extendLocks", "before-send"):
        yield


@fault("worker.kill-all", group="workers", hold_ms=500, times=2)
@contextmanager
def kill_all_workers(system: ChaosSystem) -> Iterator[None]:
    """All workers die at once."""
    victims = [worker.process for worker in system.workers]
    with system.window("all workers", victims=victims, resume_ms=system.stall_ms):
        # All are killed before any is started: otherwise they would not all be dead at once.
        for worker in system.workers:
            worker.process.kill()
        try:
            yield
        finally:
            for worker in system.workers:
                worker.process.start()


@fault("worker.kill-reconnected", group="workers", hold_ms=200, times=2)
@contextmanager
def kill_reconnected(system: ChaosSystem) -> Iterator[None]:
    """The connections of a worker are reset; it reconnects, works again, and dies in the middle of that."""
    process = victim(system)
    with system.window(victims=[process], resume_ms=system.stall_ms):
        process.tap.cut(reset=True)
        # A finish shows that it works again; a client that does not reconnect is killed too.
        finish = Trigger(script="moveToFinished", phase="after-execute")
        with suppress(NotSeen), process.tap.when(finish, Watch()) as seen:
            seen.reached.wait(REACH_MS)
        system.pause(system.random.uniform(*WORKS_AGAIN_MS))
        process.kill()
        try:
            yield
        finally:
            process.start()


@fault("worker.freeze", group="workers", hold_ms=4500, times=1)
@contextmanager
def freeze_worker(system: ChaosSystem) -> Iterator[None]:
    """A worker stands still (SIGSTOP) until its locks have expired, and goes on: its late finishes must be refused."""
    process = _in_the_middle_of_a_job(system)
    with system.window(victims=[process], resume_ms=system.stall_ms):
        process.freeze()
        try:
            yield
        finally:
            process.thaw()


@fault("producer.kill", group="producers", hold_ms=200, times=3)
@contextmanager
def kill_producer(system: ChaosSystem) -> Iterator[None]:
    """A producer dies at a random moment, and another takes its place."""
    process = system.random.choice(system.producers).process
    with system.window(victims=[process]):
        process.kill()
        try:
            yield
        finally:
            process.start()


@fault("producer.kill-in-bulk", group="producers", hold_ms=200, times=2, mix=BULKS)
@contextmanager
def kill_in_bulk(system: ChaosSystem) -> Iterator[None]:
    """A producer dies inside addBulk: an unknown part of its jobs exists."""
    # The third of the five jobs, so that some are stored and some are not.
    where = Trigger(phase="after-execute", where=lambda record: (record.script or "").startswith("add"), call=3)
    with _producer_killed_at(system, where):
        yield


@fault("producer.kill-in-flow", group="producers", hold_ms=200, times=2, mix=FLOWS)
@contextmanager
def kill_in_flow(system: ChaosSystem) -> Iterator[None]:
    """A producer dies inside a flow, before its EXEC: no job of the flow may exist."""
    with _producer_killed_at(system, Trigger(command="EXEC", phase="before-send")):
        yield


@fault("producer.kill-after-flow", group="producers", hold_ms=200, times=2, mix=FLOWS)
@contextmanager
def kill_after_flow(system: ChaosSystem) -> Iterator[None]:
    """A producer dies after Redis has stored its flow, before it receives the reply."""
    with _producer_killed_at(system, Trigger(command="EXEC", phase="after-execute")):
        yield


@contextmanager
def _skewed(system: ChaosSystem, process: ClientProcess, steps: tuple[float, ...], handle: str) -> Iterator[None]:
    """Shift a process's clock in steps, one after the other; correct it at the end."""
    # A call that only reads: it takes the new time to the driver and changes nothing.
    tick = IsWorkerRunning() if handle.startswith("worker") else IsPaused()
    # The bounds must allow for the largest error of all steps.
    worst = max(steps, key=abs)
    with system.window(victims=[process], skew_ms=worst, resume_ms=system.stall_ms):
        for step in steps:
            process.set_skew(step, handle, tick)
            # Longer than the time between two renewals (a quarter of 2 s), so that each step meets one.
            system.pause(600)
        try:
            yield
        finally:
            process.reset_clock()


@fault("clock.worker-ahead", group="clocks", hold_ms=1000, times=1)
@contextmanager
def worker_ahead(system: ChaosSystem) -> Iterator[None]:
    """A worker's clock is 3 s ahead: it promotes jobs at most 3 s early."""
    with _skewed(system, victim(system), (3000,), f"worker-{MAIN}"):
        yield


@fault("clock.worker-behind", group="clocks", hold_ms=1000, times=1)
@contextmanager
def worker_behind(system: ChaosSystem) -> Iterator[None]:
    """A worker's clock is 3 s behind."""
    with _skewed(system, victim(system), (-3000,), f"worker-{MAIN}"):
        yield


@fault("clock.producer-ahead", group="clocks", hold_ms=1000, times=1)
@contextmanager
def producer_ahead(system: ChaosSystem) -> Iterator[None]:
    """A producer's clock is 2 s ahead: its delayed jobs are due 2 s later."""
    with _skewed(system, system.producers[0].process, (2000,), f"queue-{MAIN}"):
        yield


@fault("clock.worker-hour-ahead", group="clocks", hold_ms=1000, times=1, mix=NO_DUE_TIMES)
@contextmanager
def worker_hour_ahead(system: ChaosSystem) -> Iterator[None]:
    """A worker's clock is an hour ahead."""
    with _skewed(system, victim(system), (HOUR_MS,), f"worker-{MAIN}"):
        yield


@fault("clock.worker-jumps", group="clocks", hold_ms=500, times=1, mix=NO_DUE_TIMES)
@contextmanager
def worker_jumps(system: ChaosSystem) -> Iterator[None]:
    """A worker's clock jumps an hour ahead, back by two, and then is correct again."""
    with _skewed(system, victim(system), (HOUR_MS, -HOUR_MS), f"worker-{MAIN}"):
        yield
