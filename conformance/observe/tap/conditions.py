"""What holds on all connections of a tap until it is taken back: slow links, silence, refusal. For its loop only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.observe.tap.conversation import Conversation
from conformance.observe.tap.outlet import Link


class Conditions:
    """In force on the connections in `live`, and those that `greet` brings. Taking away what is gone does nothing."""

    def __init__(self, live: Mapping[int, Conversation]) -> None:
        self._live = live
        self._links: list[tuple[Link, int | None]] = []
        self._silences: list[object] = []
        self._refusals: list[object] = []

    @property
    def refuses(self) -> bool:
        """Whether new connections are reset at once."""
        return bool(self._refusals)

    def greet(self, conversation: Conversation) -> None:
        """Put a new connection under what is in force."""
        self._apply_links()
        for _ in self._silences:
            conversation.silence()

    def slow_down(self, entry: tuple[Link, int | None]) -> None:
        """Make all connections slow, or the one with this number."""
        self._links.append(entry)
        self._apply_links()

    def speed_up(self, entry: tuple[Link, int | None]) -> None:
        """Take a slow link back."""
        _discard(self._links, entry)
        self._apply_links()

    def silence(self, silence: object) -> None:
        """Let nothing pass."""
        self._silences.append(silence)
        for conversation in list(self._live.values()):
            conversation.silence()

    def speak(self, silence: object) -> None:
        """Take a silence back."""
        if silence in self._silences:
            self._silences.remove(silence)
            for conversation in list(self._live.values()):
                conversation.speak()

    def refuse(self, refusal: object) -> None:
        """Reset new connections."""
        self._refusals.append(refusal)

    def admit(self, refusal: object) -> None:
        """Take a refusal back."""
        _discard(self._refusals, refusal)

    def heal(self) -> None:
        """Take everything back."""
        self._refusals.clear()
        self._links.clear()
        self._apply_links()
        for silence in list(self._silences):
            self.speak(silence)

    def _apply_links(self) -> None:
        for conversation in self._live.values():
            chosen = [link for link, number in self._links if number in {None, conversation.number}]
            conversation.to_redis.link = conversation.to_client.link = chosen[-1] if chosen else None


def _discard(entries: list[Any], entry: object) -> None:
    if entry in entries:
        entries.remove(entry)
