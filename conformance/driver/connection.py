"""The kit's side of one driver: calls and events, synchronous and safe to use from several threads."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import msgspec

from conformance.driver.breakdowns import Breakdowns
from conformance.driver.errors import (
    DriverBroken,
    DriverCrashed,
    DriverError,
    DriverHung,
    EventTimeout,
    HandshakeFailed,
    OperationFailed,
    OperationIndeterminate,
    OperationUnanswered,
    OperationUnsupported,
    SchemaViolation,
    WrongId,
)
from conformance.driver.messages import (
    MAX_LINE_BYTES,
    PROTOCOL_VERSION,
    Call,
    DriverEvent,
    DriverLine,
    Hello,
    Ready,
    Result,
    convert,
    decode,
    encode,
)
from conformance.driver.ops.base import Nothing, Op
from conformance.driver.ops.lifecycle import Open, Reset
from conformance.driver.run_queue import RunQueue
from conformance.problems import UsageProblem

DEFAULT_DEADLINE_MS = 5000
HANDSHAKE_DEADLINE_MS = 20_000
EXTENSIONS = 5
"""So often is a deadline put off by what the machine took from a driver, each time by what it took since the last."""
LEAST_EXTENSION_MS = 100
LOG_LINES = 20
LARGEST_ID_STEP = 9

Answer = TypeVar("Answer")
Found = TypeVar("Found")


class DriverConnection(Protocol):
    """What the gate, the probe and the checks know of a driver."""

    @property
    def ready(self) -> Ready:
        """What the driver said of itself in the handshake."""
        ...

    @property
    def seed(self) -> int:
        """What the driver was told to draw its random numbers from."""
        ...

    @property
    def alive(self) -> bool:
        """Whether calls can still be answered."""
        ...

    def call(
        self,
        op: Op[Answer],
        *,
        handle: str | None = None,
        deadline_ms: int = DEFAULT_DEADLINE_MS,
        now_ms: int | None = None,
    ) -> Answer:
        """Carry out one operation.

        `deadline_ms`: a driver that has not answered by then is killed; less is allowed once the operation has hung
        (`driver.breakdowns`). `now_ms` (Unix ms) is sent to drivers with the
        capability `clock` only. Raises OperationUnsupported (without sending anything when the driver does not declare
        the operation), OperationUnanswered (it is done), OperationFailed, OperationIndeterminate, OperationGivenUp or a
        DriverBroken.
        """
        ...

    def call_raw(
        self, op: str, args: dict[str, Any], *, handle: str | None = None, deadline_ms: int = DEFAULT_DEADLINE_MS
    ) -> Result:
        """Send any operation name, declared or not, and return the result as it came. Raises DriverBroken."""
        ...

    def wait_event(
        self, handle: str, *, names: set[str], deadline_ms: int, where: Callable[[DriverEvent], bool] | None = None
    ) -> DriverEvent:
        """Take the first event with one of the names for which `where` holds; others stay queued in order.

        Raises EventTimeout or a DriverBroken.
        """
        ...

    def take_events(self, handle: str) -> list[DriverEvent]:
        """All events of the handle that nobody has taken yet."""
        ...

    def log_tail(self, lines: int = LOG_LINES) -> list[str]:
        """Return the last lines of the driver's log."""
        ...

    def close(self) -> bool:
        """End the driver: first by the end of its stdin, then by force. True when it left by itself."""
        ...

    def kill(self) -> None:
        """End the driver by force, as in a crash."""
        ...


