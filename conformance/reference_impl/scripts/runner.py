"""Running the official Lua scripts by their SHA-1, loading them where the server does not know them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

from redis.exceptions import NoScriptError

from conformance.problems import Problem
from conformance.protocol.keys import QueueKeys
from conformance.protocol.scripts import ErrorCode
from conformance.reference_impl.clock import Clock
from conformance.reference_impl.connection.connection import Connection
from conformance.reference_impl.connection.resp import Argument, Command, CommandHead
from conformance.reference_impl.errors import BullMQError, script_error
from conformance.reference_impl.js_values import well_formed

logger = logging.getLogger("bullmq")


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


class OfficialTexts:
    """The official scripts, found once per process and shared by all its clients."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.found: ScriptTexts | None = None

    def get(self) -> ScriptTexts:
        """Return them; the first time they are looked for, and fetched if need be. Blocks meanwhile."""
        # A thread lock: several event loops of one process may look for the scripts at the same time.
        with self._lock:
            if self.found is None:
                from conformance.upstream.lua_download import (  # noqa: PLC0415 - who passes scripts needs none
                    scripts_without_node,
                )

                self.found = scripts_without_node(announce=logger.info)
            return self.found


_OFFICIAL: Final = OfficialTexts()


def official_scripts() -> ScriptTexts:
    """Return the scripts of the pinned npm package by name, found once per process; neither Node nor npm is needed.

    They come from the folder that `BULLMQ_SCRIPTS` names, the user's cache, or else from the npm registry. Blocks the
    first time: a client calls it in a thread. Raises conformance.problems.EnvironmentProblem where there is no network
    for the first time, or the texts are not those of the manifest.
    """
    return _OFFICIAL.get()


def texts_in_folder(folder: str | Path) -> ScriptTexts:
    """Return the scripts that a folder has: an unpacked package of bullmq, or files `NAME-KEYS.lua`.

    Raises BullMQError where they are not the pinned ones.
    """
    from conformance.upstream.lua_download import scripts_in_folder  # noqa: PLC0415 - who passes scripts needs none

    try:
        return scripts_in_folder(Path(folder).expanduser())
    except Problem as problem:
        raise BullMQError(str(problem)) from problem


def script_texts(scripts: ScriptTexts | str | Path | None) -> ScriptTexts | None:
    """Return the scripts that a client was given, itself or in a folder; None for the official ones.

    Those are looked for when the first of them is called.
    """
    return texts_in_folder(scripts) if isinstance(scripts, (str, Path)) else scripts


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
        self._scripts: ScriptTexts = {} if scripts is None else scripts
        self._has_texts = scripts is not None
        self._finding: asyncio.Task[ScriptTexts] | None = None
        self._without_texts = 0
        self._sent: set[str] = set()

    async def run(self, call: EvalCommand) -> Any:
        """Run one script and return its raw reply. After NOSCRIPT the same call is sent with the full text.

        The first call of each script has the full text in any case, as Node's has: were it refused with NOSCRIPT and
        sent again, calls that came after it could overtake it.
        """
        if not self._has_texts or self._without_texts:
            await self._find_texts()
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
        return self._scripts[name].sha1 if name in self._sent and not self._without_texts else None

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
        if not self._has_texts or self._without_texts:
            await self._find_texts()
        needed = {call.name: self._scripts[call.name] for call in calls}
        if not needed:
            return
        # Each time, not once per socket: SCRIPT FLUSH may come at any moment, and a MULTI cannot resend a single call.
        known = await self.connection.command("SCRIPT EXISTS", *(script.sha1 for script in needed.values()))
        for script, is_known in zip(needed.values(), known, strict=True):
            if not is_known:
                await self.connection.command("SCRIPT LOAD", script.text)

    async def _find_texts(self) -> None:
        """Look for the official scripts in a thread; all calls wait for the same look, and go on in their order."""
        if _OFFICIAL.found is not None and not self._without_texts:
            self._scripts, self._has_texts = _OFFICIAL.found, True
            return
        # A future per call, so that cancelling one call does not cancel the others. Futures are settled in the order of
        # the calls, even if the scripts are loaded by now, so that no call overtakes an earlier one.
        told = asyncio.get_running_loop().create_future()
        look = self._look()
        look.add_done_callback(lambda _: None if told.done() else told.set_result(None))
        # Later calls also wait while this is above 0, even if the texts are there: none may overtake.
        self._without_texts += 1
        try:
            await told
            self._scripts, self._has_texts = look.result(), True
        except Problem as problem:
            raise BullMQError(str(problem)) from problem
        finally:
            self._without_texts -= 1

    def _look(self) -> asyncio.Task[ScriptTexts]:
        """The look that is under way; another one where there is none, or the last one failed."""
        look = self._finding
        if look is None or (look.done() and (look.cancelled() or look.exception() is not None)):
            # In a thread, because a download would block the event loop and with it the renewal of locks.
            look = self._finding = asyncio.create_task(asyncio.to_thread(official_scripts))
        return look

    def _by_digest(self, call: EvalCommand) -> Command:
        script = self._script(call)
        if isinstance(call.keys, tuple) and self.connection.is_single:
            return (_head(script.sha1, call.keys), *call.arguments)
        return ("EVALSHA", script.sha1, len(call.keys), *call.keys, *call.arguments)

    def _by_text(self, call: EvalCommand) -> Command:
        return ("EVAL", self._script(call).text, len(call.keys), *call.keys, *call.arguments)

    def _script(self, call: EvalCommand) -> ScriptText:
        script = self._scripts[call.name]
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
