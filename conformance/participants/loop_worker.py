"""A manual worker that is emulated by the client's own worker loop, for clients without manual workers.

Each claim opens a loop (processor `ask`), which holds its job until the scenario ends it. Just before that the kit
closes the loop, so that it takes no second job. Operations that a loop cannot do, such as renewing a lock with a
foreign token, are done by a manual worker of the oracle with the loop's real token.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import msgspec

from conformance.driver.errors import DriverError, EventTimeout, OperationFailed
from conformance.driver.ops import Op, lifecycle, worker
from conformance.driver.ops.base import Flag, JobView, MaybeJob, Nothing
from conformance.driver.ops.lifecycle import JobEvent
from conformance.findings import Timing
from conformance.observe.tap.recording import CommandRecord
from conformance.participants.caller import Caller
from conformance.participants.expect import Mismatch
from conformance.participants.handles import WorkerHandle
from conformance.participants.pending import Pending
from conformance.participants.redis_view import RedisView
from conformance.participants.transcript import RecordedCall

Answer = TypeVar("Answer")

LOOP_OPERATIONS = frozenset(
    operation.op
    for operation in (
        worker.GetNextJob,
        worker.MoveToCompleted,
        worker.MoveToFailed,
        worker.MoveToDelayed,
        worker.MoveToWait,
        worker.MoveToWaitingChildren,
    )
)
"""The operations of a manual worker that a loop does, depending on the outcome of its processor."""

STEP_BY_STEP = {"concurrency": 1, "skipStalledCheck": True, "skipLockRenewal": True}
"""Options of the loop: a manual worker does no stalled check and no lock renewal by itself."""

HAND_OVER_MS = 8000
"""Limit from the claim in Redis to the call of the processor, and from the end of the job to the end of the loop."""

QUIET_MS = 500
"""If nothing was claimed after this time, there was no job; a blocked command shows that earlier."""

LOOK_EVERY_MS = 10

BLOCKED_S = 0.02
"""A blocking command without a reply after this time is really blocked, and not just on its way."""

UNKNOWN_OPERATION = "conformance.are-you-there"
"""A ping: every driver reports the operation as unsupported, and has by then read the lines before it."""


@dataclass
class JobLoop:
    """A managed worker with at most one job. `name`: the scenario's name of its token."""

    handle: str
    name: str
    job: str = ""
    token: str = ""


