"""Which official script a client calls: by the SHA-1 of its text, by a text that is like it, or by the keys it gets.

A client may have the scripts of another version, or scripts that were changed a little. A tap that shall interfere "at
moveToActive" means those too. They do not count as official: only the exact text is held to how it must be called.
The keys tell where Redis knew the script already, so that its text never passed the tap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from conformance.observe.tap.commands import BY_DIGEST, BY_TEXT, key_count
from conformance.protocol.script_calls import SCRIPT_CALLS, ScriptCall

LIKENESS = 0.5
"""A text is taken for the official script that it has most lines in common with, if it has this part of its lines."""


LIKENESS_OF_KEYS = 0.7
"""The same for keys. Where two scripts get such keys, nobody knows which of them it is."""

_FIXED = frozenset(
    name.encode()
    for call in SCRIPT_CALLS.values()
    for names in call.keys
    for name in names.split("|")
    if "<" not in name
)


class ScriptNames:
    """Names of scripts by SHA-1. `texts`: the official texts by name; without them only exact ones are known.

    Scripts are learnt from commands in the loop of the tap, and may be asked for from any thread.
    """

    def __init__(self, exact: Mapping[str, str], texts: Mapping[str, str]) -> None:
        self._names: dict[str, str | None] = dict(exact)
        self._by_keys: set[str] = set()
        self._official = {name: _lines(text) for name, text in texts.items()}

    def of(self, digest: str | None) -> str | None:
        """The name of the script with this SHA-1, None where it is unknown or like no official one."""
        return None if digest is None else self._names.get(digest)

    def learn(self, command: str, args: tuple[bytes, ...], digest: str | None) -> None:
        """Look at a command that carries or calls a script."""
        if not self._official:
            return
        sent = sent_text(command, args)
        if sent is not None:
            digest = hashlib.sha1(sent, usedforsecurity=False).hexdigest()
            if digest not in self._names or digest in self._by_keys:
                self._by_keys.discard(digest)
                self._names[digest] = self._likest(_lines(sent.decode("utf-8", "replace")))
        elif command in BY_DIGEST and digest is not None and digest not in self._names:
            self._by_keys.add(digest)
            self._names[digest] = script_with_keys(args[3 : 3 + key_count(args)])

    def _likest(self, lines: frozenset[str]) -> str | None:
        official = self._official
        name = max(official, key=lambda one: len(lines & official[one]) / len(lines | official[one]))
        return name if len(lines & official[name]) >= LIKENESS * len(official[name]) else None


def script_with_keys(keys: Sequence[bytes]) -> str | None:
    """The official script that gets keys like these; None where there is none, or more than one."""
    ends = [key.rpartition(b":")[2] for key in keys]
    likeness = {name: _likeness(ends, call) for name, call in SCRIPT_CALLS.items()}
    best = max(likeness.values())
    names = [name for name, value in likeness.items() if value == best]
    return names[0] if best >= LIKENESS_OF_KEYS and len(names) == 1 else None


def _likeness(ends: Sequence[bytes], call: ScriptCall) -> float:
    """Which part of the keys a call shares with an official one. A `<job>` may be any end that is no fixed name."""
    left = list(ends)
    for names in call.keys:
        for name in names.split("|"):
            wanted = name.removeprefix("<job>").removeprefix(":").encode()
            found = [end for end in left if (end not in _FIXED if name == "<job>" else end == wanted)]
            if found:
                left.remove(found[0])
                break
    return (len(ends) - len(left)) / max(len(ends), len(call.keys), 1)


def sent_text(command: str, args: tuple[bytes, ...]) -> bytes | None:
    """The text of a script that a command carries, which Redis then knows; None if it carries none."""
    if command in BY_TEXT and len(args) > 1:
        return args[1]
    return args[2] if command == "SCRIPT" and len(args) > 2 and args[1].upper() == b"LOAD" else None


def _lines(text: str) -> frozenset[str]:
    return frozenset(line.strip() for line in text.splitlines() if line.strip())
