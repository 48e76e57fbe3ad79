"""The kit's connection to one driver: synchronous, thread-safe calls and events."""

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
from conformance.driver.sending import note_sent
from conformance.problems import UsageProblem

DEFAULT_DEADLINE_MS = 5000
HANDSHAKE_DEADLINE_MS = 20_000
EXTENSIONS = 5
"""A deadline is extended at most this often by the driver's CPU starvation since the last extension."""
LEAST_EXTENSION_MS = 100
"""Less starvation than this does not explain a missing answer."""
NEEDED_BY_ALL = frozenset({"open", "close", "reset", "clock", "raw-data", "cluster"})
"""Operations and capabilities without which a driver that counts only others could not be checked."""
LOG_LINES = 20
LARGEST_ID_STEP = 9

Answer = TypeVar("Answer")
Found = TypeVar("Found")


class DriverConnection(Protocol):
    """A driver, as the gate, the probe and the checks use it."""

    breakdowns: Breakdowns
    """How its calls have ended, including those before a restart of the driver."""

    @property
    def ready(self) -> Ready:
        """The driver's declaration in the handshake."""
        ...

    @property
    def seed(self) -> int:
        """The seed of the driver's random numbers."""
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

        `deadline_ms`: a driver that has not answered by then is killed. The deadline is shorter for an operation that
        has hung before (`driver.breakdowns`). `now_ms` (Unix ms) is only sent to drivers with the capability `clock`.

        Raises OperationUnsupported (without sending anything if the driver does not declare the operation),
        OperationUnanswered (the operation is done), OperationFailed, OperationIndeterminate, OperationGivenUp or a
        DriverBroken.
        """
        ...

    def call_raw(
        self, op: str, args: dict[str, Any], *, handle: str | None = None, deadline_ms: int = DEFAULT_DEADLINE_MS
    ) -> Result:
        """Send any operation name, declared or not, and return the unchecked result. Raises DriverBroken."""
        ...

    def wait_event(
        self, handle: str, *, names: set[str], deadline_ms: int, where: Callable[[DriverEvent], bool] | None = None
    ) -> DriverEvent:
        """Take the first event with one of the names for which `where` holds; the others stay queued in order.

        Raises EventTimeout or a DriverBroken.
        """
        ...

    def take_events(self, handle: str) -> list[DriverEvent]:
        """Take all unread events of the handle."""
        ...

    def log_tail(self, lines: int = LOG_LINES) -> list[str]:
        """Return the last lines of the driver's log."""
        ...

    def close(self) -> bool:
        """End the driver: first by closing its stdin, then by force. Returns whether it exited by itself."""
        ...

    def kill(self) -> None:
        """End the driver by force, as in a crash."""
        ...