class LoopWorker(WorkerHandle):
    """A worker loop that scenarios use like a manual worker."""

    def __init__(self, caller: Caller, queue_name: str, **options: Any) -> None:
        super().__init__(caller, queue_name, caller.register("worker", queue_name, processor="manual", **options))
        self._options = {**options, **STEP_BY_STEP}
        self._loops: list[JobLoop] = []
        self._deciding = threading.Lock()
        caller.used_loop_workers = True

    def call(self, op: Op[Answer], *, deadline_ms: int = 8000) -> Answer:
        """Emulate the operation by a loop if possible; otherwise do it with the loop's real token."""
        match op:
            case worker.GetNextJob():
                return cast("Answer", self._recorded(op, lambda: MaybeJob(job=self._claim(op.token))))
            case lifecycle.Close():
                return cast("Answer", self._recorded(op, self._close))
        loop, ending = self._loop_of(op), self._ending(op)
        if loop is None or ending is None:
            return super().call(cast("Op[Answer]", self._with_real_tokens(op)), deadline_ms=deadline_ms)
        return cast("Answer", self._recorded(op, lambda: self._end(op, loop, ending)))

    def _recorded(self, op: Op[Any], emulate: Callable[[], Any]) -> Any:
        """Emulate an operation; the transcript shows it as one call, although it takes several."""
        name = type(op).op
        self.caller.cancellation.check()
        self.caller.performed.own.add(name)
        try:
            with self.caller.transcript.unrecorded():
                answer = emulate()
        except OperationFailed as failure:
            self.caller.transcript.record(RecordedCall(name, failure.error.code, None, msgspec.to_builtins(op)))
            raise
        self.caller.transcript.record(RecordedCall(name, "ok", msgspec.to_builtins(answer), msgspec.to_builtins(op)))
        return answer

    # Claiming.

    def _claim(self, name: str) -> JobView | None:
        # Before the loop opens: a job that it claims at once must not count as active before.
        claim = ClaimWatch(self.caller, self.redis)
        handle = self.caller.open("worker", self.queue_name, processor="ask", **self._options)
        return self._taken(JobLoop(handle, name), claim)

    def _taken(self, loop: JobLoop, claim: ClaimWatch) -> JobView | None:
        """The job that the loop passes to its processor. Without one, close the loop so that it takes no later job."""
        event = self._next_job(loop, claim)
        if event is None:
            self.caller.call(lifecycle.Close(), handle=loop.handle)
            return None
        loop.job, loop.token = event.job.id, event.token
        self.caller.tokens.learn(event.job.id, loop.name, event.token)
        with self._deciding:
            self._loops.append(loop)
        return event.job

    def _next_job(self, loop: JobLoop, claim: ClaimWatch) -> JobEvent | None:
        deadline = time.monotonic() + HAND_OVER_MS / 1000
        while time.monotonic() < deadline:
            self.caller.cancellation.check()
            try:
                # The event first: a job that was handed over must not be lost to "found nothing".
                event = self.caller.wait_event(loop.handle, names={"job"}, deadline_ms=LOOK_EVERY_MS, where=None)
                return msgspec.convert(event.args, JobEvent)
            except EventTimeout:
                if claim.found_nothing():
                    return None
        raise Mismatch(
            "the worker's loop passes the job to its processor",
            expected=f"within {HAND_OVER_MS} ms",
            actual="no job",
            timing=Timing.of_wait(HAND_OVER_MS),
        )

    # Ending.

    def _ending(self, op: Op[Any]) -> worker.Resolve | None:
        """The outcome for the processor; None if no outcome has this effect."""
        match op:
            case worker.MoveToCompleted():
                return worker.Resolve(job=op.job, outcome="complete", value_raw=op.value_raw)
            case worker.MoveToFailed():
                outcome: worker.Outcome = "unrecoverable" if op.unrecoverable else "fail"
                return worker.Resolve(job=op.job, outcome=outcome, message=op.message)
            case worker.MoveToDelayed():
                return worker.Resolve(job=op.job, outcome="delay", ms=op.timestamp - self.caller.clock.now_ms())
            case worker.MoveToWait():
                return worker.Resolve(job=op.job, outcome="wait")
            case worker.MoveToWaitingChildren() if self.redis.exists(f"{op.job}:dependencies"):
                return worker.Resolve(job=op.job, outcome="waiting-children")
        return None

    def _end(self, op: Op[Any], loop: JobLoop, ending: worker.Resolve) -> Any:
        """End the processor and with it the job. Raises OperationFailed if Redis refused that."""
        with self._deciding:
            # Before the outcome is sent: a second operation on the job must not find the ending loop.
            self._loops.remove(loop)
        following, claim = None, ClaimWatch(self.caller, self.redis)
        if getattr(op, "fetch_next", False):
            self.caller.call(ending, handle=loop.handle)
            # Until the old job has left `active`: the next claim is recognized by what is new there.
            self._wait_for_end_of(loop)
            following = self._taken(JobLoop(loop.handle, loop.name), claim)
        else:
            self._end_with(loop, ending)
        # After the loop has ended, so that the keys show the outcome and not a moment before it.
        self._check_moved(type(op).op, loop)
        if isinstance(op, worker.MoveToWaitingChildren):
            return Flag(value=True)
        return MaybeJob(job=following) if type(op).answer is MaybeJob else Nothing()

    def _end_with(self, loop: JobLoop, ending: worker.Resolve) -> None:
        """End the job and the loop with it."""
        # Close first: a closing worker finishes its job and fetches no other. `Close` must reach the driver before the
        # outcome does, so two pings make sure that the driver has read it and has started on it.
        closing = Pending(
            lambda: self._call_unrecorded(lifecycle.Close(), loop.handle),
            self.caller.transcript,
            self.caller.cancellation,
        )
        for _ in range(2):
            self.caller.driver.call_raw(UNKNOWN_OPERATION, {}, handle=loop.handle)
        self.caller.call(ending, handle=loop.handle)
        closing.result(within_ms=HAND_OVER_MS)

    def _call_unrecorded(self, op: Op[Any], handle: str) -> None:
        with self.caller.transcript.unrecorded():
            self.caller.call(op, handle=handle, deadline_ms=HAND_OVER_MS)

    def _wait_for_end_of(self, loop: JobLoop) -> None:
        deadline = time.monotonic() + HAND_OVER_MS / 1000
        while loop.job in self.redis.elements("active") and time.monotonic() < deadline:
            self.caller.cancellation.sleep(LOOK_EVERY_MS / 1000)

    def _check_moved(self, op: str, loop: JobLoop) -> None:
        """Raise the error that Redis returned to the loop, as read from its keys: a loop does not report errors."""
        if loop.job not in self.redis.elements("active"):
            return
        if not self.redis.exists(loop.job):
            code = "missing-job"
        elif not self.redis.exists(f"{loop.job}:lock"):
            code = "missing-lock"
        else:
            code = "lock-mismatch" if self.redis.string(f"{loop.job}:lock") != loop.name else "other"
        raise OperationFailed(op, DriverError(message="the job is still active", code=code))

    def _close(self) -> Nothing:
        """Close without finishing jobs, as a manual worker does."""
        with self._deciding:
            # Taken under the lock, closed outside it: close may take seconds.
            loops, self._loops = self._loops, []
        for loop in loops:
            self.caller.call(lifecycle.Close(force=True), handle=loop.handle)
        return Nothing()

    # Tokens.

    def _loop_of(self, op: Op[Any]) -> JobLoop | None:
        """The loop that holds the operation's job under the operation's token, if any."""
        wanted = (getattr(op, "job", None), getattr(op, "token", None))
        return next((loop for loop in self._loops if (loop.job, loop.name) == wanted), None)

    def _with_real_tokens(self, op: Op[Any]) -> Op[Any]:
        real = self.caller.tokens.real
        match op:
            case worker.ExtendLocks():
                tokens = [real(job, token) for job, token in zip(op.jobs, op.tokens, strict=True)]
                return msgspec.structs.replace(op, tokens=tokens)
            case _ if hasattr(op, "token") and hasattr(op, "job"):
                return msgspec.structs.replace(op, token=real(op.job, op.token))
        return op


