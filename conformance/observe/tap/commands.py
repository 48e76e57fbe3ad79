"""Interprets the words of a command: its name, keys and script, whether it may block, and its secrets. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance.protocol.scripts import SCRIPT_SIGNATURES, ScriptSignature

BY_TEXT = frozenset({"EVAL", "EVAL_RO"})
BY_DIGEST = frozenset({"EVALSHA", "EVALSHA_RO"})
_WITH_KEY_COUNT = BY_TEXT | BY_DIGEST | {"FCALL", "FCALL_RO"}

KEYLESS = frozenset(
    {
        *("ACL", "ASKING", "AUTH", "BGREWRITEAOF", "BGSAVE", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DBSIZE"),
        *("DEBUG", "DISCARD", "ECHO", "EXEC", "FLUSHALL", "FLUSHDB", "FUNCTION", "HELLO", "INFO", "KEYS", "LASTSAVE"),
        *("LATENCY", "MODULE", "MONITOR", "MULTI", "PING", "PSUBSCRIBE", "PSYNC", "PUBLISH", "PUBSUB", "PUNSUBSCRIBE"),
        *("QUIT", "READONLY", "READWRITE", "REPLICAOF", "RESET", "ROLE", "SAVE", "SCAN", "SCRIPT", "SELECT"),
        *("SHUTDOWN", "SLAVEOF", "SLOWLOG", "SUBSCRIBE", "SWAPDB", "SYNC", "TIME", "UNSUBSCRIBE", "UNWATCH", "WAIT"),
    }
)
_ALL_KEYS = frozenset(
    {"DEL", "EXISTS", "MGET", "PFCOUNT", "SDIFF", "SINTER", "SUNION", "TOUCH", "UNLINK", "WATCH", "SSUBSCRIBE"}
)
_ALL_BUT_LAST = frozenset({"BLPOP", "BRPOP", "BZPOPMIN", "BZPOPMAX"})
_TWO_KEYS = frozenset(
    {"BLMOVE", "BRPOPLPUSH", "COPY", "LMOVE", "RENAME", "RENAMENX", "RPOPLPUSH", "SMOVE", "ZRANGESTORE"}
)
_COUNTED_AT: Mapping[str, int] = {"LMPOP": 0, "ZMPOP": 0, "ZUNION": 0, "ZINTER": 0, "BLMPOP": 1, "BZMPOP": 1}
_BLOCKING = _ALL_BUT_LAST | {"BLMOVE", "BRPOPLPUSH", "BLMPOP", "BZMPOP", "WAIT"}

REDACTED = b"(redacted)"

LIKENESS = 0.5
"""A text counts as the official script with the most common lines, if it has at least this part of its lines."""
LIKENESS_OF_KEYS = 0.7
"""The same for keys. If two scripts have such keys, the script is unknown."""

_FIXED = frozenset(
    name.encode()
    for call in SCRIPT_SIGNATURES.values()
    for names in call.keys
    for name in names.split("|")
    if "<" not in name
)


@dataclass(frozen=True, slots=True)
class CommandMeaning:
    """The meaning of a command. `digest` and `script` (its name, None if unknown) are for calls of scripts."""

    name: str
    keys: tuple[bytes, ...]
    argv: tuple[bytes, ...]
    digest: str | None
    script: str | None


def name_of(args: tuple[bytes, ...]) -> str:
    """The name of a command in capitals; empty for the empty line."""
    return args[0].decode("latin-1").upper() if args else ""


def digest_of(name: str, args: tuple[bytes, ...]) -> str | None:
    """The SHA-1 of the script that a command calls, by its text or by its digest; None if it calls none."""
    if name in BY_DIGEST and len(args) > 1:
        return args[1].decode("latin-1").lower()
    if name in BY_TEXT and len(args) > 1:
        return hashlib.sha1(args[1], usedforsecurity=False).hexdigest()
    return None


def keys_of(name: str, args: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The keys that a command declares. For unlisted commands this is the first word."""
    words = args[1:]
    if not words or name in KEYLESS:
        return ()
    if name in _WITH_KEY_COUNT:
        return words[2 : 2 + key_count(args)]
    if name in _ALL_KEYS:
        return words
    if name in _ALL_BUT_LAST:
        return words[:-1]
    if name in _TWO_KEYS:
        return words[:2]
    if name in {"MSET", "MSETNX"}:
        return words[::2]
    if name in {"XREAD", "XREADGROUP"}:
        return _keys_of_xread(words)
    if name in _COUNTED_AT:
        return _counted(words, _COUNTED_AT[name])
    return words[:1]


