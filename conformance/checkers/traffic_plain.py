"""Commands that change a queue outside of any script: what Node itself sends of that kind, and what nobody may. Pure.

Only a script changes all keys of a job at once and compares the token. Node changes nothing of a job's state in
another way, only settings in `meta`, the limit, the owner of a deduplication key, the length of logs and of the
stream, and the marker that a blocked worker takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.observe.tap.records import CommandRecord, shown

WRITES = frozenset(
    {
        *("APPEND", "COPY", "DECR", "DECRBY", "DEL", "EXPIRE", "EXPIREAT", "GETDEL", "GETEX", "GETSET", "INCR"),
        *("INCRBY", "INCRBYFLOAT", "MOVE", "MSET", "MSETNX", "PERSIST", "PEXPIRE", "PEXPIREAT", "PSETEX", "RENAME"),
        *("RENAMENX", "RESTORE", "SET", "SETBIT", "SETEX", "SETNX", "SETRANGE", "UNLINK"),
        *("HDEL", "HINCRBY", "HINCRBYFLOAT", "HMSET", "HSET", "HSETNX"),
        *("BLMOVE", "BLMPOP", "BLPOP", "BRPOP", "BRPOPLPUSH", "LINSERT", "LMOVE", "LMPOP", "LPOP", "LPUSH", "LPUSHX"),
        *("LREM", "LSET", "LTRIM", "RPOP", "RPOPLPUSH", "RPUSH", "RPUSHX"),
        *("SADD", "SDIFFSTORE", "SINTERSTORE", "SMOVE", "SPOP", "SREM", "SUNIONSTORE"),
        *("BZMPOP", "BZPOPMAX", "BZPOPMIN", "ZADD", "ZDIFFSTORE", "ZINCRBY", "ZINTERSTORE", "ZMPOP", "ZPOPMAX"),
        *("ZPOPMIN", "ZRANGESTORE", "ZREM", "ZREMRANGEBYLEX", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE", "ZUNIONSTORE"),
        *("XACK", "XADD", "XAUTOCLAIM", "XCLAIM", "XDEL", "XGROUP", "XREADGROUP", "XSETID", "XTRIM"),
    }
)
"""Commands that change keys (of those that Redis 7 has for the types that a queue consists of)."""

_BY_NODE = {
    b":meta": frozenset({"HSET", "HMSET", "HDEL"}),
    b":limiter": frozenset({"SET", "DEL"}),
    b":events": frozenset({"XTRIM"}),
    b":marker": frozenset({"BZPOPMIN"}),
    b":logs": frozenset({"DEL", "LTRIM"}),
    b":priority": frozenset({"DEL"}),
}
"""What Node sends, by the end of the key."""
_DEDUPLICATION = b":de:"


def outside_scripts(commands: Sequence[CommandRecord]) -> Iterator[tuple[CommandRecord, str]]:
    """Commands that change what only scripts may change, each with the reason."""
    for command in commands:
        if command.name in WRITES:
            for key in command.keys:
                if not _node_does_it(command.name, key):
                    yield command, f"{command.name} {shown(key)} changes a queue outside of any script"


def _node_does_it(name: str, key: bytes) -> bool:
    if _DEDUPLICATION in key:
        return name == "DEL"
    return any(key.endswith(end) and name in names for end, names in _BY_NODE.items())
