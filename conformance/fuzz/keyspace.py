"""All keys under a few prefixes: read, aged and removed in one round trip, fast enough to do it after every step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from redis.exceptions import NoScriptError, RedisError

from conformance.observe.keyspace import RawKey, assemble
from conformance.observe.tables import Snapshot, parsed_json
from conformance.problems import EnvironmentProblem
from conformance.protocol.keys import glob_escaped
from conformance.steps.shapes import ClockStep, CounterStep, FaultStep, OutsideStep

# `conformance.observe.reader` walks the key space in three rounds, which is right for any server; a campaign reads
# two small parts of one Redis sixty times a second. This script only reads.
_DUMP = """
local found = redis.call("KEYS", ARGV[1])
table.sort(found)
local rows = {}
for index, key in ipairs(found) do
  local kind = redis.call("TYPE", key).ok
  local value
  if kind == "hash" then value = redis.call("HGETALL", key)
  elseif kind == "list" then value = redis.call("LRANGE", key, 0, -1)
  elseif kind == "zset" then value = redis.call("ZRANGE", key, 0, -1, "WITHSCORES")
  elseif kind == "set" then value = redis.call("SMEMBERS", key); table.sort(value)
  elseif kind == "stream" then value = redis.call("XRANGE", key, "-", "+")
  elseif kind == "string" then value = redis.call("GET", key) end
  rows[index] = {key, kind, redis.call("PTTL", key), value or false}
end
return {redis.call("TIME"), rows}
"""

_AGE = """
for _, key in ipairs(redis.call("KEYS", ARGV[1])) do
  local left = redis.call("PTTL", key)
  if left >= 0 then
    if left <= tonumber(ARGV[2]) then redis.call("DEL", key)
    else redis.call("PEXPIRE", key, left - tonumber(ARGV[2])) end
  end
end
"""

_REWIND = """
for _, key in ipairs(redis.call("KEYS", ARGV[1])) do
  local left = redis.call("PTTL", key)
  if left > 0 then
    redis.call("PEXPIRE", key, math.min(left + tonumber(ARGV[2]), math.ceil(left / 10000) * 10000))
  end
end
"""

_CLEAR = """
for _, key in ipairs(redis.call("KEYS", ARGV[1])) do redis.call("UNLINK", key) end
"""


@dataclass(frozen=True)
class StateDump:
    """All keys under one prefix, as Redis returned them."""

    prefix: str
    reply: Any
    modelled = False
    """It was read from Redis."""

    @cached_property
    def snapshot(self) -> Snapshot:
        """The typed tables."""
        (seconds, microseconds), rows = self.reply
        taken_ms = int(seconds) * 1000 + int(microseconds) // 1000
        return assemble(self.prefix, taken_ms, (_raw_key(*row) for row in rows))

    @cached_property
    def fingerprint(self) -> str:
        """A text that is equal for two dumps only if the canonical rules would find them equal, too.

        Stream ids and the exact time left of a key are left out; so are texts that each library words for itself.
        """
        return repr([_comparable(*row) for row in self.reply[1]]).replace(self.prefix, "")

    @cached_property
    def times_left(self) -> dict[str, int]:
        """Times to live in ms by key without prefix, of the keys that expire."""
        skipped = len(self.prefix) + 1
        return {_text(key)[skipped:]: ttl for key, _, ttl, _ in self.reply[1] if ttl >= 0}


_SET_FIELD = """
for _, key in ipairs(KEYS) do
  if redis.call("EXISTS", key) == 1 then redis.call("HSET", key, ARGV[1], ARGV[2]) end
