"""Evidence for findings: the steps that led to them, and the contents of Redis at their locators."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from conformance.findings import PREFIX, Finding, RedisReading
from conformance.gate.records import StepRecord
from conformance.observe.tables import DEPENDENCY_KINDS
from conformance.participants.caller import Role
from conformance.participants.names import Names
from conformance.participants.transcript import KitAct, RecordedCall, Transcript
from conformance.protocol import keys
from conformance.protocol.states import STATE_CONTAINERS

MOST_STEPS = 80
MOST_READ = 12
"""Findings of one scenario for which Redis is read; each place is read once."""
LONGEST_TEXT = 1200
"""Characters kept of a reply or an answer."""
NIL = "(nil)"
OWN_ARGUMENTS = frozenset({"prefix", "redis"})
"""Arguments of `open` that differ between participants."""

# Steps.

_Step = RecordedCall | KitAct


def steps_side_by_side(
    oracle: Transcript, client: Transcript, oracle_prefix: str, client_prefix: str
) -> list[StepRecord]:
    """Return the steps of two sides that took the same steps, each on its own prefix."""
    pairs = _side_by_side(list(oracle.steps), list(client.steps))
    # Keep the last steps, because they lead to the finding.
    return [_paired(theirs, ours, oracle_prefix, client_prefix) for theirs, ours in pairs][-MOST_STEPS:]


def _side_by_side(theirs: list[_Step], ours: list[_Step]) -> Iterator[tuple[_Step | None, _Step | None]]:
    """Pair the steps of both sides; a network disturbance may appear on one side only."""
    left = deque(theirs), deque(ours)
    while all(left):
        hurt = tuple(isinstance(side[0], KitAct) and side[0].words[0] == "network" for side in left)
        takes = (not hurt[1], not hurt[0]) if hurt[0] != hurt[1] else (True, True)
        yield left[0].popleft() if takes[0] else None, left[1].popleft() if takes[1] else None
    yield from zip_longest(*left)


def steps_in_order(transcripts: Mapping[Role, Transcript], prefix: str) -> list[StepRecord]:
    """Return the steps on one prefix with their participants, in order of time."""
    taken = [(role, step) for role, transcript in transcripts.items() for step in transcript.steps]
    # The end of a call is the moment at which its effect was certain.
    return [_alone(role, step, prefix) for role, step in sorted(taken, key=lambda pair: pair[1].ended)][-MOST_STEPS:]


def _paired(
    theirs: RecordedCall | KitAct | None, ours: RecordedCall | KitAct | None, oracle_prefix: str, client_prefix: str
) -> StepRecord:
    if ours is None or theirs is None:
        if ours is not None:
            return _alone("client", ours, client_prefix)
        assert theirs is not None
        return _alone("oracle", theirs, oracle_prefix)
    mine = _alone("client", ours, client_prefix)
    if isinstance(theirs, RecordedCall) and isinstance(ours, RecordedCall):
        return msgspec.structs.replace(mine, by="both", oracle=_ending(theirs, oracle_prefix))
    return mine


def _alone(side: Role, step: RecordedCall | KitAct, prefix: str) -> StepRecord:
    if isinstance(step, KitAct):
        return _done_by_kit(step, prefix)
    args = {name: value for name, value in step.args.items() if step.op != "open" or name not in OWN_ARGUMENTS}
    replaced = step.by == "stand-in"
    record = StepRecord(by=side, do=step.op, on=step.handle, args=without_prefix(args, prefix), stand_in=replaced)
    return msgspec.structs.replace(record, **{side: _ending(step, prefix)})


def _done_by_kit(act: KitAct, prefix: str) -> StepRecord:
    name, *rest = act.words
    if name == "clock":
        return StepRecord(by="kit", do="clock", args={"ms": int(rest[0])})
    if name == "wait":
        return StepRecord(by="kit", do="wait", args={"what": rest[0]})
    if name == "network":
        return StepRecord(by="kit", do="network", args={"what": rest[0]})
    return StepRecord(by="kit", do="redis", args={"words": without_prefix(list(act.words), prefix)})


def _ending(call: RecordedCall, prefix: str) -> str:
    if call.outcome != "ok":
        return _clipped(f"fails with {call.outcome}: {without_prefix(call.message, prefix)}")
    return _clipped(json.dumps(without_prefix(call.value or {}, prefix), ensure_ascii=False, default=str))


def without_prefix(value: Any, prefix: str) -> Any:
    """Replace a participant's key prefix by PREFIX in all texts of a JSON value."""
    if isinstance(value, str):
        return value.replace(prefix, PREFIX)
    if isinstance(value, dict):
        return {without_prefix(key, prefix): without_prefix(item, prefix) for key, item in value.items()}
    if isinstance(value, list):
        return [without_prefix(item, prefix) for item in value]
    return value


