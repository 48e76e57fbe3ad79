"""One segment on one prefix: undisturbed, or broken at a point and repaired."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from threading import Thread
from typing import Any, Self

from chaos.crash_points import CrashBench, CrashPoint, CrashResult, segment_named
from chaos.members import Member
from chaos.observer import Observer
from chaos.producers import ids_in
from chaos.recorder import Recorder
from chaos.rest import final_snapshot, wait_for_rest
from chaos.segments import Await, Segment, Step
from chaos.wire import script_lines
from chaos.workers import Clerk, WorkerMember
from chaos.workload import EVENTS_KEPT, MAIN, NARROW
from conformance.checkers.histories.history_checks import check_history
from conformance.checkers.histories.lines import Bounds, Fail, FaultBegan, FaultEnded, Header, Info, Invoke, Ok, Phase
from conformance.driver.connection import DriverBroken, OperationFailed, OperationIndeterminate
from conformance.driver.ops.lifecycle import Reset
from conformance.observe.tables import Snapshot
from conformance.observe.tap.recording import NotSeen
from conformance.observe.tap.rules import Cut, Hold, Trigger
from conformance.servers.waiting import wait_until

QUEUES = (MAIN, NARROW)
LOCK_MS = 600
OPTIONS: Mapping[str, Any] = {
    "lockDuration": LOCK_MS,
    "stalledInterval": 300,
    "maxStalledCount": 10,
    "concurrency": 2,
    "drainDelay": 1,
    "runRetryDelay": 300,
}
REACH_MS = 8000
AWAIT_S = 4.0
DRAIN_S = 25.0
RESUME_MS = 12_000
"""Generous: crash points are about what is lost or doubled; the faults measure how soon work goes on."""


def calls_of(bench: CrashBench, segment: Segment) -> set[str]:
    """The scripts that the client calls in a segment when nothing is wrong."""
    with Attempt(bench, segment) as attempt:
        attempt.work()
        attempt.settle()
        recording = bench.member.tap.recording
        names = {recording.names.of(record.digest) for record in recording.commands()}
        return {name for name in names if name}


def crash(bench: CrashBench, where: CrashPoint) -> CrashResult:
    """Break the client at a point and judge what became of the work. Raises a Problem of the kit itself."""
    with Attempt(bench, segment_named(where.segment)) as attempt:
        reached = attempt.broken_at(where)
        return attempt.judged(where, attempt.settle(), reached=reached)


class Attempt:
    """Use it with `with`: it opens the handles, and closes them."""

    def __init__(self, bench: CrashBench, segment: Segment) -> None:
        self._bench = bench
        self._segment = segment
        self._stack = ExitStack()
        self._recorder = Recorder()
        self._prefix = f"bc{random.SystemRandom().getrandbits(32):08x}"
        self._ended: set[int] = set()
        self._works = False

    def __enter__(self) -> Self:
        """Open the handles in a process that lives."""
        self._begin()
        member = self._bench.member
        self._clerk = self._stack.enter_context(Clerk())
        # Handles have names of their own: nobody of an earlier attempt takes their events away.
        self._worker = WorkerMember(
            member, self._recorder, self._clerk, self._prefix, dict(OPTIONS), queues=QUEUES, label=self._prefix
        )
        self._stack.callback(self._worker.stop)
        member.furnish = self._furnish
        if member.alive:
            member.call(Reset(), None)
            self._furnish(member)
        else:
            member.start()
        member.tap.forget()
        self._observer = self._stack.enter_context(Observer(self._bench.topology, self._recorder, self._prefix, QUEUES))
        return self

    def __exit__(self, *_: object) -> None:
        """Close the handles; a client that cannot do that is ended."""
        member = self._bench.member
        with suppress(DriverBroken):
            try:
                member.call(Reset(), None)
            except (OperationFailed, OperationIndeterminate):
                member.kill()
        self._stack.close()

    def work(self) -> None:
        """Carry out the pieces that have not come to an end yet, with the worker first or last."""
        if self._segment.worker_first:
            self._open_worker()
        for number, piece in enumerate(self._segment.pieces):
            if isinstance(piece, Await):
                self._await(piece)
            elif number not in self._ended:
                self._step(number, piece)
        self._open_worker()

    def broken_at(self, where: CrashPoint) -> bool:
        """Work until the client is broken at the point, and repair it; whether it got there."""
        member, number = self._bench.member, self._recorder.number()
        fault = f"crash.{where.hurt}"
        self._recorder.put(FaultBegan(at_ms=self._recorder.now_ms(), number=number, fault=fault, target=str(where)))
        action = Hold() if where.hurt == "kill" else Cut()
        worker = Thread(target=self._work_until_broken, daemon=True, name="segment")
        with member.tap.when(Trigger(script=where.script, phase=where.point), action) as barrier:
            worker.start()
            reached = True
            try:
                barrier.reached.wait(REACH_MS)
            except NotSeen:
                reached = False
            if where.hurt == "kill":
                member.kill()
        worker.join()
        if not member.alive:
            self._works = False
            member.start()
        self.work()
        self._recorder.put(FaultEnded(at_ms=self._recorder.now_ms(), number=number, fault=fault))
        return reached

    def settle(self) -> Snapshot:
        """Drain, come to rest, and read everything."""
        topology = self._bench.topology
        rest = wait_for_rest(topology, self._prefix, QUEUES, lambda: len(self._worker.running), deadline_s=DRAIN_S)
        name = "quiescent" if rest.reached else "stuck"
        self._recorder.put(Phase(at_ms=self._recorder.now_ms(), name=name, seen=rest.seen))
        self._observer.catch_up()
        return final_snapshot(topology, self._prefix)

    def judged(self, where: CrashPoint, snapshot: Snapshot, *, reached: bool) -> CrashResult:
        """All checks over what was recorded."""
        member = self._bench.member
        for line in script_lines(member, member.tap.recording.commands(), [], self._recorder):
            self._recorder.put(line)
        history = self._recorder.finish()
        return CrashResult(
            where=where, reached=reached, judgements=tuple(check_history(history, snapshot)), history=history
        )

    def _begin(self) -> None:
        bounds = Bounds(lock_ms=LOCK_MS, resume_ms=RESUME_MS, late_ms=RESUME_MS)
        self._recorder.begin(Header(unix_offset_ms=self._recorder.unix_offset_ms, prefix=self._prefix, bounds=bounds))

    def _furnish(self, member: Member) -> None:
        options = {"streams": {"events": {"maxLen": EVENTS_KEPT}}}
        member.open("queue", "queue", MAIN, self._prefix, options=options)
        member.open("children", "queue", NARROW, self._prefix, options=options)
        member.open("flow", "flow", "", self._prefix)

    def _work_until_broken(self) -> None:
        with suppress(DriverBroken, OperationFailed, OperationIndeterminate):
            self.work()

    def _open_worker(self) -> None:
        if not self._works:
            self._worker.furnish(self._bench.member)
            self._works = True

    def _step(self, number: int, step: Step) -> None:
        """One call. It has come to its end unless nobody knows, and then it is asked for again, unless it adds jobs."""
        call, now, put = self._recorder.number(), self._recorder.now_ms, self._recorder.put
        common: dict[str, Any] = {"process": "client", "call": call}
        name = type(step.op).op
        put(Invoke(at_ms=now(), op=name, jobs=list(step.jobs), args={"queue": MAIN}, **common))
        if step.jobs:
            self._ended.add(number)
        try:
            answer = self._bench.member.call(step.op, step.handle)
        except OperationFailed as error:
            put(Fail(at_ms=now(), error=str(error), **common))
            self._ended.add(number)
        except OperationIndeterminate as error:
            put(Info(at_ms=now(), error=str(error), **common))
        except DriverBroken as error:
            put(Info(at_ms=now(), error=str(error).splitlines()[0], **common))
            raise
        else:
            put(Ok(at_ms=now(), ids=dict(zip((job.name for job in step.jobs), ids_in(answer), strict=False)), **common))
            self._ended.add(number)

    def _await(self, piece: Await) -> None:
        """Wait for the job, or for the certainty that it will not come: the call that adds it may not have happened."""
        with self._bench.topology.connect() as client:
            untyped: Any = client
            key = f"{self._prefix}:{MAIN}:{piece.container}"
            wait_until(lambda: untyped.zscore(key, piece.job) is not None, deadline_s=AWAIT_S, step_s=0.02)
