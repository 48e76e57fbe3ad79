"""Every script that a client calls, broken at each of its three points: exhaustive and deterministic.

At a point, either the connection is cut or the client's process is killed. Then the client starts (or connects) again
and repeats the calls whose outcome is unknown, except those that add jobs, which might then exist twice. Finally the
queue is drained and all invariants are checked.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any, Literal, Self, TypeAlias

from chaos.clients import ChaosWorker, ProcessorTimer, ids_in
from chaos.observers import (
    ProcessMonitor,
    QueueObserver,
    StarvationMonitor,
    final_snapshot,
    wait_for_quiescence,
)
from chaos.processes import ClientProcess
from chaos.recorder import HistoryRecorder
from chaos.redis_servers import RedisProcess
from chaos.script_calls import script_lines
from chaos.topologies import single
from chaos.workload import EVENTS_KEPT, MAIN, NARROW, SEGMENTS, CrashSegment, SegmentCall, SegmentWait
from conformance.checkers.histories.base import CheckResult
from conformance.checkers.histories.history import (
    Fail,
    FaultEnded,
    FaultStarted,
    HistoryBounds,
    HistoryHeader,
    Info,
    Invoke,
    Ok,
    RunPhase,
)
from conformance.checkers.histories.history_checks import check_history
from conformance.driver.errors import DriverBroken, OperationFailed, OperationIndeterminate, OperationUnsupported
from conformance.driver.ops.lifecycle import Reset
from conformance.environment.clients import Launch
from conformance.environment.prepare import Environment
from conformance.observe.tables import Snapshot
from conformance.observe.tap.recording import NotSeen
from conformance.observe.tap.rules import PHASES, Cut, Hold, Trigger
from conformance.observe.tap.rules import TriggerPhase as CommandPhase
from conformance.servers.connection import wait_until

QUEUES = (MAIN, NARROW)
# Short, so that a killed worker's job comes back within the time for draining.
LOCK_MS = 600
OPTIONS: Mapping[str, Any] = {
    "lockDuration": LOCK_MS,
    "stalledInterval": 300,
    "maxStalledCount": 10,
    "concurrency": 2,
    "drainDelay": 1,
    "runRetryDelay": 300,
}
# Long enough for delays and stalled checks that the segment waits for.
REACH_MS = 8000
AWAIT_S = 4.0
DRAIN_S = 25.0
RESUME_MS = 12_000
"""Generous, because crash points look for lost and duplicated work. The faults measure how soon work goes on."""

Hurt: TypeAlias = Literal["cut", "kill"]


@dataclass(frozen=True, kw_only=True)
class CrashPoint:
    """One cell of the table. `segment`: the part of the work in which it happens."""

    segment: str
    script: str
    point: CommandPhase
    hurt: Hurt

    def __str__(self) -> str:
        """As in the table."""
        return f"{self.script} {self.point} {self.hurt}"


@dataclass(frozen=True, kw_only=True)
class CrashResult:
    """The outcome of a crash point. `reached`: whether the client reached the point at all."""

    where: CrashPoint
    reached: bool
    judgements: tuple[CheckResult, ...]
    why: str = ""
    """Why it was not reached: the calls of the client in this part of the work."""
    lacks: str = ""
    """Operations of this part of the work that the driver does not declare; if there are any, nothing was run."""

    @property
    def failed(self) -> list[CheckResult]:
        """The judgements that count against the client."""
        return [judgement for judgement in self.judgements if judgement.verdict == "fail"]


def points_of(segment: CrashSegment) -> Iterator[CrashPoint]:
    """The crash points of a segment."""
    hurts: tuple[Hurt, ...] = ("cut", "kill") if segment.killed else ("cut",)
    for script in segment.scripts:
        for point in PHASES:
            for hurt in hurts:
                yield CrashPoint(segment=segment.name, script=script, point=point, hurt=hurt)


def segment_named(name: str) -> CrashSegment:
    """A segment by its name. Raises StopIteration if it does not exist."""
    return next(segment for segment in SEGMENTS if segment.name == name)


class CrashBench:
    """Redis, a tap and a driver that many crash points share, each with its own prefix."""

    def __init__(self, launch: Launch, environment: Environment) -> None:
        self._stack = ExitStack()
        self.launch = launch
        self._environment = environment

    def __enter__(self) -> Self:
        """Start Redis and open the tap; the driver starts with the first point."""
        self.topology = self._stack.enter_context(single(RedisProcess(self._environment.redis_program.binary)))
        tap = self._stack.enter_context(self.topology.new_tap(self._environment.scripts))
        # One tap and one process for all points, because starting a driver takes longer than most points.
        self.process = ClientProcess("client", self.launch, tap, mode="single", seed=0)
        self._stack.callback(self.process.close)
        return self

    @property
    def version(self) -> str:
        """Of the client, as it reports itself; empty before its first start."""
        return self.process.connection.ready.client.version if self.process.started else ""

    @property
    def oracle_version(self) -> str:
        """The version of BullMQ to compare against."""
        return self._environment.toolchain.package.version

    def __exit__(self, *_: object) -> None:
        """Stop everything."""
        self._stack.close()


def calls_of(bench: CrashBench, segment: CrashSegment) -> set[str]:
    """The scripts that the client calls in a segment without any fault."""
    with CrashAttempt(bench, segment) as attempt:
        attempt.work()
        attempt.settle()
        recording = bench.process.tap.recording
        names = {recording.names.of(record.digest) for record in recording.commands()}
        return {name for name in names if name}


def crash(bench: CrashBench, where: CrashPoint) -> CrashResult:
    """Break the client at a point and judge the outcome. Raises a Problem if the kit itself fails."""
    with CrashAttempt(bench, segment_named(where.segment)) as attempt:
        lacks = attempt.lacks(where)
        if lacks:
            return CrashResult(where=where, reached=False, judgements=(), lacks=", ".join(lacks))
        reached = attempt.break_at(where)
        return attempt.judge(where, attempt.settle(), reached=reached)


class CrashAttempt:
    """A context manager: it opens the handles, and closes them."""

    def __init__(self, bench: CrashBench, segment: CrashSegment) -> None:
        self._bench = bench
        self._segment = segment
        self._stack = ExitStack()
        self._monitors = ExitStack()
        self._recorder = HistoryRecorder()
        self._prefix = f"bc{random.SystemRandom().getrandbits(32):08x}"
        self._done: set[int] = set()
        self._worker_runs = False

    def __enter__(self) -> Self:
        """Open the handles in a live process. Raises what a call raises."""
        self._begin()
        try:
            self._open()
        except BaseException:
            self._close()
            raise
        return self

    def _open(self) -> None:
        process = self._bench.process
        self._timer = self._stack.enter_context(ProcessorTimer())
        # Every attempt has new names of handles, so that a listener of an earlier attempt does not take its events.
        self._worker = ChaosWorker(
            process, self._recorder, self._timer, self._prefix, dict(OPTIONS), queues=QUEUES, label=self._prefix
        )
        self._stack.callback(self._worker.stop)
        process.open_handles = self._open_handles
        if process.alive:
            # A living process is used again: only its handles are closed.
            process.call(Reset(), None)
            self._open_handles(process)
        else:
            process.start()
        # Commands of the attempt before must not be matched by this one's trigger.
        process.tap.forget()
        self._monitors.enter_context(StarvationMonitor(self._recorder))
        self._monitors.enter_context(ProcessMonitor(self._recorder, self._measured_pids))
        self._observer = self._stack.enter_context(
            QueueObserver(self._bench.topology, self._recorder, self._prefix, QUEUES)
        )

    def __exit__(self, *_: object) -> None:
        """Close the handles; kill the client if it cannot do that."""
        process = self._bench.process
        with suppress(DriverBroken):
            try:
                process.call(Reset(), None)
            except (OperationFailed, OperationIndeterminate):
                process.kill()
        self._close()

    def _close(self) -> None:
        self._monitors.close()
        self._stack.close()

    def _measured_pids(self) -> dict[str, int]:
        process = self._bench.process
        return {process.name: process.pid} if process.alive else {}

    def lacks(self, where: CrashPoint) -> list[str]:
        """The operations that the point needs and that the driver does not declare."""
        calls = (step for step in self._segment.steps if isinstance(step, SegmentCall))
        asked = {type(call.op).op for call in calls if call.only_for in {"", where.script}}
        return sorted(asked.difference(self._bench.process.connection.ready.ops))

    def work(self) -> None:
        """Run the steps that have not ended yet, with the worker first or last."""
        if self._segment.worker_first:
            self._open_worker()
        for number, step in enumerate(self._segment.steps):
            if isinstance(step, SegmentWait):
                self._wait(step)
            elif number not in self._done:
                self._call(number, step)
        # The worker comes last by default, so that the steps find the jobs where they were put.
        self._open_worker()

    def break_at(self, where: CrashPoint) -> bool:
        """Work until the client is broken at the point, and repair it; returns whether the point was reached."""
        process, number = self._bench.process, self._recorder.number()
        fault = f"crash.{where.hurt}"
        # The fault starts before the work: it is in force at an unknown moment of it.
        self._recorder.put(FaultStarted(at_ms=self._recorder.now_ms(), number=number, fault=fault, target=str(where)))
        action = Hold() if where.hurt == "kill" else Cut()
        # In a thread, because the call that is held does not return.
        working = Thread(target=self._work_until_broken, daemon=True, name="segment")
        with process.tap.when(Trigger(script=where.script, phase=where.point), action) as barrier:
            working.start()
            reached = True
            try:
                barrier.reached.wait(REACH_MS)
            except NotSeen:
                reached = False
            # Kill while the tap holds the command: if it went on first, this would be another crash point.
            if where.hurt == "kill":
                process.kill()
        # Waited for: a call in flight would otherwise be repeated while it still runs.
        working.join()
        if not process.alive:
            # The new process has no worker yet.
            self._worker_runs = False
            process.start()
        # Only what is not done is repeated.
        self.work()
        self._recorder.put(FaultEnded(at_ms=self._recorder.now_ms(), number=number, fault=fault))
        return reached

    def settle(self) -> Snapshot:
        """Drain the queues, wait for rest, and read everything."""
        topology = self._bench.topology
        rest = wait_for_quiescence(
            topology, self._prefix, QUEUES, lambda: len(self._worker.running), deadline_s=DRAIN_S
        )
        name = "quiescent" if rest.reached else "stuck"
        self._recorder.put(RunPhase(at_ms=self._recorder.now_ms(), name=name, seen=rest.seen))
        self._observer.catch_up()
        self._monitors.close()  # no line may be recorded after the snapshot
        return final_snapshot(topology, self._prefix)

    def judge(self, where: CrashPoint, snapshot: Snapshot, *, reached: bool) -> CrashResult:
        """Run all checks over the recorded history."""
        process = self._bench.process
        for line in script_lines(process, process.tap.recording.commands(), [], self._recorder):
            self._recorder.put(line)
        judgements = check_history(self._recorder.finish(), snapshot)
        why = "" if reached else self._why_not(where)
        return CrashResult(where=where, reached=reached, judgements=tuple(judgements), why=why)

    def _why_not(self, where: CrashPoint) -> str:
        recording = self._bench.process.tap.recording
        names = [recording.names.of(record.digest) for record in recording.commands()]
        called = ", ".join(sorted({name for name in names if name})) or "no script"
        times = names.count(where.script)
        if times:
            return (
                f"{where.script} was called {times} times, but not within {REACH_MS / 1000:g} s, or refused (NOSCRIPT)"
            )
        return f"in this piece of work ({where.segment}) the client called {called}"

    def _begin(self) -> None:
        bounds = HistoryBounds(lock_ms=LOCK_MS, resume_ms=RESUME_MS, late_ms=RESUME_MS)
        self._recorder.start(
            HistoryHeader(
                bullmq=self._bench.oracle_version,
                unix_offset_ms=self._recorder.unix_offset_ms,
                prefix=self._prefix,
                bounds=bounds,
            )
        )

    def _open_handles(self, process: ClientProcess) -> None:
        options = {"streams": {"events": {"maxLen": EVENTS_KEPT}}}
        process.open("queue", "queue", MAIN, self._prefix, options=options)
        process.open("children", "queue", NARROW, self._prefix, options=options)
        process.open("flow", "flow", "", self._prefix)

    def _work_until_broken(self) -> None:
        with suppress(DriverBroken, OperationFailed, OperationIndeterminate):
            self.work()

    def _open_worker(self) -> None:
        if not self._worker_runs:
            self._worker.open_handles(self._bench.process)
            self._worker_runs = True

    def _call(self, number: int, step: SegmentCall) -> None:
        """Make one call. If its outcome is unknown, it stays to be repeated, unless it adds jobs."""
        call, now, put = self._recorder.number(), self._recorder.now_ms, self._recorder.put
        common: dict[str, Any] = {"process": "client", "call": call}
        name = type(step.op).op
        put(Invoke(at_ms=now(), op=name, jobs=list(step.jobs), args={"queue": MAIN}, **common))
        # Before the call: if it breaks, these jobs may exist already, and must not be added a second time.
        if step.jobs:
            self._done.add(number)
        try:
            answer = self._bench.process.call(step.op, step.handle)
        except OperationFailed as error:
            # A refusal is certain, so the call is not repeated.
            put(Fail(at_ms=now(), error=str(error), **common))
            self._done.add(number)
        except OperationUnsupported as error:
            put(Fail(at_ms=now(), error=str(error), unsupported=True, **common))
            self._done.add(number)
        # The outcome is unknown, so the call stays to be repeated.
        except OperationIndeterminate as error:
            put(Info(at_ms=now(), error=str(error), **common))
        except DriverBroken as error:
            put(Info(at_ms=now(), error=str(error).splitlines()[0], **common))
            raise
        else:
            put(Ok(at_ms=now(), ids=dict(zip((job.name for job in step.jobs), ids_in(answer), strict=False)), **common))
            self._done.add(number)

    def _wait(self, step: SegmentWait) -> None:
        """Wait for the job, or until it is certain that it will not come: the call that adds it may have failed."""
        with self._bench.topology.connect() as client:
            untyped: Any = client
            key = f"{self._prefix}:{MAIN}:{step.container}"
            wait_until(lambda: untyped.zscore(key, step.job) is not None, deadline_s=AWAIT_S, step_s=0.02)
