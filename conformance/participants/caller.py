"""What a participant answered, call by call: the first of the three observers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, Literal, TypeVar

import msgspec

from conformance.driver.connection import DriverConnection
from conformance.driver.errors import DriverBroken, OperationFailed
from conformance.driver.ops import Op, lifecycle
from conformance.environment.drivers import TapPoint
from conformance.participants.clock import ParticipantClock
from conformance.participants.expect import Mismatch
from conformance.participants.redis_view import RedisView


@dataclass(frozen=True)
class RecordedCall:
    """One call and how it ended.

    `outcome` is `ok` or the error code; `value` the answer and `args` the request as JSON values; `message` what the
    error says. `ended`: when (s, of the machine's monotonic clock), so that calls of two participants have one order.
    """

    op: str
    outcome: str
    value: Any
    args: dict[str, Any] = field(default_factory=dict)
    handle: str = ""
    message: str = ""
    ended: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True)
class KitAct:
    """Something that the kit did to a participant between its calls: time passed, or a key of it was changed.

    `words`: `clock` and ms, `wait` and the sentence that was waited for, or the command that Redis was sent.
    """

    words: tuple[str, ...]
    ended: float = field(default_factory=time.monotonic, compare=False)


class Transcript:
    """The calls of one participant in one scenario, and how they ended, in order; and what the kit did between them."""

    def __init__(self) -> None:
        self.steps: list[RecordedCall | KitAct] = []
        self.everything: list[RecordedCall] = []
        """Polled calls and those of other threads included, in the order in which they ended."""
        self.broken_in: RecordedCall | None = None
        """The call during which the driver broke."""
        self._silent = 0
        self._of_thread = threading.local()

    @property
    def calls(self) -> list[RecordedCall]:
        """The calls alone."""
        return [step for step in self.steps if isinstance(step, RecordedCall)]

    def note(
        self,
        op: str,
        outcome: str,
        value: Any,
        *,
        args: dict[str, Any] | None = None,
        handle: str = "",
        message: str = "",
    ) -> None:
        """Record an answer; as a step, unless the scenario is only polling."""
        call = RecordedCall(op, outcome, value, args or {}, handle, message)
        self._remember(call)
        aside: list[RecordedCall] | None = getattr(self._of_thread, "calls", None)
        if aside is not None:
            aside.append(call)
        elif not self._silent:
            self.steps.append(call)

    def act(self, *words: str) -> None:
        """Record what the kit does itself, unless the scenario is only polling."""
        if not self._silent:
            self.steps.append(KitAct(words))

    def _remember(self, call: RecordedCall) -> None:
        """A poll is one call, however often it asks."""
        last = self.everything[-1] if self.everything else None
        if last and (last.op, last.args) == (call.op, call.args):
            self.everything[-1] = call
        else:
            self.everything.append(call)

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
        self, role: Role, driver: DriverConnection, *, redis: Any, point: TapPoint, prefix: str, clock: ParticipantClock
    ) -> None:
        self.role = role
        self.driver = driver
        self.prefix = prefix
        self.prefixes = [prefix]
        """All under which it may leave keys."""
        self.clock = clock
        self.transcript = Transcript()
        self.busy_seconds = 0.0
        """Time spent waiting for the driver."""
        self.workers: list[str] = []
        """Handles of its workers, in the order in which they were opened."""
        self.managed = False
        """Whether a worker's own loop ran: then who woke whom depends on the machine."""
        self._redis = redis
        self._point = point
        self._handles = count(1)
        self._pending: list[Pending[Any]] = []

    def share(self, other: Caller) -> None:
        """Speak to the same driver as another: names of handles are not used twice, and calls have one order."""
        self.transcript, self._handles = other.transcript, other._handles

    def redis(self, queue: str = "q") -> RedisView:
        """The queue's keys, read by the kit itself."""
        return RedisView(self._redis, self.prefix, queue, on_change=self.transcript.act)

    def can(self, capability: str) -> bool:
        """Whether the driver declares a capability."""
        return capability in self.driver.ready.capabilities

    def call(self, op: Op[Answer], *, handle: str | None = None, deadline_ms: int = 8000) -> Answer:
        """Send one operation and note the answer.

        Raises OperationFailed, OperationUnsupported, OperationIndeterminate or a DriverBroken problem.
        """
        started = time.perf_counter()
        name = type(op).op
        args: dict[str, Any] = msgspec.to_builtins(op)
        on = handle or ""
        try:
            answer = self.driver.call(op, handle=handle, deadline_ms=deadline_ms, now_ms=self.clock.call_ms())
        except OperationFailed as failure:
            error = failure.error
            self.transcript.note(name, error.code, None, args=args, handle=on, message=error.message)
            raise
        except DriverBroken as broken:
            self.transcript.broken_in = RecordedCall(name, "driver-broken", None, args, on, str(broken))
            raise
        finally:
            self.busy_seconds += time.perf_counter() - started
        self.transcript.note(name, "ok", msgspec.to_builtins(answer), args=args, handle=on)
        return answer

    def open(self, role: lifecycle.Role, queue: str, *, processor: str | None = None, **settings: Any) -> str:
        """Open a handle and return its name."""
        handle = f"{role}-{next(self._handles)}"
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
