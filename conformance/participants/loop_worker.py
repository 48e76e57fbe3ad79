"""A worker that is driven step by step, played by the client's own loop: for clients that have no other worker.

Each claim opens a loop of one job (processor `ask`), which keeps the job in hand until the scenario says how it ends.
By then the loop is told to close, so that it takes no other. What no loop can be brought to do, such as renewing a lock
with a foreign token, a manual worker of the oracle does under the loop's real token.
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
from conformance.observe.tap.recording import CommandRecord
from conformance.participants.caller import Caller
from conformance.participants.expect import Mismatch
from conformance.participants.handles import WorkerHandle
from conformance.participants.pending import Pending
from conformance.participants.redis_view import RedisView
from conformance.participants.transcript import RecordedCall

Answer = TypeVar("Answer")

LOOP_OPERATIONS = frozenset(
    played.op
    for played in (
        worker.GetNextJob,
        worker.MoveToCompleted,
        worker.MoveToFailed,
        worker.MoveToDelayed,
        worker.MoveToWait,
        worker.MoveToWaitingChildren,
    )
)
"""The operations of a manual worker that a loop can be brought to do, by what its processor is told."""

STEP_BY_STEP = {"concurrency": 1, "skipStalledCheck": True, "skipLockRenewal": True}
"""A manual worker checks nothing and renews nothing by itself."""

HAND_OVER_MS = 8000
"""How long a loop may take from the claim in Redis until it calls its processor, or to close once its job has ended."""

QUIET_MS = 500
"""After this long without a claim there was nothing to claim, where no blocked command says so earlier."""

LOOK_EVERY_MS = 10

BLOCKED_S = 0.02
"""A command that Redis has kept so long without an answer waits."""

UNKNOWN_OPERATION = "conformance.are-you-there"
"""Every driver answers that it does not know it, and has by then read what was sent before it."""


@dataclass
class JobLoop:
    """A managed worker with at most one job in hand. `name`: what the scenario calls its token."""

    handle: str
    name: str
    job: str = ""
    token: str = ""


class LoopWorker(WorkerHandle):
    """What scenarios know as a manual worker."""

    def __init__(self, caller: Caller, queue_name: str, **options: Any) -> None:
        super().__init__(caller, queue_name, caller.register("worker", queue_name, processor="manual", **options))
        self._options = {**options, **STEP_BY_STEP}
        self._loops: list[JobLoop] = []
        self._deciding = threading.Lock()
        caller.used_loop_workers = True

    def call(self, op: Op[Answer], *, deadline_ms: int = 8000) -> Answer:
        """Play the operation if a loop can be brought to do it, else have it done under the loop's real token."""
        match op:
            case worker.GetNextJob():
                return cast("Answer", self._noted(op, lambda: MaybeJob(job=self._claim(op.token))))
            case lifecycle.Close():
                return cast("Answer", self._noted(op, self._close))
        loop, ending = self._loop_of(op), self._ending(op)
        if loop is None or ending is None:
            return super().call(cast("Op[Answer]", self._with_real_tokens(op)), deadline_ms=deadline_ms)
        return cast("Answer", self._noted(op, lambda: self._end(op, loop, ending)))

    def _noted(self, op: Op[Any], play: Callable[[], Any]) -> Any:
        """Play it; the transcript shows one operation, however many calls it took."""
        name = type(op).op
        self.caller.cancellation.check()
        self.caller.performed.own.add(name)
        try:
            with self.caller.transcript.unrecorded():
                answer = play()
        except OperationFailed as failure:
            self.caller.transcript.record(RecordedCall(name, failure.error.code, None, msgspec.to_builtins(op)))
            raise
        self.caller.transcript.record(RecordedCall(name, "ok", msgspec.to_builtins(answer), msgspec.to_builtins(op)))
        return answer

    # Claiming.

    def _claim(self, name: str) -> JobView | None:
        claim = ClaimWatch(self.caller, self.redis)
        handle = self.caller.open("worker", self.queue_name, processor="ask", **self._options)
        return self._taken(JobLoop(handle, name), claim)

    def _taken(self, loop: JobLoop, claim: ClaimWatch) -> JobView | None:
        """The job that the loop hands over; without one it is closed, so that it takes none that comes later."""
        event = self._handed_over(loop, claim)
        if event is None:
            self.caller.call(lifecycle.Close(), handle=loop.handle)
            return None
        loop.job, loop.token = event.job.id, event.token
        self.caller.tokens.learn(event.job.id, loop.name, event.token)
        with self._deciding:
            self._loops.append(loop)
        return event.job

    def _handed_over(self, loop: JobLoop, claim: ClaimWatch) -> JobEvent | None:
        deadline = time.monotonic() + HAND_OVER_MS / 1000
        while time.monotonic() < deadline:
            self.caller.cancellation.check()
            try:
                event = self.caller.wait_event(loop.handle, names={"job"}, deadline_ms=LOOK_EVERY_MS, where=None)
                return msgspec.convert(event.args, JobEvent)
            except EventTimeout:
                if claim.found_nothing():
                    return None
        raise Mismatch(
            "the worker's loop hands the job to its processor", expected=f"within {HAND_OVER_MS} ms", actual="no job"
        )

    # Ending.

    def _ending(self, op: Op[Any]) -> worker.Resolve | None:
        """What to tell the processor; None for what cannot be told."""
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
        """Let the processor end, and with it the job. Raises OperationFailed where Redis has refused that."""
        with self._deciding:
            self._loops.remove(loop)
        following, claim = None, ClaimWatch(self.caller, self.redis)
        if getattr(op, "fetch_next", False):
            self.caller.call(ending, handle=loop.handle)
            self._wait_for_end_of(loop)
            following = self._taken(JobLoop(loop.handle, loop.name), claim)
        else:
            self._end_with(loop, ending)
        self._check_moved(type(op).op, loop)
        if isinstance(op, worker.MoveToWaitingChildren):
            return Flag(value=True)
        return MaybeJob(job=following) if type(op).answer is MaybeJob else Nothing()

    def _end_with(self, loop: JobLoop, ending: worker.Resolve) -> None:
        """End the job and the loop with it. A worker that closes finishes what it has, and fetches no more."""
        closing = Pending(
            lambda: self._unheard(lifecycle.Close(), loop.handle), self.caller.transcript, self.caller.cancellation
        )
        for _ in range(2):
            self.caller.driver.call_raw(UNKNOWN_OPERATION, {}, handle=loop.handle)
        self.caller.call(ending, handle=loop.handle)
        closing.result(within_ms=HAND_OVER_MS)

    def _unheard(self, op: Op[Any], handle: str) -> None:
        with self.caller.transcript.unrecorded():
            self.caller.call(op, handle=handle, deadline_ms=HAND_OVER_MS)

    def _wait_for_end_of(self, loop: JobLoop) -> None:
        deadline = time.monotonic() + HAND_OVER_MS / 1000
        while loop.job in self.redis.elements("active") and time.monotonic() < deadline:
            self.caller.cancellation.sleep(LOOK_EVERY_MS / 1000)

    def _check_moved(self, op: str, loop: JobLoop) -> None:
        """A loop reports a refusal to nobody: what Redis has against it is read there."""
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
        """Leave without finishing what is in hand, as a manual worker does."""
        with self._deciding:
            left, self._loops = self._loops, []
        for loop in left:
            self.caller.call(lifecycle.Close(force=True), handle=loop.handle)
        return Nothing()

    # Tokens.

    def _loop_of(self, op: Op[Any]) -> JobLoop | None:
        """The loop that has the operation's job in hand, if it is the one that the token names."""
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
    """Says when a loop has asked for a job in vain."""

    def __init__(self, caller: Caller, redis: RedisView) -> None:
        self._caller = caller
        self._redis = redis
        self._before = frozenset(self._redis.elements("active"))
        self._mark = self._caller.sent_so_far()
        self._began = time.monotonic()

    def found_nothing(self) -> bool:
        """Whether the loop waits, or has done nothing for a while, and nothing more is active than before."""
        now_s = time.monotonic()
        quiet = (now_s - self._began) * 1000 > QUIET_MS
        return (quiet or any(_waits_for_a_job(sent, now_s) for sent in self._sent())) and not self._claimed()

    def _sent(self) -> tuple[CommandRecord, ...]:
        return self._caller.sent_since(self._mark)

    def _claimed(self) -> bool:
        return bool(set(self._redis.elements("active")) - self._before)


def _waits_for_a_job(sent: CommandRecord, now_s: float) -> bool:
    """Whether Redis keeps the command waiting. Readers of events block as well, and say nothing of workers."""
    blocks = sent.blocking and not sent.name.startswith("XREAD")
    return blocks and sent.reply is None and sent.sent_s is not None and now_s - sent.sent_s > BLOCKED_S
