"""Running the official Lua scripts by their SHA-1, loading them where the server does not know them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from redis.exceptions import NoScriptError

from conformance.protocol.errors import ErrorCode
from conformance.reference_impl.connection.connection import Connection
from conformance.reference_impl.connection.resp import Argument, Command


class ScriptText(Protocol):
    """A Lua script of the pinned package (`conformance.upstream` provides them)."""

    @property
    def name(self) -> str:
        """Name without the number of keys, for example `moveToActive`."""
        ...

    @property
    def key_count(self) -> int:
        """How many of the arguments are KEYS."""
        ...

    @property
    def text(self) -> str:
        """Source as BullMQ sends it."""
        ...

    @property
    def sha1(self) -> str:
        """SHA-1 of the text, in hexadecimal."""
        ...


ScriptTexts = Mapping[str, ScriptText]
"""Scripts by name."""


_ATTEMPTS: Final = 3
"""So often in a row nobody forgets all scripts just between two commands."""


@dataclass(frozen=True)
class ScriptCall:
    """One script with its KEYS and ARGV."""

    name: str
    keys: Sequence[str]
    arguments: Sequence[Argument]


class ScriptRunner:
    """Calls scripts over one connection."""

    def __init__(self, connection: Connection, scripts: ScriptTexts) -> None:
        self.connection = connection
        self._scripts = scripts

    async def run(self, call: ScriptCall) -> Any:
        """Run one script and answer its raw reply. After NOSCRIPT the same call is sent with the full text."""
        try:
            return await self.connection.command(*self._by_digest(call))
        except NoScriptError:
            return await self.connection.command(*self._by_text(call))

    async def run_pipeline(self, calls: Sequence[ScriptCall]) -> list[Any]:
        """Run scripts in one write. An error stands in the place of its reply; only NOSCRIPT is resent."""
        await self._load_missing(calls)
        replies = await self.connection.pipeline([self._by_digest(call) for call in calls])
        for index, reply in enumerate(replies):
            if isinstance(reply, NoScriptError):
                replies[index] = await self.connection.command(*self._by_text(calls[index]))
        return replies

    async def run_transaction(self, calls: Sequence[ScriptCall]) -> list[Any]:
        """Run scripts in one MULTI. An error stands in the place of its reply.

        Scripts are looked up before each MULTI; Node does it once per socket, and loses every flow after SCRIPT FLUSH.
        What Redis has forgotten between that and EXEC is sent again. That may be a part only: another client may have
        loaded some of the scripts by then. Raises NoScriptError when Redis keeps on forgetting.
        """
        replies: list[Any] = [None] * len(calls)
        due = list(range(len(calls)))
        for _ in range(_ATTEMPTS):
            sent = [calls[index] for index in due]
            await self._load_missing(sent)
            answers = await self.connection.transaction([self._by_digest(call) for call in sent])
            for index, reply in zip(due, answers, strict=True):
                replies[index] = reply
            due = _undone(due, replies)
            if not due:
                return replies
        raise NoScriptError("Redis has forgotten the scripts of a transaction several times in a row")

    async def _load_missing(self, calls: Sequence[ScriptCall]) -> None:
        """Load beforehand: that keeps the order of the calls, which resending them one by one would not."""
        needed = {call.name: self._scripts[call.name] for call in calls}
        if not needed:
            return
        known = await self.connection.command("SCRIPT EXISTS", *(script.sha1 for script in needed.values()))
        for script, is_known in zip(needed.values(), known, strict=True):
            if not is_known:
                await self.connection.command("SCRIPT LOAD", script.text)

    def _by_digest(self, call: ScriptCall) -> Command:
        return ("EVALSHA", self._script(call).sha1, len(call.keys), *call.keys, *call.arguments)

    def _by_text(self, call: ScriptCall) -> Command:
        return ("EVAL", self._script(call).text, len(call.keys), *call.keys, *call.arguments)

    def _script(self, call: ScriptCall) -> ScriptText:
        script = self._scripts[call.name]
        if script.key_count != len(call.keys):
            raise ValueError(f"{call.name} takes {script.key_count} keys, not {len(call.keys)}")
        return script


def _undone(due: Sequence[int], replies: Sequence[Any]) -> list[int]:
    """Which calls of a transaction are to be sent again: the forgotten, and what was refused for want of them."""
    if not any(isinstance(replies[index], NoScriptError) for index in due):
        return []
    return [index for index in due if _is_undone(replies[index])]


def _is_undone(reply: Any) -> bool:
    return isinstance(reply, NoScriptError) or reply == ErrorCode.MISSING_PARENT