class DriverSession(ABC):
    """A `DriverConnection` without transport: the handshake, calls, and the validation of answers.

    The two transports are `ChildProcess` and `InProcess` (transports.py).
    """

    def __init__(self, label: str, *, seed: int, breakdowns: Breakdowns | None = None) -> None:
        self.label = label
        """The driver's name in messages."""
        self.breakdowns = breakdowns or Breakdowns()
        self.seed = seed
        """The seed of the driver's random numbers."""
        self._mailbox = Mailbox(seed)
        self._ready: Ready | None = None

    @property
    def ready(self) -> Ready:
        """The driver's declaration in the handshake."""
        if self._ready is None:
            raise self._broken(HandshakeFailed("the handshake is not done"))
        return self._ready

    def restrict(self, names: Collection[str]) -> None:
        """Count only these operations and capabilities as declared, and those that every check needs; empty: all."""
        if names:
            counting = {*names, *NEEDED_BY_ALL}
            self._ready = msgspec.structs.replace(
                self.ready,
                ops=[op for op in self.ready.ops if op in counting],
                capabilities=[name for name in self.ready.capabilities if name in counting],
            )

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
            self._mailbox.take_events(handle)  # drop events of an earlier object with this name
        clock = now_ms if "clock" in self.ready.capabilities else None
        result = self._exchange(name, msgspec.to_builtins(op), handle, deadline_ms, clock)
        answer = self._answer(op, result)
        if isinstance(op, Reset):
            # After the answer: events of the closed objects may come until the reset is done.
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
        """End the driver: first by closing its stdin, then by force. Returns whether it exited by itself."""

    @abstractmethod
    def kill(self) -> None:
        """End the driver by force, as in a crash."""

    @abstractmethod
    def _send(self, line: bytes) -> None:
        """Send a line to the driver without blocking: a driver that does not read must not block the kit."""

    @abstractmethod
    def _ending(self) -> DriverBroken | None:
        """The problem to report if the driver has ended by itself; None while it runs."""

    @abstractmethod
    def _request_stacks(self) -> None:
        """Make a hanging driver write its stacks to its log, before the kit kills it."""

    @property
    @abstractmethod
    def _process_id(self) -> int | None:
        """The driver's process; None if it runs inside the kit."""

    def _wait_fairly(self, wait: Callable[[int], Found | None], deadline_ms: int) -> Found | None:
        """Wait until the driver has had `deadline_ms`, not counting the time in which it was starved of CPU."""
        # Starvation is only measured in the second half, so that quick answers need no reads of /proc.
        found = wait(deadline_ms // 2)
        left_ms, run_queue = deadline_ms - deadline_ms // 2, RunQueue()
        for _ in range(EXTENSIONS + 1):
            if found is not None or left_ms <= 0:
                break
            # Called for its effect: it starts the measurement at this moment.
            run_queue.newly_waited_s(self._process_id)
            found = wait(left_ms)
            lost_ms = int(run_queue.newly_waited_s(self._process_id) * 1000)
            # At most what it lost, so a driver that hangs on a busy machine still reaches the end.
            left_ms = min(left_ms, lost_ms) if lost_ms >= LEAST_EXTENSION_MS else 0
        return found

    def _shake_hands(self, deadline_ms: int) -> None:
        """Send `hello` and wait for a valid `ready`. Otherwise kills the driver and raises DriverBroken."""
        self._send(encode(Hello(protocol=PROTOCOL_VERSION, seed=self.seed)))
        ready = self._wait_fairly(self._mailbox.wait_ready, deadline_ms)
        if ready is None:
            raise self._give_up(self._ending() or _no_ready(deadline_ms))
        if ready.protocol != PROTOCOL_VERSION:
            raise self._give_up(_other_version(ready.protocol))
        self._ready = ready

    def _exchange(
        self, op: str, args: dict[str, Any], handle: str | None, deadline_ms: int, now_ms: int | None
    ) -> Result:
        if self._mailbox.broken is not None:
            # Without the traceback of the first caller, which would grow with each caller that gets the same error.
            raise self._mailbox.broken.with_traceback(None)
        # Before the call gets an id: a call that is given up never opens.
        deadline_ms = self.breakdowns.deadline_ms(op, deadline_ms)
        # Open before it is sent: otherwise an immediate answer would have an unknown id.
        call_id = self._mailbox.open_call(op)
        line = encode(Call(id=call_id, op=op, args=args, handle=handle, deadline_ms=deadline_ms, now_ms=now_ms))
        # The kit's own fault, so it is not reported as a problem of the driver.
        if len(line) > MAX_LINE_BYTES:
            raise UsageProblem(f"a call of {op} has {len(line)} bytes, but the protocol allows {MAX_LINE_BYTES}")
        with self.breakdowns.answering(op):
            self._send(line)
            note_sent()
            try:
                result = self._wait_fairly(partial(self._mailbox.wait_result, call_id), deadline_ms)
            except DriverCrashed:
                self._note_crash(op, call_id)
                raise
            if result is None:
                raise self._unanswered(op, deadline_ms)
        return result

    def _note_crash(self, op: str, call_id: int) -> None:
        """Record the crash if this was the only open call: with several, it is unknown which one ended the driver."""
        if self._mailbox.is_only_call(call_id):
            self.breakdowns.crashed(op)

    def _unanswered(self, op: str, deadline_ms: int) -> DriverBroken:
        """End a driver that has not answered in time. Returns the problem to raise."""
        ending = self._ending()
        # A driver that ended while the kit waited did not hang: a crash is reported instead.
        if ending is None:
            self.breakdowns.hung(op, deadline_ms)
            # Before the kill: the log then shows where the driver hangs.
            self._request_stacks()
        return self._give_up(ending or DriverHung(op, deadline_ms))

    def _answer(self, op: Op[Answer], result: Result) -> Answer:
        """Return the typed answer of an `ok`; raise the error of any other status."""
        name = type(op).op
        if result.status == "unsupported":
            raise OperationUnsupported(name, result.reason or "the driver gives no reason")
        if result.status != "ok":
            self.breakdowns.failed(name)
            error = result.error or DriverError(message="the driver gives no reason")
            if result.status == "info" or not error.definite:
                raise OperationIndeterminate(name, error)
            raise OperationFailed(name, error)
        self.breakdowns.worked(name)
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
        """End the driver with a problem. Returns the problem to raise: an earlier one, if there is one."""
        # Before the kill, whose consequence (an ended process) must not become the reported problem.
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
        f"it uses version {version} of the driver protocol, but this kit uses version {PROTOCOL_VERSION}",
        hint="the field `protocol` of `ready` is the version of the driver protocol, not of the client",
    )


