"""The tap of one participant, as scenarios use it: hold, delay, cut or falsify a command, and inspect traffic.

    with client.tap.hold("moveToActive", phase="after-execute") as barrier:
        claim = client.meanwhile(lambda: worker.claim())
        barrier.wait()                # Redis has handed out the job, the client does not know it yet
        ...
        barrier.release()
        claim.result()

`at` is the name of an official script (`moveToActive`, or its file name `moveToActive-11`), a Redis command in capitals
(`BZPOPMIN`), or empty for any command. docs/reference/tap.md explains phases and actions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypedDict, Unpack

from conformance.checkers.traffic import WRITES
from conformance.driver.errors import DriverBroken, OperationGivenUp, OperationUnsupported
from conformance.ledger.operations import EVENTS_READ, WORKER_RUN
from conformance.observe.tap.commands import sent_text
from conformance.observe.tap.recording import CommandRecord, NotSeen
from conformance.observe.tap.rules import Action, Cut, Delay, Error, Hold, Trigger, TriggerPhase, Watch
from conformance.observe.tap.rules import Barrier as RuleBarrier
from conformance.observe.tap.socket_writer import RedisLink
from conformance.observe.tap.tap import ConnectionView, Tap
from conformance.participants.cancellation import Cancellation
from conformance.participants.pending import Pending
from conformance.participants.stand_in import PerformedOperations
from conformance.participants.transcript import Transcript
from conformance.participants.wait_limits import Wait
from conformance.protocol.scripts import SCRIPT_SIGNATURES

NOSCRIPT = "NOSCRIPT No matching script. Please use EVAL."
_KEY_COUNT = re.compile(r"-\d+$")
_COMMAND = re.compile(r"[A-Z]+")

Where = Callable[[CommandRecord], bool]
Waiting = Callable[[str, int], AbstractContextManager[Wait]]
"""Starts a wait, given its sentence and its deadline (ms)."""
SENTENCE = "the client sends this command"


class TapMissing(OperationUnsupported):
    """There is no tap between the clients and this Redis, so the scenario cannot run."""

    def __init__(self, reason: str) -> None:
        super().__init__("tap", reason)


class CommandUnrecognized(OperationUnsupported):
    """A command did not come, and the client may do the same by commands or scripts that the kit does not know."""

    def __init__(self, reason: str) -> None:
        super().__init__("tap", reason)


class RuleMoment(TypedDict, total=False):
    """When a rule acts, in addition to the command: see `conformance.observe.tap.rules.Trigger`.

    `phase`: `before-send` (the default), `after-execute` or `mid-reply`. `call`: the k-th such command since the rule
    was set (1 by default), None for every one.
    """

    phase: TriggerPhase
    call: int | None
    where: Where | None
    connection: int | None
    reply_bytes: int | None


class HeldCommand:
    """A scenario's control of a rule: wait for the command, then release it."""

    def __init__(self, barrier: RuleBarrier, tap: ParticipantTap) -> None:
        self._barrier = barrier
        self._tap = tap

    def wait(self, *, within_ms: int = 5000, times: int = 1) -> CommandRecord:
        """Wait until the rule has taken effect for the n-th time, and return the command.

        Raises Mismatch with the commands seen instead; OperationUnsupported if the client calls unofficial scripts, or
        if the call that should send the command is unsupported.
        """
        return self._tap.look(lambda for_ms: self._barrier.reached.wait(for_ms, times=times), within_ms)

    @property
    def commands(self) -> tuple[CommandRecord, ...]:
        """The commands to which the rule has been applied so far.

        Raises OperationUnsupported if there are none, and the client will send none.
        """
        if not self._barrier.reached.commands:
            self._tap.raise_ended()
        return self._barrier.reached.commands

    def release(self) -> None:
        """Release the held commands. A rule for every call then holds the next one."""
        self._barrier.release()


TapRuleBlock = AbstractContextManager[HeldCommand]
"""A rule that is active inside its `with` block; the end of the block removes it."""