# Redis.

Place = tuple[str, str]
"""A key without the prefix, and a field of it; an empty field means the whole key."""


def places_of(finding: Finding) -> list[Place]:
    """Return the places in Redis that show this finding; empty if its locator does not name one."""
    where, key = (finding.place or finding.where), finding.key
    # Queue names never contain a colon, but job ids may.
    queue, _, rest = key.partition(":")
    first, _, below = where.partition(".")
    if first in _KEYS_OF_QUEUE:
        return [(f"{queue}:{name}", "") for name in _KEYS_OF_QUEUE[first](below)]
    if first in _SUFFIXES:
        return [(f"{key}:{suffix}", "") for suffix in _SUFFIXES[first](below)]
    match first:
        case "job":
            return [(key, below.split(".")[0])] if rest else []
        case "meta" | "scheduler":
            return [(key, "" if below in {"record", "next"} else below)]
        case "marker" | "counter" | "dedup" | "limiter" | "stalled-check" | "metrics" | "unknown" | "expiry":
            return [(key, "")]
        case _:
            return []


def _containers(below: str) -> Sequence[str]:
    name = below.split(".", maxsplit=1)[0]
    return [name] if name in {*STATE_CONTAINERS, keys.STALLED} else STATE_CONTAINERS


_KEYS_OF_QUEUE: dict[str, Callable[[str], Sequence[str]]] = {
    "membership": _containers,
    "event": lambda _: [keys.EVENTS],
}
"""Keys of a queue, by the first word of a locator and from the rest of it."""
_SUFFIXES: dict[str, Callable[[str], Sequence[str]]] = {
    "lock": lambda _: ["lock"],
    "log": lambda _: ["logs"],
    "dependency": lambda below: [suffix for suffix, kind in DEPENDENCY_KINDS.items() if kind == below.split(".")[0]],
}
"""Suffixes of the key of a job, by the first word of a locator and from the rest of it."""

_SEEN_IN_REDIS = ("assertion", "snapshot", "events", "invariant")
"""Sources of findings about the client's state in Redis."""


def _overview(key: str) -> list[Place]:
    """Return the places that show the whole queue of a key."""
    queue = key.partition(":")[0] or "q"
    return [(f"{queue}:{name}", "") for name in (keys.META, *STATE_CONTAINERS, keys.EVENTS)]


