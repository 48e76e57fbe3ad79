"""Hears every command that one client sends through a tap, and what the test was doing when its connection came in."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.observe.tap.tap import Tap

EVERY_BYTE = 1 << 30
"""What the tap is to keep of each word, in bytes: more than Redis takes (512 MiB)."""


@dataclass(frozen=True)
class Command:
    """A command as it crossed the wire, on the connection that was opened while `opener` was current."""

    opener: str
    words: tuple[bytes, ...]


class Ear:
    """Whoever has the reply to a command finds the command heard."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap
        self._opener = ""
        self._openers: dict[int, str] = {}
        """By the number of the connection."""
        self._heard = 0

    @property
    def address(self) -> str:
        """Where the client is to connect to."""
        return self._tap.address

    def attribute_to(self, opener: str) -> None:
        """Connections that come in from now on belong to this."""
        self._attribute_new_connections()
        self._opener = opener

    def take(self) -> list[Command]:
        """All commands since the last time, in the order of their arrival."""
        self._attribute_new_connections()
        records = self._tap.recording.commands(after=self._heard)
        assert not any(record.clipped for record in records), "every byte is compared"
        self._heard = records[-1].sequence if records else self._heard
        return [Command(self._openers.setdefault(record.connection, self._opener), record.args) for record in records]

    def _attribute_new_connections(self) -> None:
        for connection in self._tap.connections():
            self._openers.setdefault(connection.number, self._opener)