def _keys_of_xread(words: tuple[bytes, ...]) -> tuple[bytes, ...]:
    upper = [word.upper() for word in words]
    if b"STREAMS" not in upper:
        return ()
    streams = words[upper.index(b"STREAMS") + 1 :]
    return streams[: len(streams) // 2]


def _counted(words: tuple[bytes, ...], at: int) -> tuple[bytes, ...]:
    count = words[at] if at < len(words) else b""
    return words[at + 1 : at + 1 + int(count)] if count.isdigit() else ()


def key_count(args: tuple[bytes, ...]) -> int:
    """The number of KEYS in a call of a script; 0 if it is not a number, which Redis refuses."""
    return int(args[2]) if len(args) > 2 and args[2].isdigit() else 0


def argv_of(name: str, args: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """ARGV of a script; for other commands all words after the name."""
    return args[3 + key_count(args) :] if name in _WITH_KEY_COUNT else args[1:]


def meaning_of(args: tuple[bytes, ...], digest: str | None, scripts: Mapping[str, str]) -> CommandMeaning:
    """Interpret a command. `scripts`: names by SHA-1 (lower-case hex)."""
    name = name_of(args)
    script = scripts.get(digest) if digest else None
    return CommandMeaning(name, keys_of(name, args), argv_of(name, args), digest, script)


def may_block(name: str, args: tuple[bytes, ...]) -> bool:
    """Whether the command may block."""
    if name in {"XREAD", "XREADGROUP"}:
        # Without BLOCK these commands return at once.
        return any(word.upper() == b"BLOCK" for word in args)
    return name in _BLOCKING


def without_secrets(name: str, args: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The words without passwords, for records and messages."""
    if name == "AUTH":
        return (args[0], *(REDACTED for _ in args[1:]))
    if name == "HELLO":
        upper = [word.upper() for word in args]
        if b"AUTH" in upper:
            at = upper.index(b"AUTH") + 1
            return (*args[:at], *(REDACTED for _ in args[at : at + 2]), *args[at + 2 :])
    if name in {"CONFIG", "ACL"} and len(args) > 3:
        return (*args[:3], *(REDACTED for _ in args[3:]))
    return args


class ScriptNames:
    """Recognizes official scripts by the SHA-1 of their text, by a similar text, or by the keys of a call.

    A client may use scripts of another version, or slightly changed ones. A rule "at moveToActive" must match these
    too, but they are not official: the kit only checks the arguments of scripts with the exact text. Keys are used if
    Redis already had the script, so that its text never passed the tap.

    `exact`: names by SHA-1. `texts`: the official texts by name; without them only exact scripts are recognized. The
    loop of the tap learns scripts from commands; `of` may be called from any thread.
    """

    def __init__(self, exact: Mapping[str, str], texts: Mapping[str, str]) -> None:
        self._names: dict[str, str | None] = dict(exact)
        self._by_keys: set[str] = set()
        self._official = {name: _lines(text) for name, text in texts.items()}

    def of(self, digest: str | None) -> str | None:
        """The name of the script with this SHA-1; None if it is unknown or not similar to an official one."""
        return None if digest is None else self._names.get(digest)

    def learn(self, command: str, args: tuple[bytes, ...], digest: str | None) -> None:
        """Learn from a command that contains or calls a script."""
        if not self._official:
            return
        sent = sent_text(command, args)
        if sent is not None:
            if digest is None:
                digest = hashlib.sha1(sent, usedforsecurity=False).hexdigest()
            # The text decides more exactly than the keys of a call, so it replaces a guess made from keys.
            if digest not in self._names or digest in self._by_keys:
                self._by_keys.discard(digest)
                self._names[digest] = self._most_similar(_lines(sent.decode("utf-8", "replace")))
        elif command in BY_DIGEST and digest is not None and digest not in self._names:
            # Marked as a guess: Redis knew the script, so its text may still pass later (SCRIPT FLUSH, reconnect).
            self._by_keys.add(digest)
            self._names[digest] = script_with_keys(args[3 : 3 + key_count(args)])

    def _most_similar(self, lines: frozenset[str]) -> str | None:
        official = self._official
        name = max(official, key=lambda script: len(lines & official[script]) / len(lines | official[script]))
        return name if len(lines & official[name]) >= LIKENESS * len(official[name]) else None


def script_with_keys(keys: Sequence[bytes]) -> str | None:
    """The official script with such keys; None if there is none, or more than one."""
    ends = [key.rpartition(b":")[2] for key in keys]
    likeness = {name: _likeness(ends, call) for name, call in SCRIPT_SIGNATURES.items()}
    best = max(likeness.values())
    names = [name for name, value in likeness.items() if value == best]
    # Equal keys do not distinguish two scripts: a wrong name would fire a rule at the wrong call.
    return names[0] if best >= LIKENESS_OF_KEYS and len(names) == 1 else None


def _likeness(ends: Sequence[bytes], call: ScriptSignature) -> float:
    """The part of the keys that a call shares with an official one. `<job>` matches any end without fixed name."""
    left = list(ends)
    for names in call.keys:
        for name in names.split("|"):
            wanted = name.removeprefix("<job>").removeprefix(":").encode()
            matching = [end for end in left if (end not in _FIXED if name == "<job>" else end == wanted)]
            if matching:
                left.remove(matching[0])
                break
    return (len(ends) - len(left)) / max(len(ends), len(call.keys), 1)


def sent_text(command: str, args: tuple[bytes, ...]) -> bytes | None:
    """The text of the script that a command contains, which Redis then caches; None without script."""
    if command in BY_TEXT and len(args) > 1:
        return args[1]
    return args[2] if command == "SCRIPT" and len(args) > 2 and args[1].upper() == b"LOAD" else None


def _lines(text: str) -> frozenset[str]:
    return frozenset(line.strip() for line in text.splitlines() if line.strip())
