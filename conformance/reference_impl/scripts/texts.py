"""The texts of the official Lua scripts: given, in a folder, or downloaded once per process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from conformance.problems import Problem
from conformance.reference_impl.errors import BullMQError

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


class ClientTexts:
    """The scripts of one client: given ones, or the official ones, which the first call looks for.

    `are_known`: whether `texts` has them and no call still waits, so that a call may be sent at once.
    """

    def __init__(self, scripts: ScriptTexts | None) -> None:
        self.texts: ScriptTexts = {} if scripts is None else scripts
        self.are_known = scripts is not None
        self._looking: asyncio.Task[ScriptTexts] | None = None
        self._waiting = 0

    async def find(self) -> None:
        """Look for the official scripts in a thread; all calls wait for the same look, and go on in their order.

        Raises BullMQError where they cannot be had.
        """
        if _OFFICIAL.found is not None and not self._waiting:
            self.texts, self.are_known = _OFFICIAL.found, True
            return
        # A future per call, so that cancelling one call does not cancel the others. Futures are settled in the order of
        # the calls, even if the scripts are loaded by now, so that no call overtakes an earlier one.
        told = asyncio.get_running_loop().create_future()
        look = self._look()
        look.add_done_callback(lambda _: None if told.done() else told.set_result(None))
        # Later calls also wait while this is above 0, even if the texts are there: none may overtake.
        self._waiting += 1
        self.are_known = False
        try:
            await told
            self.texts = look.result()
        except Problem as problem:
            raise BullMQError(str(problem)) from problem
        finally:
            self._waiting -= 1
            self.are_known = bool(self.texts) and not self._waiting

    def _look(self) -> asyncio.Task[ScriptTexts]:
        """The look that is under way; another one where there is none, or the last one failed."""
        look = self._looking
        if look is None or (look.done() and (look.cancelled() or look.exception() is not None)):
            # In a thread, because a download would block the event loop and with it the renewal of locks.
            look = self._looking = asyncio.create_task(asyncio.to_thread(official_scripts))
        return look
