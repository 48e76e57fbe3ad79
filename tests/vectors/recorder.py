"""Records cases of the corpus on the oracle, one call at a time: the state before and after, and the commands sent.

Vectors only contain what is the same in every run. The clock is fixed, the prefix is always the same, and stack traces
are cut to their first line by an option of V8. Other random values are replaced, byte for byte, by values of equal
length or meaning: uuids and ids of stream entries are numbered, and a time to live is only noted as present. Cases with
workers that run their own loop are left out, because the order of their commands varies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgpack
import msgspec

from conformance.driver.connection import DriverConnection
from conformance.driver.errors import OperationFailed
from conformance.driver.ops import REGISTRY
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.driver.transports import ChildProcess
from conformance.observe.reader import read_raw
from conformance.observe.tap.recording import CommandRecord
from conformance.observe.tap.tap import Tap
from conformance.protocol.scripts import SCRIPT_SIGNATURES
from conformance.servers import open_server
from conformance.upstream.node import find_node
from conformance.upstream.package import driver_command, ensure_package
from conformance.upstream.scripts import OfficialScript, load_scripts
from tests.reference_impl.corpus import steps
from tests.reference_impl.corpus.steps import ClockStep, CorpusCase, DriverCall, RedisCommand, Step
from tests.reference_impl.corpus.traffic import CHATTER, EVERY_BYTE
from tests.vectors.format import (
    PREFIX,
    CallVector,
    SentArgument,
    State,
    StoredKey,
    VectorClient,
    VectorCommand,
    VectorEvent,
    VectorRefusal,
)

NOW = 1_700_000_000_000
"""The client's clock at the start of a case (Unix ms)."""

FIRST_LINE_OF_STACKS = "--stack-trace-limit=0"
"""An option of V8: the stack of an error is its name and message, without paths of this machine."""

Stored = TypeVar("Stored", StoredKey, StoredKey | None)

_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TOLD_BY_THE_SERVERS_CLOCK = frozenset({"queue.getRateLimitTtl", "queue.trimEvents"})


def is_repeatable(case: CorpusCase) -> bool:
    """Whether every run of the case sends the same commands in the same order."""
    return all(_is_repeatable(step) for step in case.steps)


def _is_repeatable(step: Step) -> bool:
    match step:
        case DriverCall(op="open"):
            return step.args["role"] != "events" and step.args.get("processor") in {None, "manual"}
        case DriverCall():
            return step.op not in _TOLD_BY_THE_SERVERS_CLOCK
    return isinstance(step, ClockStep | RedisCommand)


@contextmanager
def vector_recorder() -> Iterator[VectorRecorder]:
    """The oracle behind a tap, on a private Redis that knows all scripts. Raises a Problem if something is missing."""
    node = find_node(None)
    package = ensure_package(node, announce=print)
    scripts = load_scripts(package, node)
    command, env = driver_command(node, package)
    quiet = {**env, "NODE_OPTIONS": FIRST_LINE_OF_STACKS}
    names = {script.sha1: name for name, script in scripts.items()}
    with (
        open_server(None, announce=print) as server,
        Tap(server.nodes[0], scripts=names, kept_bytes=EVERY_BYTE) as tap,
    ):
        redis = server.connect()
        _load(redis, scripts)
        driver = ChildProcess.start(command, seed=1, env=quiet)
        try:
            yield VectorRecorder(driver, redis, tap)
        finally:
            driver.close()


def _load(redis: Any, scripts: Mapping[str, OfficialScript]) -> None:
    """Drop commands that load scripts: whether the server knows a script is not part of a vector."""
    for script in scripts.values():
        redis.execute_command("SCRIPT", "LOAD", script.text)


