"""A manual worker that is emulated by the client's own worker loop, for clients without manual workers.

Each claim opens a loop (processor `ask`), which holds its job until the scenario ends it. Meanwhile the kit holds the
loop back from further jobs: it pauses the worker, or, for clients that cannot pause one, sets the queue's concurrency
to 0. The last job of a queue is not held back in this second way, because a queue at its limit leaves no event
`drained`. The loop is closed only after its job has ended, because a client's `close` may return before that. If a
loop takes another job nevertheless, the kit's own steps went wrong, and the scenario decides nothing.

Operations that a loop cannot do, such as renewing a lock with a foreign token, are done by a manual worker of the
oracle with the loop's real token.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import msgspec

from conformance.driver.errors import (
    OTHER,
    DriverError,
    DriverHung,
    EventTimeout,
    LoopNotHeldBack,
    OperationFailed,
    OperationGivenUp,
    OperationUnsupported,
)
from conformance.driver.ops import Op, lifecycle, worker
from conformance.driver.ops.base import Flag, JobView, MaybeJob, Nothing
from conformance.driver.ops.lifecycle import JobEvent
from conformance.observe.tap.recording import CommandRecord
from conformance.participants.caller import Caller
from conformance.participants.expect import Mismatch
from conformance.participants.handles import WorkerHandle
from conformance.participants.pending import Pending
from conformance.participants.redis_view import RedisView
from conformance.participants.transcript import PerformedBy, RecordedCall
from conformance.protocol.keys import WAITING_CHILDREN
from conformance.protocol.scripts import ENDS_JOBS
from conformance.protocol.states import JOB_CONTAINERS

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
"""Limit from the claim in Redis to the call of the processor, from the outcome to the end of the job, and for the loop
to stop after its close."""

CLAIMABLE = tuple(
    container.key for container in JOB_CONTAINERS if container.pending and container.key != WAITING_CHILDREN
)
"""Keys of the jobs that a worker can claim, now or as soon as they are due."""

REFUSED = "the job is still active"
WITHOUT_EFFECT = f"{REFUSED}, and nothing that the keys show forbids its end"
HANDS_OVER = "the worker's loop passes the job to its processor"
QUIET_MS = 500
"""If nothing was claimed after this time, there was no job; a blocked command shows that earlier."""

LOOK_EVERY_MS = 10
PAUSES_WITHIN_MS = 200
UNBLOCK_EVERY_MS = 50
"""Longer than a client needs to read its `close`: until then, its loop goes on and blocks again."""


@dataclass
class JobLoop:
    """A managed worker with at most one job.

    `name`: the scenario's name of its token. `opened`: the position in the client's traffic when it was opened.
    """

    handle: str
    name: str
    opened: int
    job: str = ""
    token: str = ""


class LoopWorker(WorkerHandle):
    """A worker loop that scenarios use like a manual worker."""

    def __init__(self, caller: Caller, queue_name: str, **options: Any) -> None:
        super().__init__(caller, queue_name, caller.register("worker", queue_name, processor="manual", **options))
        self._chosen, self._options = options, {**options, **STEP_BY_STEP}
        self._loops: list[JobLoop] = []
        self._deciding = threading.Lock()
        self._by: PerformedBy = "self"
        """Whose loop does the work."""
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
        name, args = type(op).op, msgspec.to_builtins(op)
        if isinstance(op, worker.GetNextJob):
            # Reports show the loop as it was opened.
            args |= {"queue": self.queue_name, "options": self._chosen}
        self.caller.cancellation.check()
        try:
            with self.caller.transcript.unrecorded():
                answer = emulate()
        except OperationFailed as failure:
            self.caller.transcript.record(RecordedCall(name, failure.error.code, None, args, by=self._by))
            raise
        finally:
            performed = self.caller.performed
            (performed.own if self._by == "self" else performed.stand_in).add(name)
        self.caller.transcript.record(RecordedCall(name, "ok", msgspec.to_builtins(answer), args, by=self._by))
        return answer

    # Claiming.

    def _claim(self, name: str) -> JobView | None:
        # Before the loop opens: a job that it claims at once must not count as active before.
        claim = ClaimWatch(self.caller, self.redis)
        handle = self.caller.open("worker", self.queue_name, processor="ask", **self._options)
        # A driver may refuse the options of such a loop, and then the oracle's loop does the work.
        self._by = "self" if self.caller.is_own(handle) else "stand-in"
        # Between two calls it waits for the outcome of a job, and not for a time.
        self.caller.running_loops.discard(handle)
        return self._taken(JobLoop(handle, name, claim.opened), claim)

    def _taken(self, loop: JobLoop, claim: ClaimWatch) -> JobView | None:
        """The job that the loop passes to its processor. Without one, close the loop so that it takes no later job."""
        event = self._next_job(loop, claim)
        if event is None:
            self._let_go(loop)
            return None
        loop.job, loop.token = event.job.id, event.token
        self.caller.tokens.learn(event.job.id, loop.name, event.token)
        with self._deciding:
            self._loops.append(loop)
        return event.job

    def _let_go(self, loop: JobLoop) -> None:
        """Close a loop without a job, and wait until it no longer asks for one: its close may return before that."""
        if not self.caller.pauses_loops:
            self._wait_for_rest(loop)
        closing = Pending(
            lambda: self._call_unrecorded(lifecycle.Close(), loop.handle),
            self.caller.transcript,
            self.caller.cancellation,
        )
        unblocked = self._unblocked_until(closing, loop)
        try:
            closing.result()
        except DriverHung:
            # A job that the worker took between the last look and its close keeps the close waiting.
            self._check_held_back(loop, within_ms=0)
            raise
        self.caller.closed_loops.append(loop.handle)
        self._wait_for_end(loop, unblocked)
        try:
            with self.caller.waiting("a closed worker asks for no job", HAND_OVER_MS) as wait:
                while self.caller.is_blocked_since(loop.opened) and wait.left_ms > 0:
                    self.caller.cancellation.sleep(LOOK_EVERY_MS / 1000)
                if wait.left_ms <= 0:
                    raise wait.mismatch("a closed worker asks for no job", "it is still blocked in Redis")
        except Mismatch as asks:
            # Any job that the scenario adds from now on could go to this worker, which is not part of the scenario.
            raise LoopNotHeldBack(str(asks)) from asks

    def _unblocked_until(self, closing: Pending[None], loop: JobLoop) -> set[str]:
        """Unblock a loop until its close returns. Returns the addresses of the connections that were blocked.

        Many clients wait until the time of the blocked command is up, usually 5 s, in each of hundreds of scenarios.
        """
        unblocked: set[str] = set()
        for _ in range(HAND_OVER_MS // UNBLOCK_EVERY_MS):
            closing.settle(within_ms=UNBLOCK_EVERY_MS)
            self.caller.cancellation.check()
            if closing.done:
                break
            unblocked |= self.caller.unblock(loop.opened)
        return unblocked

    def _wait_for_end(self, loop: JobLoop, unblocked: set[str]) -> None:
        """Wait until a loop that was unblocked does not ask again: its close may have returned in between."""
        deadline = time.monotonic() + QUIET_MS / 1000
        while (
            unblocked & self.caller.addresses()
            and not self.caller.is_blocked_since(loop.opened)
            and time.monotonic() < deadline
        ):
            self.caller.cancellation.sleep(LOOK_EVERY_MS / 1000)

    def _wait_for_rest(self, loop: JobLoop) -> None:
        """Wait until an idle loop is blocked in Redis: between two commands, it would survive a hasty close unseen."""
        history, who = self.caller.wait_limits.history, self.caller.waiter
        if history.never_blocks(who):
            return
        deadline = time.monotonic() + QUIET_MS / 1000
        while not (blocked := self.caller.is_blocked_since(loop.opened)) and time.monotonic() < deadline:
            self.caller.cancellation.sleep(LOOK_EVERY_MS / 1000)
        history.rested(who, blocked=blocked)

    def _next_job(self, loop: JobLoop, claim: ClaimWatch) -> JobEvent | None:
        with self.caller.waiting(HANDS_OVER, HAND_OVER_MS, prompt=True) as wait:
            while wait.left_ms > 0:
                self.caller.cancellation.check()
                try:
                    # The event first: a job that was handed over must not be lost to "found nothing".
                    event = self.caller.wait_event(loop.handle, names={"job"}, deadline_ms=LOOK_EVERY_MS, where=None)
                    return msgspec.convert(event.args, JobEvent)
                except EventTimeout:
                    if claim.found_nothing():
                        return None
            raise wait.mismatch(HANDS_OVER, "no job")

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
            # The next claim is recognized by what is new in `active`, so the old job must have left it.
            self._resolve(loop, ending, held_back=False)
            following = self._taken(JobLoop(loop.handle, loop.name, loop.opened), claim)
        else:
            with self._held_back(op, loop):
                self._resolve(loop, ending, held_back=True)
                # Before the close, which would wait for the other job.
                self._check_held_back(loop, within_ms=QUIET_MS if claim.has_claimed() else 0)
                # On a shared queue, another client may have taken it.
                if self.caller.wait_limits.sides and claim.has_lost():
                    raise LoopNotHeldBack(f"its worker {loop.handle} took another job and did not pass it on")
                self._let_go(loop)
        # After the loop has ended, so that the keys show the outcome and not a moment before it.
        self._check_moved(type(op).op, loop)
        if isinstance(op, worker.MoveToWaitingChildren):
            return Flag(value=True)
        return MaybeJob(job=following) if type(op).answer is MaybeJob else Nothing()

    @contextmanager
    def _held_back(self, op: Op[Any], loop: JobLoop) -> Iterator[None]:
        """The block in which the loop ends its job and claims no other."""
        if not self.caller.pauses_loops:
            with nullcontext() if self._is_last_job(op, loop) else self.redis.claiming_nothing():
                yield
            return
        pausing = self._pausing(loop)
        yield
        # A pause that waits for the running job has returned by now. Its own scenarios judge it.
        pausing.settle(within_ms=HAND_OVER_MS)

    def _is_last_job(self, op: Op[Any], loop: JobLoop) -> bool:
        """Whether this operation ends the job permanently and leaves no other job to claim."""
        if any(self.redis.exists(container) for container in CLAIMABLE):
            return False
        job = self.redis.hash(loop.job)
        # Its end may release a parent, which then waits in this queue.
        releases = job.get("parentKey", "").startswith(self.redis.base)
        return not releases and (isinstance(op, worker.MoveToCompleted) or _is_final_failure(op, job))

    def _pausing(self, loop: JobLoop) -> Pending[None]:
        """The pause of the worker, which has reached it. Raises LoopNotHeldBack if the client does not pause it."""
        # In a thread: some clients return from a pause only after the running job, despite the argument.
        pausing = Pending(
            lambda: self._call_unrecorded(worker.PauseWorker(do_not_wait_active=True), loop.handle),
            self.caller.transcript,
            self.caller.cancellation,
        )
        # The driver reads line by line: after two pings it has read the pause and has started on it.
        for _ in range(2):
            self.caller.ping(loop.handle)
        # A driver with several threads may end the job before the pause that it has read: most pauses return at once.
        pausing.settle(within_ms=PAUSES_WITHIN_MS)
        if isinstance(pausing.failure, OperationFailed | OperationGivenUp | OperationUnsupported):
            # Nothing else will do: the oracle pauses its loop, and another way leaves other events.
            raise LoopNotHeldBack(f"its worker is not paused: {pausing.failure}") from pausing.failure
        return pausing

    def _call_unrecorded(self, op: Op[Any], handle: str) -> None:
        with self.caller.transcript.unrecorded():
            self.caller.call(op, handle=handle, deadline_ms=HAND_OVER_MS)

    def _check_held_back(self, loop: JobLoop, *, within_ms: int) -> None:
        """Raise LoopNotHeldBack if the loop passes another job to its processor within this time."""
        with suppress(EventTimeout):
            self.caller.wait_event(loop.handle, names={"job"}, deadline_ms=within_ms, where=None)
            raise LoopNotHeldBack(f"its worker {loop.handle} took another job while the kit held it back")

    def _resolve(self, loop: JobLoop, ending: worker.Resolve, *, held_back: bool) -> None:
        """Give the processor its outcome, and wait until the job has left `active` or Redis has refused that."""
        mark = self.caller.sent_so_far()
        self.caller.call(ending, handle=loop.handle)
        try:
            with self.caller.waiting("the worker's loop ends its job", HAND_OVER_MS, prompt=True) as wait:
                # Another client may have put the job back, while the call that ends it is still under way.
                while self._is_under_way(loop, mark) or (
                    self._is_active(loop, held_back=held_back) and not self._was_refused(loop, mark)
                ):
                    if wait.left_ms <= 0:
                        raise wait.mismatch("the worker's loop ends its job", "it is still active")
                    self.caller.cancellation.sleep(LOOK_EVERY_MS / 1000)
        except Mismatch:
            # `_check_moved` reports it, with the reason that the keys show.
            return
        # A refused outcome may be followed by another attempt, such as the failure of a refused delay.
        deadline = time.monotonic() + QUIET_MS / 1000
        while self._is_active(loop, held_back=held_back) and time.monotonic() < deadline:
            self.caller.cancellation.sleep(LOOK_EVERY_MS / 1000)

    def _is_active(self, loop: JobLoop, *, held_back: bool) -> bool:
        """Whether the loop's job is in `active`. `held_back`: raises LoopNotHeldBack if the loop has taken another."""
        if loop.job not in self.redis.elements("active"):
            return False
        if held_back:
            # The same job may be back: it is retried, and the loop has taken it again.
            self._check_held_back(loop, within_ms=0)
        return True

    def _was_refused(self, loop: JobLoop, mark: int) -> bool:
        """Whether Redis has replied to a script that ends the job, which is still active."""
        return any(call.reply is not None for call in self._endings_since(loop, mark))

    def _is_under_way(self, loop: JobLoop, mark: int) -> bool:
        return any(call.reply is None for call in self._endings_since(loop, mark))

    def _endings_since(self, loop: JobLoop, mark: int) -> list[CommandRecord]:
        """The calls of scripts that end the job."""
        key = self.redis.key_in_redis(loop.job).encode()
        sent = self.caller.script_calls_since(mark, ENDS_JOBS)
        return [call for call in sent if key in (*call.keys, *call.argv)]

    def _check_moved(self, op: str, loop: JobLoop) -> None:
        """Raise the error that Redis returned to the loop, as read from its keys: a loop does not report errors."""
        if loop.job not in self.redis.elements("active"):
            return
        if not self.redis.exists(loop.job):
            code = "missing-job"
        elif not self.redis.exists(f"{loop.job}:lock"):
            code = "missing-lock"
        else:
            code = "lock-mismatch" if self.redis.string(f"{loop.job}:lock") != loop.name else OTHER
        raise OperationFailed(op, DriverError(message=WITHOUT_EFFECT if code == OTHER else REFUSED, code=code))

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


