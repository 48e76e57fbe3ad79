"""Running the official Lua scripts by their SHA-1, loading them where the server does not know them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from redis.exceptions import NoScriptError

from conformance.protocol.keys import QueueKeys
from conformance.protocol.scripts import ErrorCode
from conformance.reference_impl.clock import Clock
from conformance.reference_impl.connection.connection import Connection
from conformance.reference_impl.connection.resp import Argument, Command, CommandHead
from conformance.reference_impl.errors import script_error
from conformance.reference_impl.js_values import well_formed
from conformance.reference_impl.scripts.texts import (
    ClientTexts,
    ScriptText,
    ScriptTexts,
    official_scripts,
    script_texts,
)

__all__ = [
    "EvalCommand",
    "ScriptCalls",
    "ScriptOwner",
    "ScriptRunner",
    "ScriptText",
    "ScriptTexts",
    "is_refusal",
    "official_scripts",
    "script_texts",
]


@dataclass(frozen=True)
class EvalCommand:
    """One script with its KEYS and ARGV. KEYS in a tuple are those of many calls, and are packed once."""

    name: str
    keys: Sequence[str]
    arguments: Sequence[Argument]


class ScriptRunner:
    """Calls scripts over one connection; without `scripts` the official ones.

    Raises BullMQError where these cannot be had.
    """

    def __init__(self, connection: Connection, scripts: ScriptTexts | None) -> None:
        self.connection = connection
        self._texts = ClientTexts(scripts)
        self._sent: set[str] = set()

    async def run(self, call: EvalCommand) -> Any:
        """Run one script and return its raw reply. After NOSCRIPT the same call is sent with the full text.

        The first call of each script has the full text in any case, as Node's has: were it refused with NOSCRIPT and
        sent again, calls that came after it could overtake it.
        """
        if not self._texts.are_known:
            await self._texts.find()
        if call.name not in self._sent:
            # Before the await: calls of the same turn may then use the digest, because Redis runs this one first.
            self._sent.add(call.name)
            return await self.connection.command(*self._by_text(call))
        try:
            return await self.connection.command(*self._by_digest(call))
        # SCRIPT FLUSH or a restart: nothing ran, so sending the same call again is safe.
        except NoScriptError:
            return await self.connection.command(*self._by_text(call))

    def known_digest(self, name: str) -> str | None:
        """SHA-1 of a script that was sent on this connection before; None if its text has to go first."""
        return self._texts.texts[name].sha1 if name in self._sent and self._texts.are_known else None

    async def run_pipeline(self, calls: Sequence[EvalCommand]) -> list[Any]:
        """Run scripts in a pipeline; one that fails has its error as reply. Only a NOSCRIPT error is resent."""
        await self._load_missing(calls)
        replies = await self.connection.pipeline([self._by_digest(call) for call in calls])
        for index, reply in enumerate(replies):
            if isinstance(reply, NoScriptError):
                # One by one, as in Node.js; each was refused before it changed anything.
                replies[index] = await self.connection.command(*self._by_text(calls[index]))
        return replies

    async def run_transaction(self, calls: Sequence[EvalCommand]) -> list[Any]:
        """Run scripts in one MULTI. A script that fails has its error as reply.

        SCRIPT EXISTS runs before each MULTI; Node.js runs it once per socket, and loses every flow after SCRIPT FLUSH.
        A script that Redis drops between this check and EXEC is sent again as text (EVAL). That may be only a part of
        them, because another client may have loaded some of the scripts by then.
        """
        await self._load_missing(calls)
        replies = await self.connection.transaction([self._by_digest(call) for call in calls])
        undone = _undone(replies)
        if undone:
            received = await self.connection.transaction([self._by_text(calls[index]) for index in undone])
            for index, reply in zip(undone, received, strict=True):
                replies[index] = reply
        return replies

    async def _load_missing(self, calls: Sequence[EvalCommand]) -> None:
        """Load beforehand: that keeps the order of the calls, which resending them one by one would not."""
        if not self._texts.are_known:
            await self._texts.find()
        needed = {call.name: self._texts.texts[call.name] for call in calls}
        if not needed:
            return
        # Each time, not once per socket: SCRIPT FLUSH may come at any moment, and a MULTI cannot resend a single call.
        known = await self.connection.command("SCRIPT EXISTS", *(script.sha1 for script in needed.values()))
        for script, is_known in zip(needed.values(), known, strict=True):
            if not is_known:
                await self.connection.command("SCRIPT LOAD", script.text)

    def _by_digest(self, call: EvalCommand) -> Command:
        script = self._script(call)
        if isinstance(call.keys, tuple) and self.connection.is_single:
            return (_head(script.sha1, call.keys), *call.arguments)
        return ("EVALSHA", script.sha1, len(call.keys), *call.keys, *call.arguments)

    def _by_text(self, call: EvalCommand) -> Command:
        return ("EVAL", self._script(call).text, len(call.keys), *call.keys, *call.arguments)

    def _script(self, call: EvalCommand) -> ScriptText:
        script = self._texts.texts[call.name]
        if script.key_count != len(call.keys):
            raise ValueError(f"{call.name} takes {script.key_count} keys, not {len(call.keys)}")
        return script


@lru_cache(maxsize=1024)
def _head(sha1: str, keys: tuple[str, ...]) -> CommandHead:
    """Return the words of a call before its arguments."""
    return CommandHead("EVALSHA", sha1, str(len(keys)), *map(well_formed, keys))


def _undone(replies: Sequence[Any]) -> list[int]:
    """Which calls of a transaction are to be sent again: the forgotten, and what was refused for want of them."""
    # Without NOSCRIPT a missing parent is a real refusal, not the consequence of a script that was not loaded.
    if not any(isinstance(reply, NoScriptError) for reply in replies):
        return []
    return [index for index, reply in enumerate(replies) if _is_undone(reply)]


def _is_undone(reply: Any) -> bool:
    return isinstance(reply, NoScriptError) or reply == ErrorCode.MISSING_PARENT


class ScriptOwner(Protocol):
    """The queue or worker on whose behalf scripts run."""

    @property
    def keys(self) -> QueueKeys:
        """Key names of the queue."""
        ...

    @property
    def opts(self) -> Mapping[str, Any]:
        """QueueOptions or WorkerOptions."""
        ...

    @property
    def clock(self) -> Clock:
        """The client's clock."""
        ...

    @property
    def closing(self) -> bool:
        """Whether the owner fetches no more jobs."""
        ...


class ScriptCalls:
    """Base of the groups of script calls."""

    def __init__(self, runner: ScriptRunner, owner: ScriptOwner) -> None:
        self._runner = runner
        self._owner = owner

    @property
    def runner(self) -> ScriptRunner:
        """The runner, which all groups of one object share."""
        return self._runner

    @property
    def _keys(self) -> QueueKeys:
        return self._owner.keys

    async def _run(self, name: str, keys: Sequence[str], *arguments: Argument) -> Any:
        return await self._runner.run(EvalCommand(name, keys, arguments))

    async def _run_on_job(
        self, name: str, job_id: str, keys: Sequence[str], *arguments: Argument, state: str | None = None
    ) -> Any:
        """Run a script about one job. Raises ScriptError for a negative result; `state` is named in its text."""
        reply = await self._run(name, keys, *arguments)
        if is_refusal(reply):
            raise script_error(reply, command=name, job=job_id, state=state)
        return reply


def is_refusal(reply: Any) -> bool:
    """Whether a script's reply is an error code."""
    return isinstance(reply, int) and reply < 0
