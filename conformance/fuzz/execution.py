"""Runs one sequence: every step on both systems at once; then the kit reads Redis and compares."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from conformance.fuzz.comparison import (
    Completion,
    KnownDifferences,
    StateObservation,
    StepDifference,
    completion_differences,
    state_differences,
    unchanged,
)
from conformance.fuzz.keyspace import RedisKeyspace
from conformance.observe.tap.recording import CommandRecord
from conformance.observe.tap.rules import Cut, Trigger, TriggerPhase
from conformance.observe.tap.tap import Tap
from conformance.participants.clock import ParticipantClock
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.steps.shapes import CallStep, ClockStep, FaultStep, OutsideStep, Step

REWIND_AFTER_S, TOO_LATE_S = 1.0, 8.0
"""Redis's clock cannot be stopped, but the passed time can be added to times to live. These are multiples of 10 s,
as most steps of the clock are: a second more or less decides nothing, eight seconds in a single step may."""

ObservedPair: TypeAlias = tuple[StateObservation, StateObservation]
"""The states of both systems at one instant, the expected one first."""


class SystemUnderTest(Protocol):
    """One of the two systems that are compared: a client, clients that take turns, or the model."""

    @property
    def prefix(self) -> str:
        """The prefix of its keys."""
        ...

    def perform(self, step: CallStep, now_ms: int | None) -> Completion:
        """Make one call; errors of a client are returned, not raised."""
        ...

    def endure(self, step: OutsideStep) -> None:
        """Apply a step that no client takes to the state that this system has outside of Redis."""
        ...


class ConnectionCutter(Protocol):
    """Cuts the client's connections."""

    def at_script(self, phase: TriggerPhase) -> AbstractContextManager[Callable[[], bool]]:
        """Inside the block, the connection of the next script call breaks; yields a test whether it has."""
        ...


@dataclass(frozen=True)
class TapConnectionCutter:
    """Cuts at the tap."""

    tap: Tap

    @contextmanager
    def at_script(self, phase: TriggerPhase) -> Iterator[Callable[[], bool]]:
        """Inside the block, the connection of the next script call breaks; yields a test whether it has."""
        with self.tap.when(Trigger(where=_is_script, phase=phase), Cut()) as barrier:
            yield lambda: bool(barrier.reached.commands)


def _is_script(command: CommandRecord) -> bool:
    return command.digest is not None