class ParticipantTap:
    """The tap of one participant. The end of the scenario removes all remaining disturbances."""

    def __init__(
        self,
        tap: Tap,
        pending: Sequence[Pending[Any]],
        cancellation: Cancellation,
        performed: PerformedOperations,
        *,
        transcript: Transcript,
        waiting: Waiting,
    ) -> None:
        self._tap = tap
        self._pending = pending
        self._cancellation = cancellation
        self._performed = performed
        self._transcript = transcript
        self._waiting = waiting

    # At a command.

    def watch(self, at: str = "", **moment: Unpack[RuleMoment]) -> TapRuleBlock:
        """Do nothing; the barrier reports when the command came."""
        return self._when(Watch(), at, moment)

    def hold(self, at: str = "", **moment: Unpack[RuleMoment]) -> TapRuleBlock:
        """Hold the command (or its reply) until the barrier is released."""
        return self._when(Hold(), at, moment)

    def delay(self, ms: float, at: str = "", **moment: Unpack[RuleMoment]) -> TapRuleBlock:
        """Hold the command (or its reply) for `ms`."""
        return self._when(Delay(ms), at, moment)

    def cut(self, at: str = "", *, reset: bool = False, **moment: Unpack[RuleMoment]) -> TapRuleBlock:
        """End the connection: before Redis sees the command, or before the client sees (all of) the reply."""
        return self._when(Cut(reset), at, moment)

    def error(self, text: str, at: str = "", **moment: Unpack[RuleMoment]) -> TapRuleBlock:
        """Answer the command with this error (`LOADING Redis is loading`)."""
        return self._when(Error(text), at, moment)

    # On all connections, new ones included.

    def silence(self) -> AbstractContextManager[None]:
        """Hold back all traffic inside the block; everything arrives after it."""
        self._note("all traffic is held back for a while")
        return self._tap.silence()

    def outage(self, *, reset: bool = True) -> AbstractContextManager[None]:
        """Cut every connection, and refuse new ones inside the block."""
        self._note("every connection is cut, and new ones are refused for a while")
        return self._tap.outage(reset=reset)

    def slow(
        self, *, latency_ms: float = 0.0, bytes_per_s: float | None = None, chunk_bytes: int | None = None
    ) -> AbstractContextManager[None]:
        """Make the network slow inside the block, in each direction."""
        self._note("it is slow for a while")
        return self._tap.link(RedisLink(latency_ms=latency_ms, bytes_per_s=bytes_per_s, chunk_bytes=chunk_bytes))

    def disconnect(self, *, connection: int | None = None, reset: bool = False) -> None:
        """Cut every connection (or one of them) once, now. The client may connect again."""
        self._note("every connection is cut" if connection is None else "one connection is cut")
        self._tap.cut(connection, reset=reset)

    @contextmanager
    def forgotten_scripts(self) -> Iterator[None]:
        """Make Redis appear to have lost its script cache (SCRIPT FLUSH, a restart), for this participant alone.

        Inside the block an EVALSHA gets NOSCRIPT until the client has sent the script's text again.
        """
        self._note("Redis appears to have lost its script cache for a while")
        # Texts that were sent earlier do not count: Redis appears to have forgotten them.
        since = self._tap.recording.mark()
        trigger = Trigger(command="EVALSHA", call=None, where=lambda command: self._is_forgotten(command, since))
        with self._tap.when(trigger, Error(NOSCRIPT)):
            yield

    # Recorded traffic.

    def commands(self, *, where: Where | None = None) -> tuple[CommandRecord, ...]:
        """The commands that the client has sent in this scenario, in order."""
        return self._tap.recording.commands(where=where)

    @property
    def sent_so_far(self) -> int:
        """How many commands the client has sent since the start of the run; costs nothing, however many they are."""
        return self._tap.recording.mark()

    def calls(self, script: str) -> tuple[CommandRecord, ...]:
        """Its calls of one official script, or of its own variant of that script."""
        return self._tap.recording.calls(_script(script))

    def wait_for(self, where: Where, *, within_ms: int = 5000, count: int = 1) -> CommandRecord:
        """Wait until `count` of its commands since the start of the scenario match, and return the last of them.

        Raises Mismatch with the commands seen instead; OperationUnsupported if the client calls unofficial scripts.
        """
        return self.look(lambda for_ms: self._tap.recording.wait_for(where, deadline_ms=for_ms, count=count), within_ms)

    def connections(self) -> tuple[ConnectionView, ...]:
        """Its open connections, oldest first."""
        return self._tap.connections()

    @property
    def opened(self) -> int:
        """How many connections it has opened so far, those included that the tap has refused."""
        return self._tap.opened

    def look(self, attempt: Callable[[int], CommandRecord], within_ms: int) -> CommandRecord:
        """Wait for a command; `attempt(ms)` waits that long, and raises NotSeen if the command has not come.

        Raises Cancelled, the failure of a pending call that the client could not do, or else the result of `missed`.
        """
        not_seen = NotSeen("")
        with self._waiting(SENTENCE, within_ms) as wait:
            # In slices: a pending call that has failed ends the wait, because the command will not come any more.
            for slice_ms in self._cancellation.slices(within_ms):
                try:
                    return attempt(slice_ms)
                except NotSeen as error:
                    not_seen = error
                # After the attempt: the command may have come together with the end of its call.
                self.raise_ended()
                # A command that the kit might not recognize is not worth the whole wait: it decides nothing.
                if wait.left_ms <= 0 or (wait.is_long and isinstance(self.missed(not_seen, wait), CommandUnrecognized)):
                    break
            raise self.missed(not_seen, wait) from not_seen

    def missed(self, not_seen: NotSeen, wait: Wait) -> Exception:
        """The exception for a missing command: the client may do its work by commands or scripts of its own."""
        if any(map(_moves_jobs, self.commands())):
            return CommandUnrecognized(f"this client moves jobs outside of scripts ({not_seen})")
        digests = {command.digest for command in self.commands() if command.digest}
        # A missing command is not a finding if the client may have sent it inside a script that the kit cannot read.
        if any(self._tap.recording.names.of(digest) is None for digest in digests):
            return CommandUnrecognized(f"this client calls unofficial scripts ({not_seen})")
        return wait.mismatch(SENTENCE, str(not_seen))

    def raise_ended(self) -> None:
        """Raise the failure of a pending call that cannot send the command any more, or that the stand-in has done."""
        for pending in self._pending:
            if isinstance(pending.failure, OperationUnsupported | OperationGivenUp | DriverBroken):
                raise pending.failure
            if pending.was_replaced:
                raise _done_by_the_oracle()
        # Without a call in progress, only a loop could send the command, and the stand-in runs that loop.
        stand_in, own = self._performed.stand_in, self._performed.own
        is_replaced = WORKER_RUN in stand_in or (EVENTS_READ in stand_in and WORKER_RUN not in own)
        if is_replaced and all(pending.done for pending in self._pending):
            raise _done_by_the_oracle()

    def _note(self, what: str) -> None:
        self._transcript.disturb(what)

    def _is_forgotten(self, command: CommandRecord, since: int) -> bool:
        """Whether the script's text has not been sent to this node since then."""
        sent = self._tap.recording.commands(after=since, where=lambda other: other.node == command.node)
        texts = (sent_text(command.name, command.args) for command in sent)
        digests = {hashlib.sha1(text, usedforsecurity=False).hexdigest() for text in texts if text is not None}
        # Inside MULTI, Redis itself reports NOSCRIPT only in the reply of EXEC.
        return command.transaction is None and command.digest not in digests

    @contextmanager
    def _when(self, action: Action, at: str, moment: RuleMoment) -> Iterator[HeldCommand]:
        is_command = _COMMAND.fullmatch(at) is not None
        script, command = (None, at) if is_command else (_script(at) or None, None)
        if not isinstance(action, Watch):
            # A watch changes nothing, so the steps to reproduce the scenario need not mention it.
            what = f"{type(action).__name__.lower()} {at or 'a command'}"
            self._note(f"{what} ({moment.get('phase', 'before-send')})")
        with self._tap.when(Trigger(script=script, command=command, **moment), action) as barrier:
            yield HeldCommand(barrier, self)


def _moves_jobs(sent: CommandRecord) -> bool:
    """Whether the command itself changes which jobs wait or are active."""
    places = any(key.endswith((b":wait", b":active")) for key in sent.keys)
    return places and sent.name in WRITES and sent.digest is None


def _done_by_the_oracle() -> OperationUnsupported:
    return OperationUnsupported("tap", "the oracle, as the client's stand-in, sends this command")


def _script(name: str) -> str:
    """The name without a correct number of keys. With a wrong number it stays as it is, and the tap refuses it."""
    base = _KEY_COUNT.sub("", name)
    keys = SCRIPT_SIGNATURES[base].keys if base in SCRIPT_SIGNATURES else ()
    return base if name in {base, f"{base}-{len(keys)}"} else name