end
"""


class RedisKeyspace:
    """The keys under prefixes of one Redis, to be read, aged and removed."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis
        self._dump = redis.register_script(_DUMP)
        self._age = redis.register_script(_AGE)
        self._rewind = redis.register_script(_REWIND)
        self._clear = redis.register_script(_CLEAR)

    def dump(self, *prefixes: str) -> list[StateDump]:
        """All keys under each prefix. Raises EnvironmentProblem if Redis cannot be read."""
        return [
            StateDump(prefix, reply) for prefix, reply in zip(prefixes, self._run(self._dump, prefixes), strict=True)
        ]

    def rewind(self, prefixes: Sequence[str], ms: int) -> None:
        """Add the time that has really passed (ms) to all times to live, up to the next multiple of 10 s.

        The fuzzer sets them to multiples of 10 s, so no key gets a longer life than it was given.
        """
        self._run(self._rewind, prefixes, ms)

    def clear(self, prefixes: Sequence[str]) -> None:
        """Remove everything under the prefixes."""
        self._run(self._clear, prefixes)

    def endure(self, prefixes: Sequence[str], step: OutsideStep) -> None:
        """Apply a step that no client takes to the keys under each prefix."""
        match step:
            case ClockStep(clock_ms=ms) if ms:
                self._run(self._age, prefixes, ms)
            case CounterStep(job=""):
                self._redis.mset({f"{prefix}:{step.queue}:{step.counter}": step.value for prefix in prefixes})
            case CounterStep():
                keys = [f"{prefix}:{step.queue}:{step.job}" for prefix in prefixes]
                self._redis.eval(_SET_FIELD, len(keys), *keys, step.counter, step.value)
            case FaultStep(fault="script-flush"):
                self._redis.script_flush()
            case FaultStep(lost_key=str(key)) if key:
                self._redis.delete(*(f"{prefix}:{step.queue}:{key}" for prefix in prefixes))

    def _run(self, script: Any, prefixes: Sequence[str], *arguments: Any) -> list[Any]:
        """One round trip; a second one when Redis has forgotten the script."""
        try:
            try:
                # EVALSHA first, because the text is sent once and the campaign reads sixty times a second.
                return self._pipelined("evalsha", script.sha, prefixes, arguments)
            except NoScriptError:
                return self._pipelined("eval", script.script, prefixes, arguments)
        except RedisError as error:
            raise EnvironmentProblem(
                f"cannot read the keys of the run: {type(error).__name__}: {error}", hint="is Redis still running?"
            ) from error

    def _pipelined(self, command: str, script: str, prefixes: Sequence[str], arguments: Sequence[Any]) -> list[Any]:
        # Not a transaction: each script is atomic, and no client writes meanwhile.
        pipeline = self._redis.pipeline(transaction=False)
        for prefix in prefixes:
            pipeline.execute_command(command, script, 0, f"{glob_escaped(prefix)}:*", *arguments)
        return list(pipeline.execute())


def _comparable(key: bytes, kind: bytes, ttl: int, value: Any) -> tuple[Any, ...]:
    if kind == b"stream":
        value = [fields for _, fields in value]
    elif kind == b"hash":
        value = [item for name, content in _pairs(value) for item in (name, _without_wording(name, content))]
    return key, kind, ttl >= 0, value


def _without_wording(name: bytes, content: bytes) -> Any:
    """A field whose text each library words for itself: of a stack trace, the number of entries is protocol."""
    if name == b"version":
        return content.count(b":")
    if name != b"stacktrace":
        return content
    entries = parsed_json(_text(content))
    return len(entries) if isinstance(entries, list) else content


def _raw_key(key: bytes, kind: bytes, ttl: int, value: Any) -> RawKey:
    return RawKey(key=_text(key), type=_text(kind), value=_plain(kind, value), ttl_ms=ttl)


def _plain(kind: bytes, value: Any) -> Any:
    match kind:
        case b"hash":
            return {_text(name): _text(content) for name, content in _pairs(value)}
        case b"zset":
            return [(_text(member), float(score)) for member, score in _pairs(value)]
        case b"stream":
            return [(_text(entry), {_text(n): _text(c) for n, c in _pairs(fields)}) for entry, fields in value]
        case b"list" | b"set":
            return [_text(item) for item in value]
        case _:
            return _text(value) if isinstance(value, bytes) else None


def _pairs(flat: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(flat[0::2], flat[1::2], strict=True)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
