"""Runs vectors as the author of a client would: load the state, make the call, compare the outcome.

It uses only the vector, neither the case behind it nor the oracle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from conformance.driver.connection import DriverConnection
from conformance.driver.errors import OperationFailed
from conformance.driver.ops import REGISTRY
from conformance.driver.ops.lifecycle import RedisAddress
from tests.vectors.format import PREFIX, CallVector, State, StoredKey
from tests.vectors.recorder import state_of, with_changes

LIFE_MS = 3_600_000
"""Time to live of keys that expire: longer than any test."""

_NUMBERED_UUID = re.compile(rb"00000000-0000-4000-8000-\d{12}")


def has_uuids(vector: CallVector) -> bool:
    """Whether the client makes random ids, which differ in every run."""
    return _NUMBERED_UUID.search(msgspec.json.encode(vector)) is not None


@dataclass(frozen=True)
class VectorRunner:
    """A client behind its driver, on a private Redis. `redis`: the test's own connection to it."""

    driver: DriverConnection
    nodes: Sequence[str]
    redis: Any

    def differences(self, operation: str, vector: CallVector) -> list[str]:
        """A line for each difference between client and vector. Empties the Redis."""
        try:
            _open(self.driver, self.nodes, vector)
            self.redis.flushdb()  # the vector's state already contains what opening writes
            load(self.redis, vector.before)
            outcome = _outcome(self.driver, operation, vector)
            return [*_of_outcome(vector, outcome), *_of_states(with_changes(vector), state_of(self.redis))]
        finally:
            self.driver.call(REGISTRY["reset"]())
            self.redis.flushdb()


def _open(driver: DriverConnection, nodes: Sequence[str], vector: CallVector) -> None:
    address = RedisAddress(mode="standalone", nodes=list(nodes))
    args = {**msgspec.to_builtins(vector.client), "prefix": PREFIX, "redis": msgspec.to_builtins(address)}
    args |= {"processor": "manual"} if vector.client.role == "worker" else {}
    driver.call(msgspec.convert(args, REGISTRY["open"]), handle="client", now_ms=vector.now_ms)


def load(redis: Any, state: State) -> None:
    """Write every key of a state, with plain commands."""
    for key, stored in state.items():
        _write(redis, key, stored)
        if stored.expires:
            redis.pexpire(key, LIFE_MS)


def _write(redis: Any, key: str, stored: StoredKey) -> None:
    match stored.type:
        case "string":
            redis.set(key, stored.value)
        case "hash":
            redis.hset(key, mapping=stored.value)
        case "list":
            redis.rpush(key, *stored.value)
        case "set":
            redis.sadd(key, *stored.value)
        case "zset":
            redis.zadd(key, dict(stored.value))
        case "stream":
            for entry, fields in stored.value:
                redis.xadd(key, fields, id=entry)


def _outcome(driver: DriverConnection, operation: str, vector: CallVector) -> tuple[str, Any]:
    """The answer of the call; a refusal is an answer too."""
    request = msgspec.convert(vector.arguments, REGISTRY[operation])
    try:
        answer = msgspec.to_builtins(driver.call(request, handle="client", now_ms=vector.now_ms))
    except OperationFailed as failed:
        return "refused", {"code": failed.error.code, "text": failed.error.message}
    if isinstance(answer.get("unprocessed"), list):
        answer = {**answer, "unprocessed": sorted(answer["unprocessed"])}
    return "answer", answer


def _of_outcome(vector: CallVector, outcome: tuple[str, Any]) -> Iterator[str]:
    refused = vector.refused is not None
    expected = ("refused", msgspec.to_builtins(vector.refused)) if refused else ("answer", vector.answer)
    if outcome != expected:
        yield f"{vector.name}: expected {expected}, got {outcome}"


def _of_states(expected: State, actual: State) -> Iterator[str]:
    for key in sorted({*expected, *actual}):
        wanted, found = (_without_stack(state.get(key)) for state in (expected, actual))
        if wanted != found:
            yield f"{key}: expected {wanted}, found {found}"


def _without_stack(stored: StoredKey | None) -> StoredKey | None:
    """Replace stack traces, which depend on the language, but keep their number."""
    if stored is None or stored.type != "hash" or "stacktrace" not in stored.value:
        return stored
    traces = len(json.loads(stored.value["stacktrace"]))
    return msgspec.structs.replace(stored, value={**stored.value, "stacktrace": f"{traces} traces"})