class RedisLook:
    """Reads Redis for findings, on both sides. `oracle`: None if both clients shared one prefix.

    `in_step`: whether both have taken the same steps; otherwise the oracle's state is that at the end of the scenario.
    Keys and values use the scenario's names; they are translated to and from the names in Redis.
    """

    def __init__(self, redis: Any, oracle: Names | None, actual: Names, *, in_step: bool = True) -> None:
        self._redis = redis
        self._oracle, self._actual, self._in_step = oracle, actual, in_step
        self._sides = [side for side in (oracle, actual) if side is not None]
        self._seen: dict[Place, RedisReading | None] = {}

    def with_readings(self, original: Sequence[Finding]) -> list[Finding]:
        """Return the findings with PREFIX for prefixes; the first of each place and kind gets the contents of Redis."""
        findings = [self._anywhere(finding) for finding in original]
        # Reversed, so that the first finding of each place and kind is the one that stays.
        first = {(finding.where, finding.place, finding.kind): finding for finding in reversed(findings)}
        # Readings cost round trips and space in every report, so their number is limited.
        with_reading = list(first.values())[-MOST_READ:]
        return [
            msgspec.structs.replace(finding, redis=self._readings(finding)) if finding in with_reading else finding
            for finding in findings
        ]

    def _anywhere(self, finding: Finding) -> Finding:
        """Return the finding without the prefixes of this run."""
        texts = {name: getattr(finding, name) for name in ("key", "expected", "actual", "message")}
        for side in self._sides:
            texts = without_prefix(texts, side.prefix)
        return msgspec.structs.replace(finding, **texts)

    def _readings(self, finding: Finding) -> list[RedisReading]:
        places = places_of(finding)
        exact = self._read_all(places)
        if exact or finding.source not in _SEEN_IN_REDIS:
            # Other sources are not about Redis, so an overview of the queue would not explain them.
            return exact
        # A broken invariant may be about a missing key; then EXISTS shows that it is missing.
        keys = [f"{PREFIX}:{key}" for key, _ in places] if finding.source == "invariant" else []
        missing = (RedisReading(command=["EXISTS", key], expected="", actual="0") for key in keys)
        return [*self._read_all(_overview(finding.key)), *missing]

    def _read_all(self, places: Sequence[Place]) -> list[RedisReading]:
        read = [self._read(place) for place in places]
        return [reading for reading in read if reading is not None]

    def _read(self, place: Place) -> RedisReading | None:
        """Return the contents of a place; None if neither side has the key."""
        # Both sides read the same place once, even if several findings are about it.
        if place not in self._seen:
            self._seen[place] = self._reading(*place)
        return self._seen[place]

    def _reading(self, name: str, field: str) -> RedisReading | None:
        kinds = [str(_text(self._redis.type(_key_in_redis(side, name)))) for side in self._sides]
        # The client's type decides, because its state is what the finding is about.
        kind = next((kind for kind in reversed(kinds) if kind != "none"), "none")
        if kind == "none":
            return None
        before, after = reading_words(kind, field)
        theirs = self._reply(self._oracle, name, before, after) if self._oracle is not None else ""
        return RedisReading(
            command=[*before, f"{PREFIX}:{name}", *after],
            expected=theirs if self._in_step else "",
            at_end="" if self._in_step else theirs,
            actual=self._reply(self._actual, name, before, after),
        )

    def _reply(self, side: Names, name: str, before: Sequence[str], after: Sequence[str]) -> str:
        try:
            reply = self._redis.execute_command(*before, _key_in_redis(side, name), *after)
        except Exception as error:  # noqa: BLE001  (the error of a key with another type is evidence as well)
            return str(error)
        return _clipped(without_prefix(side.to_scenario(reply_text(reply)), side.prefix))


def _key_in_redis(side: Names, name: str) -> str:
    return str(side.to_client(f"{side.prefix}:{name}"))


def reading_words(kind: str, field: str) -> tuple[list[str], list[str]]:
    """Return the command that reads a key of this Redis type: the words before the key and after it."""
    match kind:
        case "hash":
            return (["HGET"], [field]) if field else (["HGETALL"], [])
        case "list":
            return ["LRANGE"], ["0", "-1"]
        case "set":
            return ["SMEMBERS"], []
        case "zset":
            return ["ZRANGE"], ["0", "-1", "WITHSCORES"]
        case "stream":
            return ["XRANGE"], ["-", "+"]
        case _:
            return ["GET"], []


def reply_text(reply: Any) -> str:
    """Return a reply of Redis as text: strings unchanged, NIL for none, JSON for several values."""
    if reply is None:
        return NIL
    plain = _plain(reply)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _plain(reply: Any) -> Any:
    if isinstance(reply, dict):
        return {str(_plain(key)): _plain(value) for key, value in reply.items()}
    if isinstance(reply, set | frozenset):
        return sorted(_plain(item) for item in reply)
    if isinstance(reply, list | tuple):
        return [_plain(item) for item in reply]
    return reply if isinstance(reply, int | float) else _text(reply)


def _text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _clipped(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}… ({len(text)} characters)"