@dataclass
class SequenceRunner:
    """Runs one sequence on two systems.

    `known`: known differences; `prefixes`: those in Redis; `kill_connections` disconnects both clients. `live` becomes
    False when the systems cannot be compared any more, and `why_over` is the reason.
    """

    expected: SystemUnderTest
    actual: SystemUnderTest
    observe: Callable[[], ObservedPair]
    keyspace: RedisKeyspace
    clock: ParticipantClock
    pool: Executor
    prefixes: Sequence[str]
    kill_connections: Callable[[], None]
    known: KnownDifferences = field(default_factory=KnownDifferences)
    live: bool = True
    why_over: str = ""
    differences: list[StepDifference] = field(default_factory=list)
    """All current differences."""
    observed: ObservedPair | None = None
    """The last observation of both systems."""
    cutter: ConnectionCutter | None = None
    """Cuts the client's connection at a command, if there is a tap between it and Redis."""
    oracle_version: str = BULLMQ_VERSION
    """The version of BullMQ whose invariants must hold."""
    _why_last_step: str = ""
    """Why the current step is the last one; empty if it is not."""
    _killed: bool = False
    """Whether connections were killed in this sequence."""
    _completed_since: set[str] = field(default_factory=set)
    """Handles of the client that have completed a call since then."""
    _held_at: float = field(default_factory=time.monotonic)

    def perform(self, step: Step) -> list[StepDifference]:
        """Take one step and return the new differences, known classes included.

        A sequence that is over takes no more steps, and returns no differences.
        """
        if not self.live:
            return []
        # Before the step, so that keys have their full life when the step reads them.
        self._hold_time()
        found = self._take(step)
        if not self.live:
            return found
        before = self.differences
        found += self._new_differences(step)
        # Checked after the observation: a key that expired during the step would look like a difference of the client.
        if time.monotonic() - self._held_at > TOO_LATE_S and self.clock.frozen:
            self.end("a step took too long for times to live to be compared")
            self.differences = before
            return []
        if any(not difference.group.harmless for difference in found):
            self.end("the two sides are no longer in the same state")
        elif self._why_last_step:
            self.end(self._why_last_step)
        return found

    def news(self, found: Sequence[StepDifference]) -> list[StepDifference]:
        """The differences that are not known."""
        return [difference for difference in found if not self.known.covers(difference)]

    def end(self, why: str) -> None:
        """From here on, the two systems cannot be compared."""
        self.live, self.why_over = False, why

    def _hold_time(self) -> None:
        """If the clock is frozen, freeze times to live in Redis as well."""
        passed = time.monotonic() - self._held_at
        # Only after a second: rewinding needs a round trip, and a shorter time decides nothing.
        if self.clock.frozen and passed > REWIND_AFTER_S:
            self.keyspace.rewind(self.prefixes, int(passed * 1000))
            # Advance by the added time, not to the current time: the time since then would be lost to the keys.
            self._held_at += passed

    def _new_differences(self, step: Step) -> list[StepDifference]:
        """Observe both systems and return the differences that are new since the last observation."""
        last, self.observed = self.observed, self.observe()
        # The state before is compared first: most steps that only read change nothing.
        if last is not None and all(map(unchanged, last, self.observed)):
            return []
        # Differences from earlier steps stay in the state and were reported then.
        before = {difference.spot for difference in self.differences}
        self.differences = state_differences(
            step.name, *self.observed, frozen=self.clock.frozen, version=self.oracle_version
        )
        return [difference for difference in self.differences if difference.spot not in before]

    def _take(self, step: Step) -> list[StepDifference]:
        if isinstance(step, CallStep):
            return self._cut_call(step, step.cut) if step.cut else self._call(step)
        # Before Redis is changed, because the model has its own copy of the state.
        for system in (self.expected, self.actual):
            system.endure(step)
        # Both in the same step: clients' clocks and Redis's times to live must agree.
        if isinstance(step, ClockStep):
            self.clock.pass_ms(step.clock_ms)
        if isinstance(step, FaultStep) and step.fault == "disconnect":
            self.kill_connections()
            self._killed = True
            # Every handle may have to reconnect, so each first call is undecided again.
            self._completed_since.clear()
        else:
            self.keyspace.endure(self.prefixes, step)
        return []

    def _call(self, step: CallStep) -> list[StepDifference]:
        now_ms = self.clock.call_ms()
        # Both at once: in sequence, the times to live that they set would be apart by a whole call.
        invocation = self.pool.submit(self.expected.perform, step, now_ms)
        # On this thread, while the oracle's call runs on the other.
        actual = self.actual.perform(step, now_ms)
        expected = invocation.result()
        if why := _incomparable(expected, actual) or self._undecided_by_kill(step, actual):
            self.end(why)
            return []
        return self._completion_differences(step, expected, actual)

    def _undecided_by_kill(self, step: CallStep, actual: Completion) -> str:
        """Why this call may be undecided: it was the first on a killed connection; empty otherwise."""
        # Per handle, because each handle may have its own connection.
        first = self._killed and step.handle not in self._completed_since
        self._completed_since.add(step.handle)
        return "the connection was killed just before the call" if first and actual.status == "info" else ""

    def _cut_call(self, step: CallStep, phase: TriggerPhase) -> list[StepDifference]:
        """Make the call and cut it off; return the differences of the completions. The states are compared afterwards.

        Only the client is cut. Whether the oracle makes the call as well follows from the outcome of the client's call:
        a call with an unknown outcome must have happened at most once.
        """
        if self.cutter is None:
            self.end("nothing stands between the client and Redis that could cut its connection")
            return []
        now_ms, whole = self.clock.call_ms(), replace(step, cut="")
        with self.cutter.at_script(phase) as was_cut:
            # Alone: the oracle's call follows only if this one may have happened.
            actual = self.actual.perform(whole, now_ms)
            cut = was_cut()
        undecided = cut and actual.status == "info"
        # The oracle waits for this: if it made a call that the client's Redis never received, it would be ahead.
        if undecided and phase == "before-send" and not self._happened_after_all(step):
            return []
        expected = self.expected.perform(whole, now_ms)
        # An unknown outcome of a call that was cut is what the step wants, so it is not incomparable.
        if why := _incomparable(expected, replace(actual, status="ok") if undecided else actual):
            self.end(why)
            return []
        if phase == "before-send":
            self._why_last_step = "the client made the call after all"
        elif cut and not undecided and actual.status != "broken":
            # Node.js resends, too (chaos.node-resends): the call may have happened twice.
            self.end("the client sent again what had been answered")
            return []
        return [] if undecided else self._completion_differences(step, expected, actual)

    def _happened_after_all(self, step: CallStep) -> bool:
        """Whether the state changed although Redis never received the call on the connection that was cut."""
        before = self.differences
        if not self._new_differences(step):
            return False
        self.differences, self.observed = before, None  # the next observation compares again
        return True

    def _completion_differences(self, step: CallStep, expected: Completion, actual: Completion) -> list[StepDifference]:
        prefixes = self.expected.prefix, self.actual.prefix
        return completion_differences(step.name, expected, actual, prefixes, frozen=self.clock.frozen)


def _incomparable(expected: Completion, actual: Completion) -> str:
    """Why the client cannot be judged after these two completions; empty if it can."""
    # Nothing can be expected of the client if the oracle's own outcome is unknown.
    if expected.status in {"info", "broken", "unsupported"}:
        return f"the oracle itself did not give an answer: {expected.message}"
    return actual.message if actual.status == "unsupported" else ""
