"""The transcript of a participant: its calls, their answers, and the acts of the kit between them.

The answers of a driver are the first of the kit's three observers; the others are Redis and the tap.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from conformance.participants.cancellation import Cancelled

PerformedBy = Literal["self", "stand-in"]


@dataclass(frozen=True)
class RecordedCall:
    """One call and its outcome.

    `outcome` is `ok` or the error code; `value` and `args` are JSON values; `message` is the text of the error. `by`:
    the client itself, or the oracle as its stand-in. `unanswered`: the answer cannot be compared, because the client
    gave none or because it depends on ids. `ended`: the end of the call in seconds of the machine's monotonic clock,
    which gives the calls of two participants one order.
    """

    op: str
    outcome: str
    value: Any
    args: dict[str, Any] = field(default_factory=dict, compare=False)
    handle: str = field(default="", compare=False)
    message: str = field(default="", compare=False)
    by: PerformedBy = "self"
    unanswered: bool = False
    ended: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True)
class KitAct:
    """Something that the kit did to a participant between its calls: let time pass, changed a key, hurt the connection.

    `words`: `clock` and ms, `wait` and the sentence of the wait, `network` and the disturbance, or the Redis command.
    """

    words: tuple[str, ...]
    ended: float = field(default_factory=time.monotonic, compare=False)


NOT_COMMANDS = frozenset({"clock", "wait", "network"})
"""First words of acts of the kit that are not Redis commands."""


@dataclass(frozen=True)
class StepPosition:
    """A place between two steps of a scenario: the number of calls and acts of the kit, and of held checks, before it.

    Disturbances of the network are left out, because they may be recorded on one side only.
    """

    steps: int
    checks: int


CALL = "the call "
"""The start of a step that is a call; its operation follows."""


class PositionReached(Cancelled):
    """The steps have come to the position at which they are to stop."""


class Transcript:
    """The calls of one participant in one scenario with their outcomes, and the kit's acts between them, in order."""

    def __init__(self) -> None:
        self.steps: list[RecordedCall | KitAct] = []
        self.step = "nothing yet"
        """The current or the last step: reported if the scenario does not end."""
        self.all_calls: list[RecordedCall] = []
        """Calls in the order in which they ended, including polls and the calls of other threads."""
        self.broken_in: RecordedCall | None = None
        """The call during which the driver broke."""
        self.not_refused: RecordedCall | None = None
        """The call that succeeded although the scenario expects a refusal."""
        self.checks = 0
        """The checks of the scenario that have held so far."""
        self.stop_at: StepPosition | None = None
        """The position at which the steps stop, to leave the state of that moment; None if they go on to the end."""
        self.concurrent = False
        """Whether the scenario has made calls in threads of its own: then its steps have no fixed order."""
        self.disturbed = False
        """Whether the kit has hurt its connections or its Redis, so that its complaints about them may be true."""
        self.on_private_redis = False
        """Whether it had a Redis of its own, in front of which there is no tap."""
        self._breaking_call_started_s = 0.0
        self._silent = 0
        self._not_compared = 0
        self._of_thread = threading.local()

    @property
    def calls(self) -> list[RecordedCall]:
        """The steps that are calls."""
        return [step for step in self.steps if isinstance(step, RecordedCall)]

    @property
    def position(self) -> StepPosition:
        """The current position of the scenario."""
        taken = (step for step in self.steps if not (isinstance(step, KitAct) and step.words[0] == "network"))
        return StepPosition(sum(1 for _ in taken), self.checks)

    def check_held(self) -> None:
        """Count a check. Raises PositionReached instead if the steps are to stop before it."""
        if not self._silent:
            self.stop_if_reached()
            self.checks += 1

    def stop_if_reached(self) -> None:
        """Raise PositionReached if the steps are to stop before the next call, act or check."""
        # Polls and the inner calls of one emulated operation are not steps of the scenario.
        inner = getattr(self._of_thread, "unrecorded", False) or hasattr(self._of_thread, "calls")
        if self.stop_at is None or self._silent or inner:
            return
        here = self.position
        if here.steps >= self.stop_at.steps and here.checks >= self.stop_at.checks:
            raise PositionReached("the client stopped here")

    def record(self, call: RecordedCall) -> None:
        """Record a call; as a step, unless the scenario is only polling."""
        if getattr(self._of_thread, "unrecorded", False):
            return
        if self._not_compared:
            call = replace(call, unanswered=True)
        if call.by == "self":
            self._add_to_all_calls(call)
        collected: list[RecordedCall] | None = getattr(self._of_thread, "calls", None)
        if collected is not None:
            collected.append(call)
        elif not self._silent:
            self.steps.append(call)

    def record_act(self, *words: str) -> None:
        """Record an act of the kit, unless the scenario is only polling."""
        if not self._silent and not getattr(self._of_thread, "unrecorded", False):
            if words[0] != "network":
                self.stop_if_reached()
            self.steps.append(KitAct(words))

    def keys_of_the_kit(self) -> frozenset[str]:
        """The keys that the kit has written, and those of the jobs that it has named in lists and sorted sets."""
        commands = (act.words for act in self.steps if isinstance(act, KitAct) and act.words[0] not in NOT_COMMANDS)
        found: set[str] = set()
        for _, key, *words in commands:
            base = ":".join(key.split(":")[:2])
            found |= {key, *words, *(f"{base}:{word}" for word in words)}
        return frozenset(found)

    def disturb(self, disturbance: str) -> None:
        """Record that the kit hurts the connections of the participant."""
        self.disturbed = True
        self.record_act("network", disturbance)

    def _add_to_all_calls(self, call: RecordedCall) -> None:
        """A poll counts as one call: the number of its repetitions depends on the machine."""
        last = self.all_calls[-1] if self.all_calls else None
        if last and (last.op, last.args) == (call.op, call.args):
            # The last repetition is kept: its answer is the one that ended the poll.
            self.all_calls[-1] = call
        else:
            self.all_calls.append(call)

    def record_breakage(self, call: RecordedCall, started_s: float) -> None:
        """Record that the driver broke during a call.

        If several calls were under way, the one that started last is blamed: the earlier ones ran while the driver was
        still well.
        """
        if self.broken_in is None or started_s > self._breaking_call_started_s:
            self.broken_in, self._breaking_call_started_s = call, started_s

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Record no steps inside the block: the number of calls of a poll depends on the machine."""
        # A count, not a flag: polls may be nested.
        self._silent += 1
        try:
            yield
        finally:
            self._silent -= 1

    @contextmanager
    def not_compared(self) -> Iterator[None]:
        """Record steps, but do not compare answers: they are random or run down with time, so no two are equal."""
        self._not_compared += 1
        try:
            yield
        finally:
            self._not_compared -= 1

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Record nothing of this thread inside the block: its calls together emulate one operation."""
        self._of_thread.unrecorded = True
        try:
            yield
        finally:
            self._of_thread.unrecorded = False

    @contextmanager
    def collected(self, calls: list[RecordedCall]) -> Iterator[None]:
        """Append the calls of this thread to `calls` inside the block, not to the steps."""
        self._of_thread.calls = calls
        try:
            yield
        finally:
            # Per thread: the calls of the scenario's own thread go to the steps meanwhile.
            del self._of_thread.calls
