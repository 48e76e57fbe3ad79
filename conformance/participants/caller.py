"""The caller of a participant: calls operations of its driver, or of the oracle as its stand-in, and records them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from typing import Any, Literal, TypeVar, cast

import msgspec
from redis.exceptions import RedisError

from conformance.checkers.traffic import WRITES
from conformance.driver.connection import DriverConnection
from conformance.driver.errors import (
    DriverBroken,
    DriverHung,
    LoopNotHeldBack,
    OperationFailed,
    OperationUnanswered,
    OperationUnsupported,
)
from conformance.driver.messages import DriverEvent, Ready
from conformance.driver.ops import Op, lifecycle
from conformance.driver.ops.base import Nothing
from conformance.driver.ops.queue import Obliterate, TrimEvents
from conformance.environment.drivers import TapPoint
from conformance.ledger.operations import EVENTS_READ, WORKER_RUN
from conformance.observe.tap.recording import CommandRecord
from conformance.observe.tap.tap import ConnectionView
from conformance.participants.call_translation import (
    adding,
    answer_to_scenario,
    call_to_client,
    event_to_scenario,
    learn,
)
from conformance.participants.cancellation import Cancellation
from conformance.participants.clock import ParticipantClock
from conformance.participants.expect import Mismatch
from conformance.participants.missing_answers import added_in_redis, answer_from_redis
from conformance.participants.names import Names
from conformance.participants.pending import Pending
from conformance.participants.redis_view import RedisView
from conformance.participants.stand_in import OPEN_WITHIN_MS, PerformedOperations, StandIn, handles_named_in
from conformance.participants.tokens import TokenNames
from conformance.participants.transcript import CALL, PerformedBy, RecordedCall, Transcript
from conformance.participants.wait_limits import LEAST_MS, Wait, Waiter, WaitLimits
from conformance.protocol.keys import ID_COUNTER, META
from conformance.protocol.scripts import ENDS_JOBS

Answer = TypeVar("Answer")

Role = Literal["oracle", "client", "partner"]

UNKNOWN_OPERATION = "conformance.are-you-there"
"""A ping: every driver reports the operation as unsupported, and has by then read the lines before it."""

AWAKE_COMMANDS = 3
"""A single command may be the last one before a client sleeps, such as a look for jobs or the renewal of a lock."""
RECENT_COMMANDS = 1000
BLOCKED_S = 0.02
"""A blocking command without a reply for this time is really blocked, and not just on its way."""

NEXT_COMMAND_S = 0.1
"""A loop that ends a job command by command sends the next one within this time, also on a busy machine."""


def json_text(value: Any) -> str:
    """A value as compact JSON text, the way scenarios hand it to both clients."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Caller:
    """The calling half of a participant: the base of its handles' operations."""

    def __init__(
        self,
        role: Role,
        driver: DriverConnection,
        *,
        redis: Any,
        point: TapPoint,
        names: Names,
        clock: ParticipantClock,
        cancellation: Cancellation | None = None,
        stand_in: StandIn | None = None,
    ) -> None:
        self.role = role
        self.driver = driver
        self.names = names
        """The names of its prefix, queues and jobs, shared by all participants on that prefix."""
        self.places = [names]
        """Every prefix under which it may leave keys."""
        self.clock = clock
        self.cancellation = cancellation or Cancellation()
        """Ends the scenario from outside."""
        self.stand_in = stand_in
        """The oracle that does what the driver cannot do; None for the oracle itself."""
        self.performed = PerformedOperations()
        self.wait_limits = WaitLimits()
        """Decides the length of waits from earlier waits."""
        self.transcript = Transcript()
        self.unanswered: set[str] = set()
        """Operations that the client did without an answer."""
        self.busy_seconds = 0.0
        """Time spent waiting for the driver."""
        self.workers: list[str] = []
        """Handles of its workers, in the order of opening."""
        self.managed = False
        """Whether a worker's own loop ran: then the order of wake-ups depends on the machine."""
        self.running_loops: set[str] = set()
        """Handles of its open workers with a loop, which may hold times; one that emulates a manual worker does not."""
        self.used_loop_workers = False
        """Whether such loops emulated a manual worker."""
        self.pauses_loops = True
        """Whether the kit holds such loops back by pausing them: on both sides, if the client can do it."""
        self.closed_loops: list[str] = []
        """Handles of those loops that the kit itself has closed."""
        self.tokens = TokenNames()
        self._redis = redis
        self._point = point
        self._handles = count(1)
        self._opened: dict[str, lifecycle.Open] = {}
        self._own: set[str] = set()
        self._pending: list[Pending[Any]] = []
        self._calls = 0

    def share(self, other: Caller) -> None:
        """Use the driver together with another caller: handle names stay unique, and their calls have one order."""
        self.transcript, self.performed, self.tokens = other.transcript, other.performed, other.tokens
        self._handles, self.wait_limits = other._handles, other.wait_limits
        self.closed_loops = other.closed_loops

    @property
    def waiter(self) -> Waiter:
        """Whose waits its waits are: a partner is not under test, so they are not cut short, as the oracle's."""
        return "client" if self.role == "client" else "oracle"

    @contextmanager
    def waiting(self, sentence: str, within_ms: int, *, prompt: bool = False) -> Iterator[Wait]:
        """A wait for the condition that the sentence states. `prompt`: no client has to wake up for it.

        Raises OperationUnsupported instead of Mismatch if a call in another thread was unsupported.
        """
        self.transcript.step = f"waiting until {sentence}"
        mark, calls = self.sent_so_far(), self._calls

        def is_awake() -> bool:
            # A client that has just ended a job is getting on, though the condition may be about another one.
            if wait.progressed(self._ended_job_s(mark)):
                return False
            # A client that the kit asks something is awake because of that.
            return prompt or (self._calls == calls and not self.transcript.disturbed and self.is_awake_since(mark))

        with self.wait_limits.wait(self.waiter, sentence, within_ms, is_awake=is_awake) as wait:
            try:
                yield wait
            except Mismatch:
                for pending in self._pending:
                    if isinstance(pending.failure, OperationUnsupported):
                        raise pending.failure from None
                raise

    @property
    def prefix(self) -> str:
        """The key prefix, as the scenario knows it."""
        return self.names.prefix

    def redis(self, queue: str = "q") -> RedisView:
        """The queue's keys, read by the kit itself."""
        return RedisView(self._redis, self.names, queue, self.tokens, on_change=self.transcript.record_act)

    def sent_so_far(self) -> int:
        """The current position in the client's traffic, to pass to `sent_since`; 0 without a tap."""
        return self._point.tap.recording.mark() if self._point.tap else 0

    def sent_since(self, mark: int) -> tuple[CommandRecord, ...]:
        """The commands that the client has sent since a mark; empty without a tap."""
        return self._point.tap.recording.commands(after=mark) if self._point.tap else ()

    def script_calls_since(self, mark: int, scripts: Collection[str]) -> tuple[CommandRecord, ...]:
        """The calls of these scripts, or of the client's own variants of them, since a mark; empty without a tap."""
        return self._point.tap.recording.calls(*scripts, after=mark) if self._point.tap else ()

    def _ended_job_s(self, mark: int) -> float:
        """When the client last ended a run of a job since a mark (monotonic s); 0 if it did not."""
        ended = (sent for sent in self.script_calls_since(mark, ENDS_JOBS) if sent.reply and not sent.reply.refuses)
        return max((sent.arrived_s for sent in ended), default=0.0)

    def is_blocked_since(self, mark: int, *, within_s: float = 0.0) -> bool:
        """Whether Redis blocks a command that waits for jobs, or did lately (s), on an open connection."""
        return bool(self._blocked(mark, within_s))

    def unblock(self, mark: int) -> set[str]:
        """Let Redis end the commands since a mark that wait for jobs, as if their time were up.

        Returns the addresses of their connections, as Redis sees them.
        """
        blocked = {connection.address for connection in self._blocked(mark, within_s=0.0)}
        # The nodes of a cluster do not share their clients; without the permission, the commands end by themselves.
        if blocked and self._point.address.mode != "cluster":
            with suppress(RedisError):
                for connected in self._redis.client_list():
                    if connected["addr"] in blocked:
                        self._redis.client_unblock(int(connected["id"]))
        return blocked

    def addresses(self) -> set[str]:
        """The addresses of its open connections, as Redis sees them; empty without a tap."""
        return {connection.address for connection in self._point.tap.connections()} if self._point.tap else set()

    def _blocked(self, mark: int, within_s: float) -> list[ConnectionView]:
        if self._point.tap is None:
            return []
        now_s = time.monotonic()
        unanswered = self._point.tap.recording.unanswered(now_s - within_s, after=mark)
        waiting = {sent.connection for sent in unanswered if _waits_for_a_job(sent, now_s)}
        return [connection for connection in self._point.tap.connections() if connection.number in waiting]

    def is_awake_since(self, mark: int) -> bool:
        """Whether the client has gone on sending commands since a mark, and has not waited for jobs in Redis lately."""
        # Commands before the mark, because one of them may be blocked since then. A client that has just woken up, as
        # some do every second, may be about to do what is waited for.
        sent = self.sent_so_far() - mark
        before = max(0, mark - RECENT_COMMANDS)
        return sent >= AWAKE_COMMANDS and not self.is_blocked_since(before, within_s=LEAST_MS / 1000)

    def is_between_commands(self) -> bool:
        """Whether a loop has just changed a key outside of any script, so that another command may follow."""
        recent = self.sent_since(self.sent_so_far() - RECENT_COMMANDS) if self.running_loops else ()
        changes = (sent for sent in recent if sent.name in WRITES and not sent.blocking and not sent.found_no_work)
        return any(time.monotonic() - sent.arrived_s < NEXT_COMMAND_S for sent in changes)

    def check_closed_loops(self) -> None:
        """Raise LoopNotHeldBack if a loop that the kit closed has taken another job nevertheless."""
        if not self.closed_loops:
            return
        with suppress(DriverBroken):
            # Events that the driver sent before its answer have been read then.
            self.ping(self.closed_loops[-1])
        for handle in self.closed_loops:
            if any(event.name == "job" for event in self.driver.take_events(handle)):
                raise LoopNotHeldBack(f"its worker {handle} took another job while the kit held it back")

    def ping(self, handle: str) -> None:
        """Return when the driver has read all lines before this one."""
        self.driver.call_raw(UNKNOWN_OPERATION, {}, handle=handle)

    def can(self, capability: str) -> bool:
        """Whether the driver declares a capability."""
        return capability in self.driver.ready.capabilities

    def call(self, op: Op[Answer], *, handle: str | None = None, deadline_ms: int = 8000) -> Answer:
        """Carry out one operation, by the stand-in if the client cannot, and record it.

        Raises OperationFailed, OperationUnsupported, OperationIndeterminate, Cancelled, StandInBroken or a DriverBroken
        problem.
        """
        # Before sending: a call whose scenario is over would change Redis after the last snapshot.
        self.cancellation.check()
        self.transcript.stop_if_reached()
        self._calls += 1
        self.transcript.step = f"{CALL}{type(op).op}"
        if isinstance(op, lifecycle.Close):
            self.running_loops.discard(handle or "")
        started = time.perf_counter()
        try:
            if self.is_own(handle):
                try:
                    return self._by_client(op, handle, deadline_ms)
                except OperationUnanswered:
                    raise  # It is done: the stand-in must not do it a second time.
                except OperationUnsupported:
                    if handle is None or not self._can_be_replaced(op, handle):
                        raise
                    if isinstance(op, lifecycle.Open):
                        self._own.discard(handle)
            # Reached only if the client certainly did nothing: an indeterminate call is never repeated.
            return self._by_stand_in(op, handle or "", deadline_ms)
        finally:
            self.busy_seconds += time.perf_counter() - started

    def wait_event(
        self, handle: str, *, names: set[str], deadline_ms: int, where: Callable[[DriverEvent], bool] | None
    ) -> DriverEvent:
        """See `DriverConnection.wait_event`. If the client has no such object, the event of its twin."""
        source = self.driver if self.is_own(handle) or self.stand_in is None else self.stand_in
        queue = self._queue_of(handle)

        def matches(event: DriverEvent) -> bool:
            # Translated first: the scenario's condition compares its own ids.
            return where is None or where(event_to_scenario(self.names, queue, event))

        event = source.wait_event(handle, names=names, deadline_ms=deadline_ms, where=matches)
        return event_to_scenario(self.names, queue, event)

    def take_events(self, handle: str) -> list[DriverEvent]:
        """The unread events of an object of the client, in the scenario's names; they count as read afterwards."""
        queue = self._queue_of(handle)
        return [event_to_scenario(self.names, queue, event) for event in self.driver.take_events(handle)]

    def open(self, role: lifecycle.Role, queue: str, *, processor: str | None = None, **settings: Any) -> str:
        """Open a handle and return its name. If the client cannot have such an object, open a twin at the oracle.

        Raises OperationUnsupported if there is no stand-in either.
        """
        handle = self.register(role, queue, processor=processor, **settings)
        self.open_registered(handle)
        return handle

    def open_registered(self, handle: str) -> None:
        """Open an object that has a name. Raises OperationUnsupported as `open` does."""
        op = self._opened[handle]
        if op.processor not in (None, "manual"):
            self.managed = True
            self.running_loops.add(handle)
        missing = missing_declaration(op, self.driver.ready)
        if not missing:
            self._own.add(handle)
        elif self.stand_in is None:
            raise OperationUnsupported(f"open of a {op.role}", f"the driver does not declare {missing}")
        try:
            self.call(op, handle=handle, deadline_ms=OPEN_WITHIN_MS)
        except OperationUnsupported:
            self._own.discard(handle)
            raise
        if activity := background_activity(op):
            (self.performed.own if self.is_own(handle) else self.performed.stand_in).add(activity)

    def register(self, role: lifecycle.Role, queue: str, *, processor: str | None = None, **settings: Any) -> str:
        """Give an object a name without opening it: a twin does its operations."""
        handle = f"{role}-{next(self._handles)}"
        self._opened[handle] = lifecycle.Open(
            role=role,
            queue=queue,
            prefix=self.prefix,
            redis=self._point.address,
            processor=processor,  # type: ignore[arg-type]  # the schema refuses other texts
            processor_args=settings.pop("processor_args", {}),
            library=settings.pop("library", False),
            unheard=settings.pop("unheard", False),
            meter=settings.pop("meter", False),
            options=settings,
        )
        return handle

    def reports_by_itself(self, handle: str) -> bool:
        """Whether a worker sends events of its own."""
        return not self.is_own(handle) or "worker-events" not in self.driver.ready.lacks

    def is_own(self, handle: str | None) -> bool:
        """Whether the client has this object itself."""
        return handle is None or handle in self._own

    def _can_be_replaced(self, op: Op[Any], handle: str) -> bool:
        """Whether the oracle may do the operation instead of the client."""
        opened = self._opened[handle]
        # The twin of a worker with a running loop would be a second worker, and would take jobs away from the first.
        runs = opened.role == "worker" and opened.processor != "manual" and not isinstance(op, lifecycle.Open)
        return self.stand_in is not None and not runs

    def _by_client(self, op: Op[Answer], handle: str | None, deadline_ms: int) -> Answer:
        name, args, queue = type(op).op, msgspec.to_builtins(op), self._queue_of(handle)
        # Taken before the call: if several hang, the one that started last is blamed.
        started_s = time.monotonic()
        try:
            answer, unanswered = self._answer_of_client(op, queue, handle, deadline_ms)
        except OperationFailed as failure:
            self.performed.own.add(name)
            self.transcript.record(_failed(name, args, handle or "", failure))
            raise
        except DriverBroken as broken:
            self.performed.own.add(name)
            # A call that hangs also ends the calls that are under way next to it; only the hanging one is blamed.
            if not isinstance(broken, DriverHung) or broken.op == name:
                call = RecordedCall(name, "driver-broken", None, args, handle or "", str(broken))
                self.transcript.record_breakage(call, started_s)
            raise
        self.performed.own.add(name)
        # The number of entries that Redis trims depends on their bytes, and these depend on the ids in them.
        by_bytes = isinstance(op, TrimEvents) and self.names.ids(queue).differ
        value = None if unanswered else msgspec.to_builtins(answer)
        self.transcript.record(RecordedCall(name, "ok", value, args, handle or "", unanswered=unanswered or by_bytes))
        # After the client's own: a twin that stays open would keep a connection and its workers.
        if isinstance(op, lifecycle.Close) and handle is not None and self.stand_in and self.stand_in.has(handle):
            self.stand_in.call(op, handle, deadline_ms=deadline_ms, now_ms=self.clock.call_ms())
        return answer

    def _answer_of_client(
        self, op: Op[Answer], queue: str, handle: str | None, deadline_ms: int
    ) -> tuple[Answer, bool]:
        """The answer in the scenario's names, and whether it comes from Redis because the client gave none."""
        with self._counting(queue, op):
            sent = call_to_client(self.names, queue, op)
            try:
                answer = self.driver.call(sent, handle=handle, deadline_ms=deadline_ms, now_ms=self.clock.call_ms())
                return self._translated(queue, op, answer), False
            except OperationUnanswered:
                return self._answer_from_redis(queue, op), True

    def _by_stand_in(self, op: Op[Answer], handle: str, deadline_ms: int) -> Answer:
        name, args, now_ms = type(op).op, msgspec.to_builtins(op), self.clock.call_ms()
        assert self.stand_in is not None
        # Noted before the call: a scenario with a failed stand-in must not count as the client's own.
        self.performed.stand_in.add(name)
        queue = self._queue_of(handle)
        try:
            for other in (handle, *handles_named_in(op)):
                opened = self._opened[other]
                given = msgspec.structs.replace(
                    opened, prefix=self.names.client_prefix, queue=self.names.client_queue(opened.queue)
                )
                self.stand_in.open(other, given, client_has_one=other in self._own, now_ms=now_ms)
            if isinstance(op, lifecycle.Open):
                answer = cast("Answer", Nothing())
            else:
                with self._counting(queue, op):
                    sent = call_to_client(self.names, queue, op)
                    answer = self.stand_in.call(sent, handle, deadline_ms=deadline_ms, now_ms=now_ms)
                    answer = self._translated(queue, op, answer, by="stand-in")
        except OperationFailed as failure:
            self.transcript.record(_failed(name, args, handle, failure, by="stand-in"))
            raise
        self.transcript.record(RecordedCall(name, "ok", msgspec.to_builtins(answer), args, handle, by="stand-in"))
        return answer

    def _queue_of(self, handle: str | None) -> str:
        """The queue of an object, by the scenario's name; empty for an object without queue."""
        return self._opened[handle].queue if handle in self._opened else ""

    @contextmanager
    def _counting(self, queue: str, op: Op[Answer]) -> Iterator[None]:
        """The block in which an operation may move the counters of ids."""
        with ExitStack() as stack:
            stack.enter_context(adding(self.names, queue, op))
            if isinstance(op, Obliterate):
                meta = self.names.client_base(queue) + META
                stack.enter_context(self.names.ids(queue).obliterating(lambda: not self._redis.exists(meta)))
            yield

    def _translated(self, queue: str, op: Op[Answer], answer: Answer, *, by: PerformedBy = "self") -> Answer:
        """An answer in the names of the scenario, after learning the ids in it.

        Records the names that the client under test gives differently from Node.
        """
        deviations = learn(self.names, queue, op, answer, counter=self._counter)
        if self.role == "client" and by == "self":
            # The first example stays: later ones may only follow from it.
            self.names.deviations = {**deviations, **self.names.deviations}
        return answer_to_scenario(self.names, queue, op, answer)

    def _answer_from_redis(self, queue: str, op: Op[Answer]) -> Answer:
        """The part of the answer that Redis shows, for an operation that the client did without an answer."""
        self.unanswered.add(type(op).op)
        added = added_in_redis(op, self.redis(queue), self.names.ids(queue))
        return answer_from_redis(op, self.redis(queue)) if added is None else self._translated(queue, op, added)

    def _counter(self, queue: str) -> int:
        """The value of the id counter in Redis."""
        return int(self._redis.get(self.names.client_base(queue) + ID_COUNTER) or 0)


