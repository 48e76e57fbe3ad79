"""What the words of a command mean: its name, its script, its keys, whether it may block, what is secret. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

BY_TEXT = frozenset({"EVAL", "EVAL_RO"})
BY_DIGEST = frozenset({"EVALSHA", "EVALSHA_RO"})
SCRIPT_CALLS = BY_TEXT | BY_DIGEST
_WITH_KEY_COUNT = SCRIPT_CALLS | {"FCALL", "FCALL_RO"}

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


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a command is about. `digest` and `script` (name, None for an unknown one) only for calls of scripts."""

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
    """The keys that a command declares. Of commands that are not listed here the first word is taken to be one."""
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
    """How many KEYS a call of a script announces; 0 if that is no number, which Redis refuses."""
    return int(args[2]) if len(args) > 2 and args[2].isdigit() else 0


def argv_of(name: str, args: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """ARGV of a script; for other commands all words after the name."""
    return args[3 + key_count(args) :] if name in _WITH_KEY_COUNT else args[1:]


def meaning_of(args: tuple[bytes, ...], digest: str | None, scripts: Mapping[str, str]) -> Meaning:
    """Read a command. `scripts`: names by SHA-1 (lower-case hex)."""
    name = name_of(args)
    script = scripts.get(digest) if digest else None
    return Meaning(name, keys_of(name, args), argv_of(name, args), digest, script)


def may_block(name: str, args: tuple[bytes, ...]) -> bool:
    """Whether Redis may keep the connection waiting on purpose."""
    if name in {"XREAD", "XREADGROUP"}:
        return any(word.upper() == b"BLOCK" for word in args)
    return name in _BLOCKING


def without_secrets(name: str, args: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The words as they may be kept and shown: without passwords."""
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