def _is_final_failure(op: Op[Any], job: dict[str, str]) -> bool:
    """Whether the job fails permanently. False if its options cannot be read."""
    if not isinstance(op, worker.MoveToFailed):
        return False
    try:
        attempts = int(json.loads(job.get("opts", "{}")).get("attempts", 1))
        return op.unrecoverable or int(job.get("atm", "0")) + 1 >= attempts
    except (ValueError, TypeError, AttributeError):
        return False


class ClaimWatch:
    """Detects that a loop has asked for a job and got none."""

    def __init__(self, caller: Caller, redis: RedisView) -> None:
        self._caller = caller
        self._redis = redis
        self._before = frozenset(self._redis.elements("active"))
        self.opened = self._caller.sent_so_far()
        """The position in the client's traffic."""
        self._started_s = time.monotonic()

    def found_nothing(self) -> bool:
        """Whether the loop is blocked in Redis or has been idle for a while, and no further job is active."""
        # Without a tap no command can be seen, so only time decides.
        quiet = (time.monotonic() - self._started_s) * 1000 > QUIET_MS
        # Claimed is read last: a claim between the two looks must win.
        return (quiet or self._caller.is_blocked_since(self.opened)) and not self.has_claimed()

    def has_claimed(self) -> bool:
        """Whether a job is active that was not."""
        return bool(self._claimed())

    def has_lost(self) -> bool:
        """Whether a job is active that was not, and that no loop has passed to its processor."""
        return not all(map(self._caller.tokens.has, self._claimed()))

    def _claimed(self) -> set[str]:
        return set(self._redis.elements("active")) - self._before
