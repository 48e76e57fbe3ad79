"""Rules of the tap: a trigger, an action, and a barrier for scenarios to wait on.

The phases of a command, in order:

`before-send`    Redis has not seen the command. Everything before it on the connection has been answered.
`after-execute`  Redis has answered, and the client has not seen the answer. For a command queued in a transaction this
                 is the answer to EXEC. An answer NOSCRIPT does not count, because nothing ran.
`mid-reply`      The client has the first part of the answer.

From a reply phase on, later commands of the client do not reach Redis until the action has ended.
"""

from __future__ import annotations

import asyncio
import difflib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from conformance.observe.tap.recording import CommandRecord, NotSeen, Recording, TappedCommand
from conformance.problems import UsageProblem

TriggerPhase: TypeAlias = Literal["before-send", "after-execute", "mid-reply"]
PHASES: tuple[TriggerPhase, ...] = ("before-send", "after-execute", "mid-reply")


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """The command at which a rule acts.

    `script` (the name of a script; the client's own variant counts as well) or `command` (a name, any case) or neither
    (any command); `connection` and `where` narrow it down further. `call`: the k-th such command since the start of the
    rule, over all connections; None: every one. A call that Redis answered with NOSCRIPT is not counted. `reply_bytes`:
    the bytes of the reply that the client gets before phase mid-reply; by default half of it.
    """

    script: str | None = None
    command: str | None = None
    call: int | None = 1
    phase: TriggerPhase = "before-send"
    connection: int | None = None
    where: Callable[[CommandRecord], bool] | None = None
    reply_bytes: int | None = None

    def __post_init__(self) -> None:
        """Raises UsageProblem for a trigger that can never match."""
        if self.script is not None and self.command is not None:
            raise UsageProblem(
                "a trigger cannot have both a script and a command", hint="use `where` to narrow it down"
            )
        if self.call is not None and self.call < 1:
            raise UsageProblem(
                f"invalid call number {self.call}", hint="calls are counted from 1; None means all calls"
            )
        if self.phase not in PHASES:
            raise UsageProblem(f"invalid phase {self.phase!r}", hint=f"use {', '.join(PHASES)}")

    def matches(self, command: TappedCommand, recording: Recording) -> bool:
        """Whether a command matches, apart from `call`."""
        if self.command is not None and command.name != self.command.upper():
            return False
        if self.script is not None and recording.names.of(command.digest) != self.script:
            return False
        if self.connection is not None and command.connection != self.connection:
            return False
        return bool(command.args) and (self.where is None or self.where(command.record(recording.scripts)))

    def __str__(self) -> str:
        """For messages."""
        call = "every call" if self.call is None else f"call {self.call}"
        return f"{call} of {self.script or self.command or 'any command'}, {self.phase}"


@dataclass(frozen=True)
class Watch:
    """Do nothing; the barrier reports the command."""


@dataclass(frozen=True)
class Hold:
    """Wait until released (or healed)."""


@dataclass(frozen=True)
class Delay:
    """Wait for `ms` milliseconds (or until released or healed)."""

    ms: float


@dataclass(frozen=True)
class Cut:
    """End the connection on both sides. `reset`: with RST, like a firewall or a crashed host; else with FIN."""

    reset: bool = False


@dataclass(frozen=True)
class Error:
    """Answer with this error (`ERR something`). In phase before-send Redis never sees the command."""

    text: str


@dataclass(frozen=True)
class BlackHole:
    """Hold back all bytes of the connection in both directions, until released or healed.

    No bytes are lost: as after a network failure, they arrive later, even from a client that has given up meanwhile.
    """


@dataclass(frozen=True)
class Chunks:
    """Pass on the command (phase before-send) or the reply in pieces of `size` bytes, one every `pause_ms`."""

    size: int = 1
    pause_ms: float = 0.0


Action: TypeAlias = Watch | Hold | Delay | Cut | Error | BlackHole | Chunks