class ClaimWatch:
    """Detects that a loop has asked for a job and got none."""

    def __init__(self, caller: Caller, redis: RedisView) -> None:
        self._caller = caller
        self._redis = redis
        self._before = frozenset(self._redis.elements("active"))
        self._mark = self._caller.sent_so_far()
        self._started_s = time.monotonic()

    def found_nothing(self) -> bool:
        """Whether the loop is blocked in Redis or has been idle for a while, and no further job is active."""
        now_s = time.monotonic()
        # Without a tap no command can be seen, so only time decides.
        quiet = (now_s - self._started_s) * 1000 > QUIET_MS
        # Claimed is read last: a claim between the two looks must win.
        return (quiet or any(_waits_for_a_job(sent, now_s) for sent in self._sent())) and not self._claimed()

    def _sent(self) -> tuple[CommandRecord, ...]:
        return self._caller.sent_since(self._mark)

    def _claimed(self) -> bool:
        return bool(set(self._redis.elements("active")) - self._before)


def _waits_for_a_job(sent: CommandRecord, now_s: float) -> bool:
    """Whether Redis blocks the command. XREAD does not count: it belongs to event readers."""
    blocks = sent.blocking and not sent.name.startswith("XREAD")
    return blocks and sent.reply is None and sent.sent_s is not None and now_s - sent.sent_s > BLOCKED_S
