"""All that crossed the wire, one record per command. Safe to read from any thread."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import TypeAlias

from conformance.observe.tap.flight import Flight
from conformance.observe.tap.names import ScriptNames
from conformance.observe.tap.records import KEPT_ARGUMENT_BYTES, CommandRecord

KEPT_COMMANDS = 200_000

Matching: TypeAlias = Callable[[CommandRecord], bool]


class NotSeen(TimeoutError):
    """What was waited for did not happen within its deadline; the text shows what was seen instead."""


class Recording:
    """All commands of a tap, the newest 200,000 of them; `dropped` says how many older ones are gone.

    `kept_bytes`: of each word of a command.
    """

    def __init__(
        self,
        scripts: Mapping[str, str],
        texts: Mapping[str, str] | None = None,
        *,
        kept_bytes: int = KEPT_ARGUMENT_BYTES,
    ) -> None:
        self._kept_bytes = kept_bytes
        self.scripts = dict(scripts)
        """Names by SHA-1."""
        self.names = ScriptNames(self.scripts, texts or {})
        self.dropped = 0
        self._flights: list[Flight] = []
        self._last = 0
        self._changed = threading.Condition()
        self._waiting = 0

    def open(self, flight: Flight) -> None:
        """Number a command and keep it. Called by the loop of the tap only."""
        self._last += 1
        flight.sequence = self._last
        flight.clip(self._kept_bytes)
        self._flights.append(flight)
        self.names.learn(flight.name, flight.args, flight.digest)
        if len(self._flights) > KEPT_COMMANDS:
            gone = KEPT_COMMANDS // 10
            del self._flights[:gone]
            self.dropped += gone
        if self._waiting:
            self.changed()

    def changed(self) -> None:
        """Tell those who wait that there is something new. Called by the loop of the tap only."""
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    def forget(self, *, upto: int | None = None) -> None:
        """Drop all commands so far, or those up to a number; the numbering goes on. Called by the tap's loop only."""
        last = self._last if upto is None else upto
        del self._flights[: bisect_right(self._flights, last, key=lambda flight: flight.sequence)]
        self.dropped = 0

    def mark(self) -> int:
        """The number of the newest command: pass it to `commands` as `after` to see only what comes from now on."""
        return self._last

    def commands(self, *, after: int = 0, where: Matching | None = None) -> tuple[CommandRecord, ...]:
        """The commands in the order of their arrival, as they are now."""
        flights = self._flights[:]
        newer = bisect_right(flights, after, key=lambda flight: flight.sequence)
        records = (flight.record(self.scripts) for flight in flights[newer:])
        return tuple(record for record in records if where is None or where(record))

    def calls(self, script: str, *, after: int = 0) -> tuple[CommandRecord, ...]:
        """The calls of one script, or of what a client has in its place."""
        return self.commands(after=after, where=lambda record: self.names.of(record.digest) == script)

    def wait_for(self, where: Matching, *, deadline_ms: int, count: int = 1, after: int = 0) -> CommandRecord:
        """Wait until so many commands match (a reply may be part of the condition), and answer the last of them.

        Raises NotSeen with the newest commands after `deadline_ms`.
        """
        ends = time.monotonic() + deadline_ms / 1000
        with self._changed:
            self._waiting += 1
            try:
                while len(found := self.commands(after=after, where=where)) < count:
                    left = ends - time.monotonic()
                    if left <= 0:
                        raise NotSeen(f"{len(found)} of {count} commands within {deadline_ms} ms; {self.tail(after)}")
                    self._changed.wait(left)
            finally:
                self._waiting -= 1
        return found[count - 1]

    def tail(self, after: int = 0, lines: int = 15) -> str:
        """The newest commands, one per line, for messages."""
        shown_ones = self.commands(after=after)[-lines:]
        return "last seen:\n" + "\n".join(f"  {record}" for record in shown_ones) if shown_ones else "nothing was seen"