class RuleOccurrences:
    """The commands at which a rule took effect. Thread-safe."""

    def __init__(self, trigger: Trigger, recording: Recording) -> None:
        self._trigger = trigger
        self._recording = recording
        # Failure messages show only the traffic since the rule became active.
        self._since = recording.mark()
        self._commands: list[CommandRecord] = []
        self._changed = threading.Condition()

    @property
    def commands(self) -> tuple[CommandRecord, ...]:
        """The commands so far, as they were at that moment."""
        return tuple(self._commands)

    def wait(self, deadline_ms: int, *, times: int = 1) -> CommandRecord:
        """Wait until the rule takes effect for the n-th time, and return the command. Raises NotSeen."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._commands) >= times, deadline_ms / 1000):
                raise NotSeen(
                    f"{self._trigger}: reached {len(self._commands)} of {times} times; "
                    f"{self._recording.tail(self._since)}"
                )
            return self._commands[times - 1]

    def note(self, command: CommandRecord) -> None:
        """Add a command. Called by the loop of the tap."""
        with self._changed:
            self._commands.append(command)
            self._changed.notify_all()


class Barrier:
    """A scenario's control of a rule: wait until it is `reached`, then `release` the held commands."""

    def __init__(self, reached: RuleOccurrences, release: Callable[[], None]) -> None:
        self.reached = reached
        self._release = release

    def release(self) -> None:
        """Release the held commands. A rule for every call then holds the next one."""
        self._release()


class TapRule:
    """An active rule. Used in the loop of the tap, except for its barrier."""

    def __init__(self, trigger: Trigger, action: Action, recording: Recording) -> None:
        _check_possible(trigger, action, recording.scripts)
        self.trigger = trigger
        self.action = action
        self.reached = RuleOccurrences(trigger, recording)
        self._fired_at: TappedCommand | None = None
        self._recording = recording
        self._counted: set[int] = set()
        self._held: set[asyncio.Future[None]] = set()
        self._healed = False

    def claims(self, command: TappedCommand) -> bool:
        """Count a command. Returns whether the action is due at it."""
        if not self.trigger.matches(command, self._recording):
            return False
        self._counted.add(command.sequence)
        return self.trigger.call is None or len(self._counted) == self.trigger.call

    def uncount(self, command: TappedCommand) -> None:
        """Do not count a command that did not run, unless the rule has already acted on it."""
        # An action that is in effect cannot be undone; counting the call again would fire it twice.
        if self._fired_at is not command:
            self._counted.discard(command.sequence)

    def note(self, command: TappedCommand) -> None:
        """Report to the scenario that the action is in effect."""
        # Before `reached`, because the scenario may remove the rule as soon as it wakes.
        self._fired_at = command
        self.reached.note(command.record(self._recording.scripts))

    async def wait(self, ms: float | None) -> None:
        """Wait until released or healed, at most `ms`."""
        if self._healed:  # healed before this command reached its action: nothing would release it any more
            return
        future = asyncio.get_running_loop().create_future()
        self._held.add(future)
        try:
            # `wait`, not `wait_for`: after the timeout the command continues, which is not an error.
            await asyncio.wait({future}, timeout=None if ms is None else ms / 1000)
        finally:
            self._held.discard(future)

    def release(self) -> None:
        """Release all held commands."""
        for future in self._held:
            # Its time may have run out in the same turn of the loop.
            if not future.done():
                future.set_result(None)

    def heal(self) -> None:
        """Release all held commands, and hold no further ones."""
        # Before the release: a command that arrives in between would be held with nothing to release it.
        self._healed = True
        self.release()


@dataclass(frozen=True, slots=True)
class DueRule:
    """A rule whose action is due when `command` has run."""

    rule: TapRule
    command: TappedCommand


class RuleBook:
    """The active rules in the order of their start. Only used in the loop of the tap."""

    def __init__(self) -> None:
        self.rules: tuple[TapRule, ...] = ()

    def add(self, rule: TapRule) -> None:
        """Activate a rule."""
        self.rules = (*self.rules, rule)

    def remove(self, rule: TapRule) -> None:
        """Deactivate a rule and release its commands."""
        self.rules = tuple(other for other in self.rules if other is not rule)
        rule.heal()

    def claim(self, command: TappedCommand) -> list[TapRule]:
        """The rules whose action is due at this command."""
        # Every rule counts the command, also if an earlier one already acts on it.
        return [rule for rule in self.rules if rule.claims(command)]

    def uncount(self, command: TappedCommand) -> None:
        """Forget a call that Redis answered with NOSCRIPT, in the counts of all rules that it matched."""
        for rule in self.rules:
            rule.uncount(command)


def _check_possible(trigger: Trigger, action: Action, scripts: Mapping[str, str]) -> None:
    if isinstance(action, Error) and trigger.phase == "mid-reply":
        raise UsageProblem("an error cannot start in the middle of a reply", hint="use before-send or after-execute")
    if trigger.script is not None and trigger.script not in scripts.values():
        close = difflib.get_close_matches(trigger.script, scripts.values(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else "start the tap with the names of the scripts"
        raise UsageProblem(f"unknown script {trigger.script!r}", hint=hint)