class DriverSession(ABC):
    """A `DriverConnection` without its transport: the handshake, calls, answers and what they must look like.

    `ChildProcess` and `InProcess` (transports.py) are the two transports.
    """

    def __init__(self, label: str, *, seed: int, breakdowns: Breakdowns | None = None) -> None:
        self.label = label
        """How messages name this driver."""
        self.breakdowns = breakdowns or Breakdowns()
        """What is known of operations that do not come back, also from before this driver was started again."""
        self.seed = seed
        """What the driver is told to draw its random numbers from."""
        self._mailbox = Mailbox(seed)
        self._ready: Ready | None = None

    @property
    def ready(self) -> Ready:
        """What the driver said of itself in the handshake."""
        if self._ready is None:
            raise self._broken(HandshakeFailed("the handshake is not done"))
        return self._ready

    @property
    def alive(self) -> bool:
        """Whether calls can still be answered."""
        return self._mailbox.broken is None and self._ending() is None

    def call(
        self,
        op: Op[Answer],
        *,
        handle: str | None = None,
        deadline_ms: int = DEFAULT_DEADLINE_MS,
        now_ms: int | None = None,
    ) -> Answer:
        """See `DriverConnection.call`."""
        name = type(op).op
        if name not in self.ready.ops:
            raise OperationUnsupported(name, "the driver does not declare it")
        if isinstance(op, Open) and handle is not None:
            self._mailbox.take_events(handle)  # of an earlier object under the same name
        clock = now_ms if "clock" in self.ready.capabilities else None
        result = self._exchange(name, msgspec.to_builtins(op), handle, deadline_ms, clock)
        answer = self._answer(op, result)
        if isinstance(op, Reset):
            self._mailbox.forget_events()
        return answer

    def call_raw(
        self, op: str, args: dict[str, Any], *, handle: str | None = None, deadline_ms: int = DEFAULT_DEADLINE_MS
    ) -> Result:
        """See `DriverConnection.call_raw`."""
        return self._exchange(op, args, handle, deadline_ms, None)

    def wait_event(
        self, handle: str, *, names: set[str], deadline_ms: int, where: Callable[[DriverEvent], bool] | None = None
    ) -> DriverEvent:
        """See `DriverConnection.wait_event`."""
        return self._mailbox.wait_event(handle, names, deadline_ms, where)

    def take_events(self, handle: str) -> list[DriverEvent]:
        """See `DriverConnection.take_events`."""
        return self._mailbox.take_events(handle)

    @abstractmethod
    def log_tail(self, lines: int = LOG_LINES) -> list[str]:
        """Return the last lines of the driver's log."""

    @abstractmethod
    def close(self) -> bool:
        """End the driver: first by the end of its stdin, then by force. True when it left by itself."""

    @abstractmethod
    def kill(self) -> None:
        """End the driver by force, as in a crash."""

    @abstractmethod
    def _send(self, line: bytes) -> None:
        """Hand a line to the driver without ever blocking: a driver that does not read must not hold up the kit."""

    @abstractmethod
    def _ending(self) -> DriverBroken | None:
        """Return what to say when the driver has ended by itself; None while it runs."""

    @abstractmethod
    def _ask_where_it_stands(self) -> None:
        """Let a driver that hangs, and is about to be ended, say in its log where."""

    @property
    @abstractmethod
    def _process_id(self) -> int | None:
        """Of the driver; None where it has no process of its own."""

    def _patiently(self, wait: Callable[[int], Found | None], deadline_ms: int) -> Found | None:
        """Wait for something, until the driver has had so much time: that in which it was not let run does not count.

        Only the second half is looked at, so that an answer that comes at once costs nothing more.
        """
        found = wait(deadline_ms // 2)
        left_ms, run_queue = deadline_ms - deadline_ms // 2, RunQueue()
        for _ in range(EXTENSIONS + 1):
            if found is not None or left_ms <= 0:
                break
            run_queue.newly_waited_s(self._process_id)
            found = wait(left_ms)
            lost_ms = int(run_queue.newly_waited_s(self._process_id) * 1000)
            left_ms = min(left_ms, lost_ms) if lost_ms >= LEAST_EXTENSION_MS else 0
        return found

    def _shake_hands(self, deadline_ms: int) -> None:
        """Say hello and wait for a usable `ready`. Raises DriverBroken; the driver is killed then."""
        self._send(encode(Hello(protocol=PROTOCOL_VERSION, seed=self.seed)))
        ready = self._patiently(self._mailbox.wait_ready, deadline_ms)
        if ready is None:
            raise self._give_up(self._ending() or _no_ready(deadline_ms))
        if ready.protocol != PROTOCOL_VERSION:
            raise self._give_up(_other_version(ready.protocol))
        self._ready = ready

    def _exchange(
        self, op: str, args: dict[str, Any], handle: str | None, deadline_ms: int, now_ms: int | None
    ) -> Result:
        if self._mailbox.broken is not None:
            raise self._mailbox.broken.with_traceback(None)
        deadline_ms = self.breakdowns.deadline_ms(op, deadline_ms)
        # Open before it is sent: a driver that answers at once would otherwise be blamed for an unknown id.
        call_id = self._mailbox.open_call(op)
        line = encode(Call(id=call_id, op=op, args=args, handle=handle, deadline_ms=deadline_ms, now_ms=now_ms))
        if len(line) > MAX_LINE_BYTES:
            raise UsageProblem(f"a call of {op} takes {len(line)} bytes, the protocol allows {MAX_LINE_BYTES}")
        with self.breakdowns.answering(op):
            self._send(line)
            try:
                result = self._patiently(partial(self._mailbox.wait_result, call_id), deadline_ms)
            except DriverCrashed:
                self._note_crash(op, call_id)
                raise
            if result is None:
                raise self._unanswered(op, deadline_ms)
        return result

    def _note_crash(self, op: str, call_id: int) -> None:
        """Of several calls that were under way, nobody can say which ended the driver."""
        if self._mailbox.is_only_call(call_id):
            self.breakdowns.crashed(op)

    def _unanswered(self, op: str, deadline_ms: int) -> DriverBroken:
        """End the driver that has not answered in time. Returns what to raise."""
        ending = self._ending()
        if ending is None:
            self.breakdowns.hung(op)
            self._ask_where_it_stands()
        return self._give_up(ending or DriverHung(op, deadline_ms))

    def _answer(self, op: Op[Answer], result: Result) -> Answer:
        """Return the typed answer of an `ok`; raise for everything else."""
        name = type(op).op
        if result.status == "unsupported":
            raise OperationUnsupported(name, result.reason or "the driver gives no reason")
        if result.status != "ok":
            error = result.error or DriverError(message="the driver gives no reason")
            if result.status == "info" or not error.definite:
                raise OperationIndeterminate(name, error)
            raise OperationFailed(name, error)
        wanted = type(op).answer
        if result.no_answer and wanted is not Nothing:
            raise OperationUnanswered(name)
        value = {} if result.value is None and wanted is Nothing else result.value
        try:
            return cast("Answer", convert(value, wanted, f"the answer to {name}"))
        except SchemaViolation as problem:
            raise self._broken(problem) from None

    def _broken(self, problem: DriverBroken) -> DriverBroken:
        """Add the name of the driver and the end of its log to a problem."""
        problem.driver = self.label
        problem.log = tuple(self.log_tail())
        return problem

    def _give_up(self, problem: DriverBroken) -> DriverBroken:
        """Make the problem the final one of this driver and end the driver. Returns what to raise."""
        first = self._mailbox.break_with(self._broken(problem))
        self.kill()
        return first


def _no_ready(deadline_ms: int) -> HandshakeFailed:
    return HandshakeFailed(
        f"it did not answer `hello` within {deadline_ms} ms and was killed",
        hint="read a line from stdin and answer with `ready`; flush stdout after every line",
    )


def _other_version(version: int) -> HandshakeFailed:
    return HandshakeFailed(
        f"it speaks version {version} of the driver protocol, this kit speaks version {PROTOCOL_VERSION}",
        hint="the field `protocol` of `ready` is the version of the driver protocol, not of the client",
    )


class Mailbox:
    """What a driver has sent and nobody has taken yet: results by call id, events by handle. Thread-safe, no I/O.

    Filled by the reader of one driver, emptied by any number of callers. As soon as the driver breaks, every caller
    gets the same `DriverBroken`; what came before can still be taken.
    """

    def __init__(self, seed: int) -> None:
        self._changed = threading.Condition()
        # Ids go up by irregular steps, so that a driver that counts by itself instead of copying them is found out.
        self._random = random.Random(seed)
        self._last_id = 0
        self._open: dict[int, str] = {}
        self._results: dict[int, Result] = {}
        self._events: dict[str, list[DriverEvent]] = {}
        self._ready: Ready | None = None
        self._broken: DriverBroken | None = None

    @property
    def broken(self) -> DriverBroken | None:
        """What is wrong with the driver, if something is."""
        return self._broken

    def receive(self, line: bytes) -> None:
        """Take in one line, without its newline. Raises DriverBroken for a line that breaks the protocol."""
        message = decode(line)
        with self._changed:
            self._store(message)
            # All of them: one waiter woken for the answer of another would leave that one waiting until its deadline.
            self._changed.notify_all()

    def break_with(self, problem: DriverBroken) -> DriverBroken:
        """Note that the driver is unusable and wake everybody. The first problem stays; it is returned."""
        with self._changed:
            if self._broken is None:
                self._broken = problem
            self._changed.notify_all()
            return self._broken

    def activity(self) -> str:
        """Say what the driver is busy with, for messages."""
        with self._changed:
            if self._ready is None:
                return "the handshake"
            return ", ".join(self._open.values()) or "no call"

    def open_call(self, op: str) -> int:
        """Expect the result of a call and return its id."""
        with self._changed:
            self._last_id += self._random.randint(1, LARGEST_ID_STEP)
            self._open[self._last_id] = op
            return self._last_id

    def is_only_call(self, call_id: int) -> bool:
        """Whether the driver has this call to answer and no other."""
        with self._changed:
            return list(self._open) == [call_id]

    def wait_ready(self, deadline_ms: int) -> Ready | None:
        """Return the driver's first line, or None when it did not come in time. Raises DriverBroken."""
        with self._changed:
            self._wait(lambda: self._ready is not None, deadline_ms)
            return self._ready

    def wait_result(self, call_id: int, deadline_ms: int) -> Result | None:
        """Return the result of a call, or None when it did not come in time. Raises DriverBroken."""
        with self._changed:
            self._wait(lambda: call_id in self._results, deadline_ms)
            return self._results.pop(call_id, None)

    def wait_event(
        self, handle: str, names: Collection[str], deadline_ms: int, where: Callable[[DriverEvent], bool] | None
    ) -> DriverEvent:
        """Take the first matching event of a handle; all others stay, in order. Raises EventTimeout, DriverBroken."""

        def position() -> int | None:
            for index, event in enumerate(self._events.get(handle, ())):
                if event.name in names and (where is None or where(event)):
                    return index
            return None

        with self._changed:
            self._wait(lambda: position() is not None, deadline_ms)
            # Asked again under the same lock: no other caller can have taken the event in between.
            index = position()
            if index is None:
                waiting = (f"{event.name} {event.args}" for event in self._events.get(handle, ()))
                raise EventTimeout(handle, names, deadline_ms, waiting)
            return self._events[handle].pop(index)

    def take_events(self, handle: str) -> list[DriverEvent]:
        """All events of a handle that nobody has taken yet."""
        with self._changed:
            return self._events.pop(handle, [])

    def forget_events(self) -> None:
        """Drop the events of every handle."""
        with self._changed:
            self._events.clear()

    def _wait(self, arrived: Callable[[], bool], deadline_ms: int) -> None:
        """Wait until it has arrived, the deadline (ms from now) has passed or the driver broke; raises the last."""
        deadline = time.monotonic() + deadline_ms / 1000
        while not arrived():
            if self._broken is not None:
                raise self._broken.with_traceback(None)
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not self._changed.wait(remaining):
                return

    def _store(self, message: DriverLine) -> None:
        if isinstance(message, Ready):
            self._store_ready(message)
        elif self._ready is None:
            raise HandshakeFailed(
                "its first line is not `ready`", hint="answer the line `hello` with `ready` before anything else"
            )
        elif isinstance(message, Result):
            self._store_result(message)
        else:
            self._events.setdefault(message.handle, []).append(message)

    def _store_ready(self, ready: Ready) -> None:
        if self._ready is not None:
            raise HandshakeFailed("it sent `ready` twice", hint="send `ready` once, as the answer to `hello`")
        self._ready = ready

    def _store_result(self, result: Result) -> None:
        if result.id not in self._open:
            raise WrongId(result.id, self._open)
        del self._open[result.id]
        self._results[result.id] = result
