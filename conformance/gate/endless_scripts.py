"""Scripts of the client that do not end: each is noticed once, counts against the client, and is not sent again.

Redis serves no client while a script runs, so every process of a run would wait for the script of one scenario.
`servers/endless_scripts.py` ends it, in the process that has opened Redis.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from redis.exceptions import RedisError

from conformance.environment.drivers import TapPoint
from conformance.observe.tap.rules import Barrier, Error, Trigger
from conformance.servers.connection import Client, wait_until
from conformance.servers.endless_scripts import is_busy
from conformance.servers.opening import RedisInstance

LOOK_EVERY_S = 0.25
BUSY_AFTER_MS = 5000
"""When Redis calls itself busy, if its settings do not say."""
SPARE_S = 0.2
NOTE = "bullmq-conformance:endless-scripts"
"""Key of a hash: names of endless scripts by their digest, for the other processes of the run."""
_IS_BUSY, _IS_AWAY = "BUSY Redis is busy", "the kit itself broke: ConnectionError"
FREE_AGAIN_S, KILLED_S = 10.0, 1.0
"""A new server starts in about a second; a script that can be killed ends at once."""


class EndlessScripts:
    """Watches the client's tap in one scenario after the other. The digests of endless scripts are remembered."""

    def __init__(self, server: RedisInstance, redis: Client, point: TapPoint, others: Iterable[TapPoint]) -> None:
        self._server, self._redis, self._tap = server, redis, point.tap
        self._taps = [other.tap for other in (point, *others) if other.tap is not None]
        settings = server.settings
        limit = settings.get("busy-reply-threshold") or settings.get("lua-time-limit") or ""
        # 0: Redis never calls itself busy.
        self._busy_after_s = (int(limit) if limit.isdigit() and int(limit) else BUSY_AFTER_MS) / 1000 + SPARE_S
        self._names: dict[str, str] = {}
        self._refusals = ExitStack()
        self._refused: Barrier | None = None
        self._looked_s = 0.0
        self._gone = False
        self.ended = ""
        """The script that did not end in this scenario; empty if all did."""

    def begin(self) -> None:
        """Start a scenario."""
        self._read_note()
        self.ended = ""
        self._refused = None
        self.refuse()

    def refuse(self) -> None:
        """Answer every call of an endless script with an error; again after the tap's rules were removed."""
        if self._tap is None or not self._names or (self._refused and self._refused.reached.commands):
            return
        self._refusals.close()
        trigger = Trigger(call=None, where=lambda command: command.digest in self._names)
        error = Error("ERR this script did not end before, so the kit does not send it again")
        self._refused = self._refusals.enter_context(self._tap.when(trigger, error))

    @property
    def refused(self) -> str:
        """Why this scenario cannot go on: the client needs a script that did not end before. Empty if it does not."""
        commands = self._refused.reached.commands if self._refused else ()
        name = self._names.get(commands[0].digest or "", "") if commands else ""
        return f"{name} of the client did not end before, so the kit does not send it again" if name else ""

    @property
    def known(self) -> str:
        """The scripts that did not end, in this scenario or before."""
        return ", ".join(sorted(set(self._names.values())))

    def look(self) -> str:
        """Return why the scenario cannot go on; empty if it can."""
        if time.monotonic() - self._looked_s >= LOOK_EVERY_S:
            self.look_now()
        return f"{self.ended} of the client does not end" if self.ended else self.refused

    def look_now(self) -> None:
        """Notice a script that has not ended."""
        self._looked_s = time.monotonic()
        unended = self._tap.recording.unended_scripts(self._busy_after_s) if self._tap and not self.ended else ()
        # A scenario may hold back answers: only Redis itself knows whether the script still runs.
        if self._tap and unended and (unended[0].reply or is_busy(self._server)):
            digest = unended[0].digest or ""
            self.ended = self._names[digest] = f"the script {self._tap.recording.names.of(digest) or digest}"
            self.refuse()

    @property
    def hurt(self) -> bool:
        """Whether Redis was busy with a script when one of the participants sent a command."""
        return any(tap.recording.has_reply(b"-BUSY ") for tap in self._taps)

    def wait(self) -> bool:
        """Wait until Redis answers, and name the scripts to the other processes. Returns whether it does answer."""
        own = self._server.own
        answers = not self._gone and wait_until(self._answers, deadline_s=FREE_AGAIN_S if own else KILLED_S)
        # A Redis that does not come back is not waited for in each of the other scenarios.
        self._gone = own and not answers
        # Not in a Redis of the user, in which the kit writes only below its prefixes.
        for digest, name in self._names.items() if own and answers else ():
            self._redis.hset(NOTE, digest, name)
        return answers

    def explains(self, error: str) -> bool:
        """Whether an error says that Redis was busy, or away for a restart because of it, and it answers again."""
        return (_IS_BUSY in error or (self._server.own and error.startswith(_IS_AWAY))) and self.wait()

    def _answers(self) -> bool:
        try:
            return bool(self._redis.ping()) and not is_busy(self._server)
        except RedisError:
            return False

    def _read_note(self) -> None:
        if self._server.own:
            noted: dict[Any, Any] = self._redis.hgetall(NOTE)
            self._names |= {digest.decode(): name.decode() for digest, name in noted.items()}