class Mailbox:
    """The unread lines of a driver: results by call id, events by handle. Thread-safe, no I/O.

    One reader fills it, and any number of callers empty it. When the driver breaks, every caller gets the same
    `DriverBroken`; earlier lines can still be taken.
    """

    def __init__(self, seed: int) -> None:
        self._changed = threading.Condition()
        # Ids increase by irregular steps, to detect a driver that counts instead of copying them.
        self._random = random.Random(seed)
        self._last_id = 0
        self._open: dict[int, str] = {}
        self._results: dict[int, Result] = {}
        self._events: dict[str, list[DriverEvent]] = {}
        self._ready: Ready | None = None
        self._broken: DriverBroken | None = None

    @property
    def broken(self) -> DriverBroken | None:
        """The problem of the driver, if any."""
        return self._broken

    def receive(self, line: bytes) -> None:
        """Store one line, without its newline. Raises DriverBroken for a line that breaks the protocol."""
        message = decode(line)
        with self._changed:
            self._store(message)
            # All of them: `notify` might wake a caller that waits for another line, and the right one would run out.
            self._changed.notify_all()

    def break_with(self, problem: DriverBroken) -> DriverBroken:
        """Mark the driver as unusable and wake all callers. Returns the first problem, which stays."""
        with self._changed:
            if self._broken is None:
                # The first problem stays: the following ones are usually its consequences.
                self._broken = problem
            self._changed.notify_all()
            return self._broken

    def activity(self) -> str:
        """The driver's open calls, for messages."""
        with self._changed:
            if self._ready is None:
                return "the handshake"
            return ", ".join(self._open.values()) or "no call"

    def open_call(self, op: str) -> int:
        """Expect the result of a call and return its new id."""
        with self._changed:
            self._last_id += self._random.randint(1, LARGEST_ID_STEP)
            self._open[self._last_id] = op
            return self._last_id

    def is_only_call(self, call_id: int) -> bool:
        """Whether this is the only open call."""
        with self._changed:
            return list(self._open) == [call_id]

    def wait_ready(self, deadline_ms: int) -> Ready | None:
        """Return the driver's first line, or None if it did not come in time. Raises DriverBroken."""
        with self._changed:
            self._wait(lambda: self._ready is not None, deadline_ms)
            return self._ready

    def wait_result(self, call_id: int, deadline_ms: int) -> Result | None:
        """Return the result of a call, or None if it did not come in time. Raises DriverBroken."""
        with self._changed:
            self._wait(lambda: call_id in self._results, deadline_ms)
            # Not an error if missing: the caller decides whether the driver was starved or hangs.
            return self._results.pop(call_id, None)

    def wait_event(
        self, handle: str, names: Collection[str], deadline_ms: int, where: Callable[[DriverEvent], bool] | None
    ) -> DriverEvent:
        """Take the first matching event of a handle; the others stay in order. Raises EventTimeout, DriverBroken."""

        def position() -> int | None:
            for index, event in enumerate(self._events.get(handle, ())):
                if event.name in names and (where is None or where(event)):
                    return index
            return None

        with self._changed:
            self._wait(lambda: position() is not None, deadline_ms)
            # Looked up again under the same lock: no other caller can have taken the event in between.
            index = position()
            if index is None:
                waiting = (f"{event.name} {event.args}" for event in self._events.get(handle, ()))
                raise EventTimeout(handle, names, deadline_ms, waiting)
            return self._events[handle].pop(index)

    def take_events(self, handle: str) -> list[DriverEvent]:
        """Take all unread events of a handle."""
        with self._changed:
            return self._events.pop(handle, [])

    def forget_events(self) -> None:
        """Drop the events of every handle."""
        with self._changed:
            self._events.clear()

    def _wait(self, arrived: Callable[[], bool], deadline_ms: int) -> None:
        """Wait until `arrived` holds or `deadline_ms` have passed. Raises DriverBroken if the driver breaks."""
        deadline = time.monotonic() + deadline_ms / 1000
        # Checked before `_broken`: a line that came before the crash is still valid.
        while not arrived():
            if self._broken is not None:
                raise self._broken.with_traceback(None)
            # Recomputed each time: every line of the driver wakes all waiting callers.
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
        # Removed, so that a second answer to the same call is detected.
        del self._open[result.id]
        self._results[result.id] = result