def _waits_for_a_job(sent: CommandRecord, now_s: float) -> bool:
    """Whether Redis blocks the command, or blocked it until its reply."""
    ended_s = sent.reply.at_s if sent.reply else now_s
    return sent.waits_for_work and sent.sent_s is not None and ended_s - sent.sent_s > BLOCKED_S


def background_activity(opened: lifecycle.Open) -> str:
    """The activity of an open object without further calls: `WORKER_RUN`, `EVENTS_READ`, or nothing (empty)."""
    if opened.role == "events":
        return EVENTS_READ
    return WORKER_RUN if opened.role == "worker" and opened.processor != "manual" else ""


def missing_declaration(opened: lifecycle.Open, ready: Ready) -> str:
    """The declaration that the driver would need for this object to be of use; empty if it has it."""
    needed = {opened.redis.form} - {"options"} | ({"fail-fast"} if opened.redis.fail_fast else set())
    needed |= {"library"} if opened.library else set()
    needed |= {"unheard"} if opened.unheard else set()
    needed |= {"meter"} if opened.meter else set()
    for capability in sorted(needed.difference(ready.capabilities)):
        return f"the capability {capability}"
    if opened.role == "worker":
        style = {"manual": "manual-worker", "sandboxed": "sandbox"}.get(opened.processor or "", "managed-worker")
        return "" if style in ready.capabilities else f"the capability {style}"
    if opened.role in {"flow", "relay"}:
        return (
            "" if any(name.startswith(f"{opened.role}.") for name in ready.ops) else f"any operation of a {opened.role}"
        )
    return ""


def _failed(
    name: str, args: dict[str, Any], handle: str, failure: OperationFailed, *, by: PerformedBy = "self"
) -> RecordedCall:
    """The record of a call that certainly did nothing."""
    return RecordedCall(name, failure.error.code, None, args, handle, failure.error.message, by)
