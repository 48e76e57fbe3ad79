"""What a participant answered, call by call: the first of the three observers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec

from conformance.driver.connection import DriverConnection
from conformance.driver.errors import (
    DriverBroken,
    DriverHung,
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
from conformance.participants.cancellation import Cancellation
from conformance.participants.clock import ParticipantClock
from conformance.participants.expect import Mismatch
from conformance.participants.names import Names
from conformance.participants.patience import Patience, Wait
from conformance.participants.redis_view import RedisView
from conformance.participants.renamed_calls import adding, answer_to_scenario, call_to_client, event_to_scenario, learn
from conformance.participants.stand_in import OPEN_WITHIN_MS, Deeds, StandIn, handles_named_in
from conformance.participants.tokens import TokenNames
from conformance.participants.unanswered import added_in_redis, answer_from_redis
from conformance.protocol.keys import ID_COUNTER, META

DoneBy = Literal["self", "stand-in"]


@dataclass(frozen=True)
class RecordedCall:
    """One call and how it ended.

    `outcome` is `ok` or the error code; `value` and `args` are JSON values; `message` what the error says. `by`: the
    client itself, or the oracle that stood in for it. `unanswered`: it was done and nothing told, or what only ids
    decide: there is nothing to compare. `ended`: when (s, of the machine's monotonic clock), so that calls of two
    participants have one order.
    """

    op: str
    outcome: str
    value: Any
    args: dict[str, Any] = field(default_factory=dict, compare=False)
    handle: str = field(default="", compare=False)
    message: str = field(default="", compare=False)
    by: DoneBy = "self"
    unanswered: bool = False
    ended: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True)
class KitAct:
    """Something that the kit did to a participant between its calls: let time pass, changed a key, hurt the connection.

    `words`: `clock` and ms, `wait` and the sentence that was waited for, `network` and what was done to the connection,
    or the command that Redis was sent.
    """

    words: tuple[str, ...]
    ended: float = field(default_factory=time.monotonic, compare=False)


class Transcript:
    """The calls of one participant in one scenario, and how they ended, in order; and what the kit did between them."""

    def __init__(self) -> None:
        self.steps: list[RecordedCall | KitAct] = []
        self.step = "nothing yet"
        """What is being done now, or was done last: said where a scenario does not come to its end."""
        self.everything: list[RecordedCall] = []
        """Polled calls and those of other threads included, in the order in which they ended."""
        self.broken_in: RecordedCall | None = None
        """The call during which the driver broke."""
        self.not_refused: RecordedCall | None = None
        """The call that a scenario wanted to be refused, and that was not."""
        self.disturbed = False
        """Whether the kit has hurt its connections or its Redis, so that what it says of them may be true."""
        self._broken_begun_s = 0.0
        self._silent = 0
        self._not_compared = 0
        self._of_thread = threading.local()

    @property
    def calls(self) -> list[RecordedCall]:
        """The calls alone."""
        return [step for step in self.steps if isinstance(step, RecordedCall)]

    def note(self, call: RecordedCall) -> None:
        """Record an answer; as a step, unless the scenario is only polling."""
        if getattr(self._of_thread, "unheard", False):
            return
        if self._not_compared:
            call = replace(call, unanswered=True)
        if call.by == "self":
            self._remember(call)
        aside: list[RecordedCall] | None = getattr(self._of_thread, "calls", None)
        if aside is not None:
            aside.append(call)
        elif not self._silent:
            self.steps.append(call)

    def act(self, *words: str) -> None:
        """Record what the kit does itself, unless the scenario is only polling."""
        if not self._silent and not getattr(self._of_thread, "unheard", False):
            self.steps.append(KitAct(words))

    def disturb(self, what: str) -> None:
        """Record that the kit hurts the connections of the participant."""
        self.disturbed = True
        self.act("network", what)

    def _remember(self, call: RecordedCall) -> None:
        """A poll is one call, however often it asks."""
        last = self.everything[-1] if self.everything else None
        if last and (last.op, last.args) == (call.op, call.args):
            self.everything[-1] = call
        else:
            self.everything.append(call)

    def broke(self, call: RecordedCall, begun_s: float) -> None:
        """Record that the driver broke during a call. Of several that were under way, the one begun last did it."""
        if self.broken_in is None or begun_s > self._broken_begun_s:
            self.broken_in, self._broken_begun_s = call, begun_s

    def take_over(self, calls: list[RecordedCall]) -> None:
        """Record calls that were kept aside."""
        self.steps += calls

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Nothing is recorded inside: how often a poll asks depends on the machine."""
        self._silent += 1
        try:
            yield
        finally:
            self._silent -= 1

    @contextmanager
    def not_compared(self) -> Iterator[None]:
        """What is answered inside is no two clients' same: it runs down, or is drawn. A step all the same."""
        self._not_compared += 1
        try:
            yield
        finally:
            self._not_compared -= 1

    @contextmanager
    def unheard(self) -> Iterator[None]:
        """Inside the block, nothing is recorded of this thread: it plays one operation by several calls."""
        self._of_thread.unheard = True
        try:
            yield
        finally:
            self._of_thread.unheard = False

    @contextmanager
    def aside(self, calls: list[RecordedCall]) -> Iterator[None]:
        """Inside the block, what this thread notes goes to a list of its own."""
        self._of_thread.calls = calls
        try:
            yield
        finally:
            del self._of_thread.calls


Value = TypeVar("Value")


class Pending(Generic[Value]):
    """Runs in a thread from its construction. Its calls are recorded when `result` is asked for.

    So the order of the transcript is that of the scenario, and not of the race.
    """

    def __init__(self, work: Callable[[], Value], transcript: Transcript, cancellation: Cancellation) -> None:
        self._work = work
        self._transcript = transcript
        self._cancellation = cancellation
        self._calls: list[RecordedCall] = []
        self._values: list[Value] = []
        self.failure: BaseException | None = None
        """What it raised, if it has come to its end so."""
        # A daemon: a call that never ends must not keep the whole run from ending.
        self._thread = threading.Thread(target=self._run, name="meanwhile", daemon=True)
        self._thread.start()

    @property
    def was_replaced(self) -> bool:
        """Whether the oracle has done something of it in the client's place."""
        return any(call.by == "stand-in" for call in self._calls)

    @property
    def done(self) -> bool:
        """Whether it has come to its end."""
        return not self._thread.is_alive()

    def result(self, *, within_ms: int = 8000) -> Value:
        """Wait for what it returns. Raises what it raised, Cancelled, or Mismatch when `within_ms` have passed."""
        self._transcript.step = "waiting for the end of a call"
        for slice_ms in self._cancellation.slices(within_ms):
            self._thread.join(slice_ms / 1000)
            if self.done:
                break
        else:
            raise Mismatch("the call comes to its end", expected=f"within {within_ms} ms", actual="it still waits")
        self._transcript.take_over(self._calls)
        self._calls = []
        if self.failure is not None:
            raise self.failure
        return self._values[0]

    def settle(self, *, within_ms: int) -> None:
        """Wait for its end, whatever it is: the scenario is over."""
        self._thread.join(within_ms / 1000)

    def _run(self) -> None:
        with self._transcript.aside(self._calls):
            try:
                self._values.append(self._work())
            except BaseException as failure:  # noqa: BLE001  (it belongs to whoever asks for the result)
                self.failure = failure


Answer = TypeVar("Answer")

Role = Literal["oracle", "client", "partner"]


def json_text(value: Any) -> str:
    """A value as compact JSON text, the way scenarios hand it to both clients."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Caller:
    """The calling half of a participant: what handles are built on."""

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
        """What its prefix, its queues and their jobs are called; shared by all who work there."""
        self.places = [names]
        """All under which it may leave keys."""
        self.clock = clock
        self.cancellation = cancellation or Cancellation()
        """How the scenario is ended from outside."""
        self.stand_in = stand_in
        """Who does what the driver cannot do; nobody, for the oracle."""
        self.deeds = Deeds()
        self.patience = Patience()
        """How long waits go on, with what is known of waits before."""
        self.transcript = Transcript()
        self.unanswered: set[str] = set()
        """Operations that the client did without an answer."""
        self.busy_seconds = 0.0
        """Time spent waiting for the driver."""
        self.workers: list[str] = []
        """Handles of its workers, in the order in which they were opened."""
        self.managed = False
        """Whether a worker's own loop ran: then who woke whom depends on the machine."""
        self.played = False
        """Whether such loops were made to do what the scenario asks of a manual worker."""
        self.tokens = TokenNames()
        self._redis = redis
        self._point = point
        self._handles = count(1)
        self._opened: dict[str, lifecycle.Open] = {}
        self._own: set[str] = set()
        self._pending: list[Pending[Any]] = []

    def share(self, other: Caller) -> None:
        """Speak to the same driver as another: names of handles are not used twice, and calls have one order."""
        self.transcript, self.deeds, self.tokens = other.transcript, other.deeds, other.tokens
        self._handles, self.patience = other._handles, other.patience

    def waiting(self, what: str, within_ms: int) -> AbstractContextManager[Wait]:
        """A wait that the scenario states with this sentence."""
        self.transcript.step = f"waiting until {what}"
        # Of a partner no more is known than of the oracle: it is not what is under test.
        return self.patience.wait("client" if self.role == "client" else "oracle", what, within_ms)

    @property
    def prefix(self) -> str:
        """The key prefix, as the scenario knows it."""
        return self.names.prefix

    def redis(self, queue: str = "q") -> RedisView:
        """The queue's keys, read by the kit itself."""
        return RedisView(self._redis, self.names, queue, self.tokens, on_change=self.transcript.act)

    def sent_so_far(self) -> int:
        """A mark in what the client has sent: pass it to `sent_since`."""
        return self._point.tap.recording.mark() if self._point.tap else 0

    def sent_since(self, mark: int) -> tuple[CommandRecord, ...]:
        """What the client has sent since a mark; nothing where it has no tap."""
        return self._point.tap.recording.commands(after=mark) if self._point.tap else ()

    def can(self, capability: str) -> bool:
        """Whether the driver declares a capability."""
        return capability in self.driver.ready.capabilities

    def call(self, op: Op[Answer], *, handle: str | None = None, deadline_ms: int = 8000) -> Answer:
        """Have one operation carried out, by the stand-in where the client cannot, and note the answer.

        Raises OperationFailed, OperationUnsupported, OperationIndeterminate, Cancelled, StandInBroken or a DriverBroken
        problem.
        """
        self.cancellation.check()
        self.transcript.step = f"the call {type(op).op}"
        started = time.perf_counter()
        try:
            if self._is_own(handle):
                try:
                    return self._by_client(op, handle, deadline_ms)
                except OperationUnanswered:
                    raise  # it is done: nobody has to do it instead
                except OperationUnsupported:
                    if handle is None or not self._can_be_replaced(op, handle):
                        raise
                    if isinstance(op, lifecycle.Open):
                        self._own.discard(handle)
            return self._by_stand_in(op, handle or "", deadline_ms)
        finally:
            self.busy_seconds += time.perf_counter() - started

    def wait_event(
        self, handle: str, *, names: set[str], deadline_ms: int, where: Callable[[DriverEvent], bool] | None
    ) -> DriverEvent:
        """See `DriverConnection.wait_event`; of the twin, where the client has no such object."""
        source = self.driver if self._is_own(handle) or self.stand_in is None else self.stand_in
        queue = self._queue_of(handle)

        def matches(event: DriverEvent) -> bool:
            return where is None or where(event_to_scenario(self.names, queue, event))

        event = source.wait_event(handle, names=names, deadline_ms=deadline_ms, where=matches)
        return event_to_scenario(self.names, queue, event)

    def open(self, role: lifecycle.Role, queue: str, *, processor: str | None = None, **settings: Any) -> str:
        """Open a handle and return its name. Where the client cannot have such an object, its twin is opened.

        Raises OperationUnsupported where there is no stand-in either.
        """
        handle = self.register(role, queue, processor=processor, **settings)
        self.managed = self.managed or processor not in (None, "manual")
        op = self._opened[handle]
        missing = what_is_missing(op, self.driver.ready)
        if not missing:
            self._own.add(handle)
        elif self.stand_in is None:
            raise OperationUnsupported(f"open of a {role}", f"the driver does not declare {missing}")
        try:
            self.call(op, handle=handle, deadline_ms=OPEN_WITHIN_MS)
        except OperationUnsupported:
            self._own.discard(handle)
            raise
        if goes_on := what_goes_on_by_itself(op):
            (self.deeds.own if self._is_own(handle) else self.deeds.stand_in).add(goes_on)
        return handle

    def register(self, role: lifecycle.Role, queue: str, *, processor: str | None = None, **settings: Any) -> str:
        """Give an object a name and open nothing: what is asked of it is done by a twin."""
        handle = f"{role}-{next(self._handles)}"
        self._opened[handle] = lifecycle.Open(
            role=role,
            queue=queue,
            prefix=self.prefix,
            redis=self._point.address,
            processor=processor,  # type: ignore[arg-type]  # the schema refuses what is not a processor
            processor_args=settings.pop("processor_args", {}),
            options=settings,
        )
        return handle

    def reports_by_itself(self, handle: str) -> bool:
        """Whether a worker sends events of its own."""
        return not self._is_own(handle) or "worker-events" not in self.driver.ready.lacks

    def _is_own(self, handle: str | None) -> bool:
        """Whether the client has this object itself."""
        return handle is None or handle in self._own

    def _can_be_replaced(self, op: Op[Any], handle: str) -> bool:
        """Whether the oracle may do what the client cannot do with this object.

        Not with a worker whose loop runs: its twin would be a second one, and take jobs away from it.
        """
        opened = self._opened[handle]
        runs = opened.role == "worker" and opened.processor != "manual" and not isinstance(op, lifecycle.Open)
        return self.stand_in is not None and not runs

    def _by_client(self, op: Op[Answer], handle: str | None, deadline_ms: int) -> Answer:
        name, args, unanswered = type(op).op, msgspec.to_builtins(op), False
        queue, begun_s = self._queue_of(handle), time.monotonic()
        try:
            with self._counting(queue, op):
                sent = call_to_client(self.names, queue, op)
                try:
                    told = self.driver.call(sent, handle=handle, deadline_ms=deadline_ms, now_ms=self.clock.call_ms())
                    answer = self._heard(queue, op, told)
                except OperationUnanswered:
                    unanswered = True
                    answer = self._untold(queue, op)
        except OperationFailed as failure:
            self.deeds.own.add(name)
            self.transcript.note(_failed(name, args, handle or "", failure))
            raise
        except DriverBroken as broken:
            self.deeds.own.add(name)
            # A call that hangs takes those with it that were under way beside it.
            if not isinstance(broken, DriverHung) or broken.op == name:
                call = RecordedCall(name, "driver-broken", None, args, handle or "", str(broken))
                self.transcript.broke(call, begun_s)
            raise
        self.deeds.own.add(name)
        # How much Redis trims at once hangs on the bytes of the entries, and those on the ids in them.
        by_bytes = isinstance(op, TrimEvents) and self.names.ids(queue).differ
        value = None if unanswered else msgspec.to_builtins(answer)
        self.transcript.note(RecordedCall(name, "ok", value, args, handle or "", unanswered=unanswered or by_bytes))
        if isinstance(op, lifecycle.Close) and handle is not None and self.stand_in and self.stand_in.has(handle):
            self.stand_in.call(op, handle, deadline_ms=deadline_ms, now_ms=self.clock.call_ms())
        return answer

    def _by_stand_in(self, op: Op[Answer], handle: str, deadline_ms: int) -> Answer:
        name, args, now_ms = type(op).op, msgspec.to_builtins(op), self.clock.call_ms()
        assert self.stand_in is not None
        self.deeds.stand_in.add(name)
        queue = self._queue_of(handle)
        try:
            for other in (handle, *handles_named_in(op)):
                opened = self._opened[other]
                given = msgspec.structs.replace(
                    opened, prefix=self.names.client_prefix, queue=self.names.client_queue(opened.queue)
                )
                self.stand_in.open(other, given, beside=other in self._own, now_ms=now_ms)
            if isinstance(op, lifecycle.Open):
                answer = cast("Answer", Nothing())
            else:
                with self._counting(queue, op):
                    sent = call_to_client(self.names, queue, op)
                    told = self.stand_in.call(sent, handle, deadline_ms=deadline_ms, now_ms=now_ms)
                    answer = self._heard(queue, op, told, by="stand-in")
        except OperationFailed as failure:
            self.transcript.note(_failed(name, args, handle, failure, by="stand-in"))
            raise
        self.transcript.note(RecordedCall(name, "ok", msgspec.to_builtins(answer), args, handle, by="stand-in"))
        return answer

    def _queue_of(self, handle: str | None) -> str:
        """The queue of an object, by the scenario's name; empty where it has none."""
        return self._opened[handle].queue if handle in self._opened else ""

    @contextmanager
    def _counting(self, queue: str, op: Op[Answer]) -> Iterator[None]:
        """While the call of an operation goes on that moves the counters of ids."""
        with ExitStack() as stack:
            stack.enter_context(adding(self.names, queue, op))
            if isinstance(op, Obliterate):
                stack.enter_context(self.names.ids(queue).obliterating(lambda: self._is_gone(queue)))
            yield

    def _heard(self, queue: str, op: Op[Answer], answer: Answer, *, by: DoneBy = "self") -> Answer:
        """An answer in the names of the scenario, after the ids in it were taken.

        What the client under test itself names otherwise than Node is kept.
        """
        other = learn(self.names, queue, op, answer, counter=self._counter)
        if self.role == "client" and by == "self":
            self.names.deviations = {**other, **self.names.deviations}
        return answer_to_scenario(self.names, queue, op, answer)

    def _untold(self, queue: str, op: Op[Answer]) -> Answer:
        """What Redis can tell of an operation that the client did without an answer."""
        self.unanswered.add(type(op).op)
        added = added_in_redis(op, self.redis(queue), self.names.ids(queue))
        return answer_from_redis(op, self.redis(queue)) if added is None else self._heard(queue, op, added)

    def _is_gone(self, queue: str) -> bool:
        """Whether nothing says any more that there is such a queue."""
        return not self._redis.exists(self.names.client_base(queue) + META)

    def _counter(self, queue: str) -> int:
        """Where the counter of ids stands in Redis."""
        return int(self._redis.get(self.names.client_base(queue) + ID_COUNTER) or 0)


def what_goes_on_by_itself(opened: lifecycle.Open) -> str:
    """What an object does from now on without being asked: no operation of the protocol, and yet a deed; else empty."""
    if opened.role == "events":
        return EVENTS_READ
    return WORKER_RUN if opened.role == "worker" and opened.processor != "manual" else ""


def what_is_missing(opened: lifecycle.Open, ready: Ready) -> str:
    """What the driver would have to declare for this object to be of use; empty if it declares that."""
    if opened.role == "worker":
        style = "manual-worker" if opened.processor == "manual" else "managed-worker"
        return "" if style in ready.capabilities else f"the capability {style}"
    if opened.role == "flow":
        return "" if any(name.startswith("flow.") for name in ready.ops) else "any operation of a flow"
    return ""


def _failed(
    name: str, args: dict[str, Any], handle: str, failure: OperationFailed, *, by: DoneBy = "self"
) -> RecordedCall:
    """A call that certainly did nothing."""
    return RecordedCall(name, failure.error.code, None, args, handle, failure.error.message, by)