@dataclass
class VectorRecorder:
    """Records cases, one after the other. `redis`: the kit's own connection, not through the tap."""

    driver: DriverConnection
    redis: Any
    tap: Tap
    now_ms: int = NOW
    clients: dict[str, VectorClient] = field(default_factory=dict)
    uuids: dict[bytes, bytes] = field(default_factory=dict)

    def record(self, name: str, case: CorpusCase) -> list[tuple[str, CallVector]]:
        """The operation and the vector of each call of a case. Empties the Redis."""
        self.now_ms, self.clients, self.uuids = NOW, {}, {}
        try:
            return list(self._calls(name, case))
        finally:
            self.driver.call(REGISTRY["reset"]())
            self.redis.flushdb()

    def _calls(self, name: str, case: CorpusCase) -> Iterator[tuple[str, CallVector]]:
        for number, step in enumerate(case.steps, start=1):
            vector = self._taken(step)
            if vector is not None and isinstance(step, DriverCall):
                yield step.op, msgspec.structs.replace(vector, name=f"{name}/{number}")

    def _taken(self, step: Step) -> CallVector | None:
        match step:
            case ClockStep():
                self.now_ms += step.ms
            case RedisCommand():
                self.redis.execute_command(*_own(list(step.words)))
            case DriverCall(op="open"):
                self._open(step)
            case DriverCall() if step.op == "close":
                self._call(step.op, step.handle, _own(step.args))
                del self.clients[step.handle]
            case DriverCall() if step.handle not in self.clients:
                self._outcome(step, _own(step.args))  # on a closed object, which a vector cannot describe
            case DriverCall():
                return self._recorded(step)
        return None

    def _open(self, step: DriverCall) -> None:
        redis = msgspec.to_builtins(RedisAddress(mode="standalone", nodes=[self.tap.address]))
        args = _own(step.args)
        self._call("open", step.handle, {**args, "redis": redis})
        self.clients[step.handle] = VectorClient(role=args["role"], queue=args["queue"], options=args["options"])

    def _recorded(self, step: DriverCall) -> CallVector:
        args = msgspec.to_builtins(msgspec.convert(_own(step.args), REGISTRY[step.op]))
        before, mark = state_of(self.redis), self.tap.recording.mark()
        answer, refused = self._outcome(step, args)
        commands = [record for record in self.tap.recording.commands(after=mark) if _name(record) not in CHATTER]
        after = state_of(self.redis)
        vector = CallVector(
            name="",
            client=self.clients[step.handle],
            now_ms=self.now_ms,
            arguments=args,
            before=before,
            commands=[self._command(record) for record in commands],
            answer=answer,
            refused=refused,
            changes=_changes(before, after),
            events=list(_appended(before, after)),
        )
        return self._sorted(self._without_uuids(vector))

    def _outcome(self, step: DriverCall, args: dict[str, Any]) -> tuple[Any, VectorRefusal | None]:
        try:
            return _with_sorted_set(self._call(step.op, step.handle, args)), None
        except OperationFailed as failed:
            return msgspec.UNSET, VectorRefusal(code=failed.error.code or "", text=failed.error.message)

    def _call(self, op: str, handle: str, args: dict[str, Any]) -> Any:
        request = msgspec.convert(args, REGISTRY[op])
        return msgspec.to_builtins(self.driver.call(request, handle=handle, now_ms=self.now_ms))

    def _command(self, record: CommandRecord) -> VectorCommand:
        assert not record.clipped, "every byte counts"
        if record.script is None:
            words = [self._argument(word) for word in record.args[1:]]
            return VectorCommand(command=record.name, arguments=words)
        kinds = SCRIPT_SIGNATURES[record.script].args
        packed = [place < len(kinds) and kinds[place].startswith("packed") for place in range(len(record.argv))]
        return VectorCommand(
            script=record.script,
            keys=[self._numbered(key).decode() for key in record.keys],
            arguments=[self._argument(word, packed=is_) for word, is_ in zip(record.argv, packed, strict=True)],
        )

    def _argument(self, word: bytes, *, packed: bool = False) -> SentArgument:
        written = self._numbered(word)
        if packed and written:
            said = msgpack.unpackb(written, raw=False, strict_map_key=False)
            return SentArgument(hex=written.hex(), msgpack=said)
        return SentArgument(text=written.decode())

    def _without_uuids(self, vector: CallVector) -> CallVector:
        """Number uuids in the state and the answer as well; a uuid is ASCII, so JSON shows it unchanged."""
        return msgspec.json.decode(self._numbered(msgspec.json.encode(vector)), type=CallVector)

    def _sorted(self, vector: CallVector) -> CallVector:
        """Sort keys and members of sets again, because they were sorted by the original uuids."""
        return msgspec.structs.replace(vector, before=_in_order(vector.before), changes=_in_order(vector.changes))

    def _numbered(self, text: bytes) -> bytes:
        return _UUID.sub(lambda found: self._number_of(found.group()), text)

    def _number_of(self, uuid: bytes) -> bytes:
        if uuid in self.uuids.values():
            return uuid
        return self.uuids.setdefault(uuid, b"00000000-0000-4000-8000-%012d" % (len(self.uuids) + 1))


def _changes(before: State, after: State) -> dict[str, StoredKey | None]:
    return {key: after.get(key) for key in {**before, **after} if before.get(key) != after.get(key)}


def _in_order(keys: Mapping[str, Stored]) -> dict[str, Stored]:
    return {key: _with_sorted_members(keys[key]) for key in sorted(keys)}


def _with_sorted_members(stored: Stored) -> Stored:
    if stored is None or stored.type != "set":
        return stored
    return msgspec.structs.replace(stored, value=sorted(stored.value))


def with_changes(vector: CallVector) -> State:
    """The state under the prefix after the call."""
    merged = {**vector.before, **vector.changes}
    return {key: stored for key, stored in merged.items() if stored is not None}


def _own(value: Any) -> Any:
    """Replace the corpus' placeholder for the prefix."""
    return msgspec.json.decode(msgspec.json.encode(value).replace(steps.PREFIX.encode(), PREFIX.encode()))


def _with_sorted_set(answer: Any) -> Any:
    """`unprocessed` of a job's dependencies is a Redis set, so its order is not defined."""
    if isinstance(answer, dict) and isinstance(answer.get("unprocessed"), list):
        return {**answer, "unprocessed": sorted(answer["unprocessed"])}
    return answer


def _name(record: CommandRecord) -> str:
    second = record.args[1].decode("utf-8", "replace").upper() if record.name in {"CLIENT", "SCRIPT"} else ""
    return f"{record.name} {second}".strip()


def state_of(redis: Any) -> State:
    """Everything under the prefix."""
    _, keys = read_raw(redis, PREFIX)
    return {raw.key: _stored(raw.type, raw.value, raw.ttl_ms) for raw in keys}


def _stored(kind: Any, value: Any, ttl_ms: int) -> StoredKey:
    readable: Mapping[str, Any] = {
        "hash": lambda: dict(sorted(value.items())),
        "zset": lambda: [[member, _whole(score)] for member, score in value],
        "stream": lambda: [[f"{number}-0", fields] for number, (_, fields) in enumerate(value, start=1)],
    }
    return StoredKey(type=kind, value=readable.get(kind, lambda: value)(), expires=ttl_ms >= 0)


def _whole(score: float) -> float:
    return int(score) if score.is_integer() else score


def _appended(before: State, after: State) -> Iterator[VectorEvent]:
    """New entries of each event stream, whose last `:` part is `events`."""
    for key, stored in after.items():
        if stored.type == "stream":
            known = len(before[key].value) if key in before else 0
            queue = key.removeprefix(f"{PREFIX}:").removesuffix(":events")
            yield from (VectorEvent(queue=queue, fields=fields) for _, fields in stored.value[known:])
