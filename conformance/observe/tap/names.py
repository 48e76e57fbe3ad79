"""Which official script a client calls: by the SHA-1 of its text, or by its likeness to an official text.

A client may have the scripts of another version, or scripts that were changed a little. A tap that shall interfere "at
moveToActive" means those too. They do not count as official: only the exact text is held to how it must be called.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from conformance.observe.tap.commands import BY_TEXT

LIKENESS = 0.5
"""A text is taken for the official script that it has most lines in common with, if it has this part of its lines."""


class ScriptNames:
    """Names of scripts by SHA-1. `texts`: the official texts by name; without them only exact ones are known.

    Scripts are learnt from commands in the loop of the tap, and may be asked for from any thread.
    """

    def __init__(self, exact: Mapping[str, str], texts: Mapping[str, str]) -> None:
        self._names: dict[str, str | None] = dict(exact)
        self._official = {name: _lines(text) for name, text in texts.items()}

    def of(self, digest: str | None) -> str | None:
        """The name of the script with this SHA-1, None where it is unknown or like no official one."""
        return None if digest is None else self._names.get(digest)

    def learn(self, command: str, args: tuple[bytes, ...]) -> None:
        """Look at a command that may carry the text of a script."""
        sent = sent_text(command, args)
        if sent is not None and self._official:
            digest = hashlib.sha1(sent, usedforsecurity=False).hexdigest()
            if digest not in self._names:
                self._names[digest] = self._likest(_lines(sent.decode("utf-8", "replace")))

    def _likest(self, lines: frozenset[str]) -> str | None:
        official = self._official
        name = max(official, key=lambda one: len(lines & official[one]) / len(lines | official[one]))
        return name if len(lines & official[name]) >= LIKENESS * len(official[name]) else None


def sent_text(command: str, args: tuple[bytes, ...]) -> bytes | None:
    """The text of a script that a command carries, which Redis then knows; None if it carries none."""
    if command in BY_TEXT and len(args) > 1:
        return args[1]
    return args[2] if command == "SCRIPT" and len(args) > 2 and args[1].upper() == b"LOAD" else None


def _lines(text: str) -> frozenset[str]:
    return frozenset(line.strip() for line in text.splitlines() if line.strip())
