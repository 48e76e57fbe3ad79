"""A participant: one client in one scenario, with a driver, a key prefix, a clock and a transcript."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from conformance.driver.errors import INVALID, OperationFailed
from conformance.driver.ops.lifecycle import Role
from conformance.participants.ageing import age
from conformance.participants.caller import Caller
from conformance.participants.expect import Mismatch, record_check, value_text
from conformance.participants.handles import (
    EventsHandle,
    FlowHandle,
    ParticipantHandle,
    QueueHandle,
    RelayHandle,
    WorkerHandle,
)
from conformance.participants.loop_worker import LoopWorker
from conformance.participants.names import Names
from conformance.participants.pending import Pending
from conformance.participants.tap import ParticipantTap, TapMissing
from conformance.servers.binary import ServerBinary

Value = TypeVar("Value")

AGED_FROM_MS = 200
"""A shorter time costs little, and scenarios may hold times in variables over it."""

POLL_SECONDS = 0.004
LONGEST_POLL_SECONDS = 0.025
LONGEST_WORK_S = 1.0
"""A worker that goes on with other jobs is not waited for."""
POLLS_OF_WAIT = 20
"""A poll comes after 1/20 of the time waited so far: short waits end quickly, and long waits cost Redis little."""


class Participant(Caller):
    """The entry point of scenarios: opens the objects of one client (queues, workers, …) on one prefix."""

    uses_loop_workers = False
    """Whether loops emulate manual workers: on both sides, if the client under test has no manual workers."""

    def queue(self, name: str = "q", **options: Any) -> QueueHandle:
        """A Queue object of the client; `options` are BullMQ's QueueOptions."""
        return QueueHandle(self, name, self.open("queue", name, **options))

    def worker(self, processor: str = "manual", *, queue: str = "q", **options: Any) -> WorkerHandle:
        """A Worker; `options` are BullMQ's WorkerOptions, plus `processor_args`.

        Raises OperationUnsupported if the driver does not declare this style of worker and there is no stand-in.
        """
        if processor == "manual" and self.uses_loop_workers:
            return LoopWorker(self, queue, **options)
        handle = WorkerHandle(self, queue, self.open("worker", queue, processor=processor, **options))
        self.workers.append(handle.handle)
        return handle

    def events(self, name: str = "q", **options: Any) -> EventsHandle:
        """A QueueEvents reader; `options` are BullMQ's QueueEventsOptions."""
        return EventsHandle(self, name, self.open("events", name, **options))

    def flow(self) -> FlowHandle:
        """A FlowProducer."""
        return FlowHandle(self, "", self.open("flow", ""))

    def relay(self, **options: Any) -> RelayHandle:
        """A node of a relay; `options` are BullMQ's RelayOptions. Its `redis` has the keys `relay:…`."""
        return RelayHandle(self, "", self.open("relay", "", **options))

    def opening(
        self, role: Role, processor: str | None = None, *, queue: str = "q", **options: Any
    ) -> ParticipantHandle:
        """Start to open an object; returns it before it is connected."""
        handle = self.register(role, queue, processor=processor, **options)
        self.meanwhile(lambda: self.open_registered(handle))
        return ParticipantHandle(self, queue, handle)

    @property
    def on_cluster(self) -> bool:
        """Whether its Redis is a cluster."""
        return self._point.address.mode == "cluster"

    @property
    def server_program(self) -> ServerBinary | None:
        """The program for a private Redis: the one that the run uses, if it is a local one."""
        return self._point.program

    @property
    def tap(self) -> ParticipantTap:
        """The proxy between this participant and Redis, which can disturb it alone.

        Raises TapMissing with the reason if there can be no tap.
        """
        if self._point.tap is None:
            raise TapMissing(self._point.reason)
        return ParticipantTap(
            self._point.tap,
            self._pending,
            self.cancellation,
            self.performed,
            transcript=self.transcript,
            waiting=self.waiting,
        )

    def meanwhile(self, work: Callable[[], Value]) -> Pending[Value]:
        """Start work in a thread, such as a call that a tap holds, and continue."""
        self.transcript.concurrent = True
        pending = Pending(work, self.transcript, self.cancellation)
        self._pending.append(pending)
        return pending

    def settle(self, *, within_ms: int = 10_000) -> None:
        """Wait until the work of `meanwhile` and of loops has ended, at most `within_ms`. Heal the taps first."""
        # One deadline for all: a scenario with many hanging calls must not take ten seconds for each.
        ends = time.monotonic() + within_ms / 1000
        for pending in self._pending:
            pending.settle(within_ms=max(0, int((ends - time.monotonic()) * 1000)))
        self._pending.clear()
        # A client that is closed between two of its commands leaves a job half ended, which it would not by itself.
        deadline = min(ends, time.monotonic() + LONGEST_WORK_S)
        while self.is_between_commands() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def untagged(self) -> Participant:
        """The same client on a prefix without braces, whose keys are in different slots of a cluster."""
        # A copy shares driver and transcript: the calls keep one order.
        other = copy.copy(self)
        other.names = Names(self.prefix.strip("{}"), fixed_prefix=self.names.fixed_prefix)
        self.places.append(other.names)
        return other

    def connecting(self, **changes: Any) -> Participant:
        """The same client with another way to connect, for handles that it opens: fields of `RedisAddress`."""
        other = copy.copy(self)
        address = msgspec.structs.replace(self._point.address, **changes)
        other._point = replace(self._point, address=address)  # noqa: SLF001 - of its own copy
        return other

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass on this participant's clock (ms).

        If it is frozen, it moves. Otherwise the data in Redis becomes older instead, so that a scenario has to read
        times and ids of scheduled jobs again; only a scenario with clock `real`, a short time, and a time that the
        client may hold in its memory are really waited for.
        """
        self.transcript.record_act("clock", str(duration_ms))
        only_in_redis = not self.running_loops and all(pending.done for pending in self._pending)
        may_age = self.clock.ages_data and duration_ms >= AGED_FROM_MS and only_in_redis
        if not may_age or not age(self._redis, self.places, duration_ms, self.cancellation.check):
            self.clock.pass_ms(duration_ms)

    @contextmanager
    def refuses(self, code: str, what: str) -> Iterator[None]:
        """The calls inside the block must fail with this error code; `what` is the sentence of the failure if not."""
        try:
            yield
        # Only a definite refusal counts: after an indeterminate one the change may have happened.
        except OperationFailed as failure:
            if failure.error.code != code:
                seen = f"{failure.error.code}: {failure.error.message}"
                raise Mismatch(
                    what, expected=f"refused with {code}", actual=f"refused with {seen}", where="answer"
                ) from failure
            record_check(what, failure.error.message)
            return
        self.transcript.not_refused = next(reversed(self.transcript.all_calls), None)
        # The client decides alone whether an argument is valid; other refusals may depend on a lock or a delay.
        certain = code == INVALID
        raise Mismatch(what, expected=f"refused with {code}", actual="accepted", where="answer", certain=certain)

    def eventually(
        self,
        probe: Callable[[], Value],
        until: Callable[[Value], object],
        what: str,
        *,
        within_ms: int = 5000,
        where: str = "",
    ) -> Value:
        """Poll until it holds. Raises Mismatch (about `where`) with the last value when `within_ms` have passed."""
        self.transcript.record_act("wait", what)
        started = time.monotonic()
        with self.waiting(what, within_ms) as wait, self.transcript.silent():
            before = None
            while True:
                value = probe()
                if until(value):
                    break
                seen = value_text(value)
                if before not in (None, seen):
                    wait.progressed()
                before = seen
                # After the probe, so that the last poll comes at the end of the wait.
                if wait.left_ms <= 0:
                    raise wait.mismatch(what, f"last seen: {value_text(value)}", where=where)
                waited_s = time.monotonic() - started
                self.cancellation.sleep(min(max(POLL_SECONDS, waited_s / POLLS_OF_WAIT), LONGEST_POLL_SECONDS))
        # After the wait: a check inside it would count as often as the wait polls.
        record_check(what, value)
        return value
