"""What a participant answered, call by call: the first of the three observers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, Literal, TypeVar

import msgspec

from conformance.driver.connection import DriverConnection
from conformance.driver.errors import DriverBroken, OperationFailed, OperationUnanswered
from conformance.driver.messages import DriverEvent
from conformance.driver.ops import Op, lifecycle
from conformance.driver.ops.queue import Obliterate, TrimEvents
from conformance.environment.drivers import TapPoint
from conformance.participants.clock import ParticipantClock
from conformance.participants.expect import Mismatch
from conformance.participants.names import Names
from conformance.participants.redis_view import RedisView
from conformance.participants.renamed_calls import adding, answer_to_scenario, call_to_client, event_to_scenario, learn
from conformance.participants.unanswered import added_in_redis, answer_from_redis
from conformance.protocol.keys import ID_COUNTER, META


@dataclass(frozen=True)
class RecordedCall:
    """One call and how it ended. `outcome` is `ok` or the error code; `value` and `args` are JSON values.

    `unanswered`: the client did it and told nothing, or what only its ids decide: there is nothing to compare.
    """

    op: str
    outcome: str
    value: Any
    args: dict[str, Any] = field(default_factory=dict, compare=False)
    unanswered: bool = False


class Transcript:
    """The calls of one participant in one scenario, and how they ended, in order."""

    def __init__(self) -> None:
        self.calls: list[RecordedCall] = []
        self.everything: list[RecordedCall] = []
        """Polled calls and those of other threads included, in the order in which they ended."""
        self.broken_in: RecordedCall | None = None
        """The call during which the driver broke."""
        self._silent = 0
        self._of_thread = threading.local()

    def note(
        self, op: str, outcome: str, value: Any, args: dict[str, Any] | None = None, *, unanswered: bool = False
    ) -> None:
        """Record an answer, unless the scenario is only polling."""
        call = RecordedCall(op, outcome, value, args or {}, unanswered)
        self._remember(call)
        aside: list[RecordedCall] | None = getattr(self._of_thread, "calls", None)
        if aside is not None:
            aside.append(call)
        elif not self._silent:
            self.calls.append(call)

    def _remember(self, call: RecordedCall) -> None:
        """A poll is one call, however often it asks."""
        last = self.everything[-1] if self.everything else None
        if last and (last.op, last.args) == (call.op, call.args):
            self.everything[-1] = call
        else:
            self.everything.append(call)

    def take_over(self, calls: list[RecordedCall]) -> None:
        """Record calls that were kept aside."""
        self.calls += calls

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Nothing is recorded inside: how often a poll asks depends on the machine."""
        self._silent += 1
        try:
            yield
        finally:
            self._silent -= 1

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

    def __init__(self, work: Callable[[], Value], transcript: Transcript) -> None:
        self._work = work
        self._transcript = transcript
        self._calls: list[RecordedCall] = []
        self._values: list[Value] = []
        self.failure: BaseException | None = None
        """What it raised, if it has come to its end so."""
        # A daemon: a call that never ends must not keep the whole run from ending.
        self._thread = threading.Thread(target=self._run, name="meanwhile", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it has come to its end."""
        return not self._thread.is_alive()

    def result(self, *, within_ms: int = 8000) -> Value:
        """Wait for what it returns. Raises what it raised, or Mismatch when `within_ms` have passed."""
        self._thread.join(within_ms / 1000)
        if not self.done:
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

Role = Literal["oracle", "client"]


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
    ) -> None:
        self.role = role
        self.driver = driver
        self.names = names
        """What its prefix, its queues and their jobs are called; shared by all who work there."""
        self.places = [names]
        """All under which it may leave keys."""
        self.clock = clock
        self.transcript = Transcript()
        self.unanswered: set[str] = set()
        """Operations that the client did without an answer."""
        self.busy_seconds = 0.0
        """Time spent waiting for the driver."""
        self.workers: list[str] = []
        """Handles of its workers, in the order in which they were opened."""
        self.managed = False
        """Whether a worker's own loop ran: then who woke whom depends on the machine."""
        self._redis = redis
        self._point = point
        self._handles = count(1)
        self._queues: dict[str | None, str] = {}
        """Of which queue a handle is, by the scenario's name."""
        self._pending: list[Pending[Any]] = []

    def share(self, other: Caller) -> None:
        """Speak to the same driver as another: names of handles are not used twice, and calls have one order."""
        self.transcript, self._handles, self._queues = other.transcript, other._handles, other._queues

    @property
    def prefix(self) -> str:
        """The key prefix, as the scenario knows it."""
        return self.names.prefix

    def redis(self, queue: str = "q") -> RedisView:
        """The queue's keys, read by the kit itself."""
        return RedisView(self._redis, self.names, queue)

    def can(self, capability: str) -> bool:
        """Whether the driver declares a capability."""
        return capability in self.driver.ready.capabilities

    def call(self, op: Op[Answer], *, handle: str | None = None, deadline_ms: int = 8000) -> Answer:
        """Send one operation and note the answer.

        Raises OperationFailed, OperationUnsupported, OperationIndeterminate or a DriverBroken problem.
        """
        queue, name = self._queues.get(handle, ""), type(op).op
        args: dict[str, Any] = msgspec.to_builtins(op)
        with self._counting(queue, op):
            try:
                answer = self._call(call_to_client(self.names, queue, op), handle, deadline_ms)
            except OperationFailed as failure:
                self.transcript.note(name, failure.error.code, None, args)
                raise
            except DriverBroken:
                self.transcript.broken_in = RecordedCall(name, "driver-broken", None, args)
                raise
            except OperationUnanswered:
                self.transcript.note(name, "ok", None, args, unanswered=True)
                self.unanswered.add(name)
                added = added_in_redis(op, self.redis(queue), self.names.ids(queue))
                return answer_from_redis(op, self.redis(queue)) if added is None else self._heard(queue, op, added)
            answer = self._heard(queue, op, answer)
        # How much Redis trims at once hangs on the bytes of the entries, and those on the ids in them.
        by_bytes = isinstance(op, TrimEvents) and self.names.ids(queue).differ
        self.transcript.note(name, "ok", msgspec.to_builtins(answer), args, unanswered=by_bytes)
        return answer

    def translated(self, handle: str, event: DriverEvent) -> DriverEvent:
        """An event of a handle, in the names of the scenario."""
        return event_to_scenario(self.names, self._queues.get(handle, ""), event)

    def _call(self, op: Op[Answer], handle: str | None, deadline_ms: int) -> Answer:
        started = time.perf_counter()
        try:
            return self.driver.call(op, handle=handle, deadline_ms=deadline_ms, now_ms=self.clock.call_ms())
        finally:
            self.busy_seconds += time.perf_counter() - started

    @contextmanager
    def _counting(self, queue: str, op: Op[Answer]) -> Iterator[None]:
        """While the call of an operation goes on that moves the counters of ids."""
        with ExitStack() as stack:
            stack.enter_context(adding(self.names, queue, op))
            if isinstance(op, Obliterate):
                stack.enter_context(self.names.ids(queue).obliterating(lambda: self._is_gone(queue)))
            yield

    def _heard(self, queue: str, op: Op[Answer], answer: Answer) -> Answer:
        """An answer in the names of the scenario, after the ids in it were taken.

        What the client under test names otherwise than Node is kept.
        """
        other = learn(self.names, queue, op, answer, counter=self._counter)
        if self.role == "client":
            self.names.deviations = {**other, **self.names.deviations}
        return answer_to_scenario(self.names, queue, op, answer)

    def _is_gone(self, queue: str) -> bool:
        """Whether nothing says any more that there is such a queue."""
        return not self._redis.exists(self.names.client_base(queue) + META)

    def _counter(self, queue: str) -> int:
        """Where the counter of ids stands in Redis."""
        return int(self._redis.get(self.names.client_base(queue) + ID_COUNTER) or 0)

    def open(self, role: lifecycle.Role, queue: str, *, processor: str | None = None, **settings: Any) -> str:
        """Open a handle and return its name."""
        handle = f"{role}-{next(self._handles)}"
        self._queues[handle] = queue
        self.managed = self.managed or processor not in (None, "manual")
        op = lifecycle.Open(
            role=role,
            queue=queue,
            prefix=self.prefix,
            redis=self._point.address,
            processor=processor,  # type: ignore[arg-type]  # the schema refuses what is not a processor
            processor_args=settings.pop("processor_args", {}),
            options=settings,
        )
        self.call(op, handle=handle, deadline_ms=15_000)
        return handle
