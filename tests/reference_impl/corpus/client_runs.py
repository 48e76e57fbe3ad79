"""One client running a case: its answers, its commands, and its state in Redis."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from conformance.driver.connection import DriverConnection
from conformance.driver.errors import OperationFailed, OperationIndeterminate
from conformance.driver.ops import REGISTRY
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.observe.reader import read_snapshot
from conformance.observe.tables import Snapshot
from conformance.servers import RedisInstance
from tests.reference_impl.corpus.steps import (
    PREFIX,
    ClockStep,
    ConnectionWait,
    CorpusCase,
    DriverCall,
    EventWait,
    RedisCommand,
    RestWait,
    Step,
)
from tests.reference_impl.corpus.traffic import RecordedCommand, SentCommand, TrafficReader, TrafficRecorder

NOW = 1_700_000_000_000
"""The clocks of both clients at the start of a case (Unix ms)."""

DEADLINE_S = 15
"""A worker that was paused just before a job came may miss its marker, as in Node.js, for `drainDelay` (5 s)."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True)
class CaseResult:
    """Everything that is compared."""

    answers: list[Any]
    traffic: list[SentCommand]
    snapshot: Snapshot


@dataclass
class CaseRunner:
    """A client, behind its driver. `scripts`: names by SHA-1 and by full text. Without a recorder no traffic."""

    driver: DriverConnection
    server: RedisInstance
    recorder: TrafficRecorder | None = None
    scripts: Mapping[str, str] = field(default_factory=dict)
    now: int = NOW
    prefix: str = ""
    answers: list[Any] = field(default_factory=list)
    commands: list[RecordedCommand] = field(default_factory=list)

    def run(self, case: CorpusCase) -> CaseResult:
        """Run a case under a separate prefix, and remove its keys."""
        self.prefix, self.now, self.answers, self.commands = self.server.fresh_prefix(), NOW, [], []
        self._sent()  # discards commands of the last case's closing
        try:
            for step in case.steps:
                self._take(step)
            snapshot = read_snapshot(self._redis, self.prefix)
            traffic = TrafficReader(self.scripts, self.prefix).read([*self.commands, *self._sent()])
        finally:
            self.driver.call(REGISTRY["reset"]())
            self.server.remove_prefix(self.prefix)
        return CaseResult(_with_numbered_uuids(self.answers), traffic, snapshot)

    def _take(self, step: Step) -> None:
        match step:
            case DriverCall():
                if self.recorder is not None:
                    self.recorder.attribute_to(step.handle if step.op == "open" else "later")
                self._note(step.op, self._carried_out(step))
                self.commands += [command for command in self._sent() if step.op != "open" or not _is_read(command)]
            case ClockStep():
                self.now += step.ms
            case EventWait():
                names = set(step.names)
                event = self.driver.wait_event(step.handle, names=names, deadline_ms=DEADLINE_S * 1000)
                self._note(event.name, {name: value for name, value in event.args.items() if name != "event_id"})
            case RestWait():
                self._wait_for_rest(step)
            case ConnectionWait():
                self._wait_for_connections(step.workers)
            case RedisCommand():
                self._redis.execute_command(*(self._own(word) for word in step.words))

    def _carried_out(self, step: DriverCall) -> Any:
        """The answer of an operation; a refusal is an answer too."""
        args = self._own(step.args)
        if step.op == "open":
            nodes = list(self.server.nodes) if self.recorder is None else [self.recorder.address]
            args["redis"] = msgspec.to_builtins(RedisAddress(mode=self.server.mode, nodes=nodes))
        request = msgspec.convert(args, REGISTRY[step.op])
        try:
            return msgspec.to_builtins(self.driver.call(request, handle=step.handle, now_ms=self.now))
        except OperationFailed as failed:
            return {"refused": failed.error.code, "text": failed.error.message}
        except OperationIndeterminate as failed:
            return {"undecided": failed.error.code, "text": failed.error.message}

    def _sent(self) -> list[RecordedCommand]:
        return [] if self.recorder is None else self.recorder.take()

    def _wait_for_rest(self, step: RestWait) -> None:
        """Idle workers block; the last wake-up token must be gone before."""
        base, deadline = f"{self.prefix}:{step.queue}", time.monotonic() + DEADLINE_S
        while not self._rests(base, step):
            assert time.monotonic() < deadline, f"still busy after {DEADLINE_S} s: {self._busy(base)}"
            time.sleep(0.002)

    def _wait_for_connections(self, workers: int) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while (count := self._named_connections()) != workers:
            assert time.monotonic() < deadline, f"{count} workers connected after {DEADLINE_S} s, not {workers}"
            time.sleep(0.002)

    def _named_connections(self) -> int:
        return sum(connection["name"].startswith(f"{self.prefix}:") for connection in self._connections())

    def _rests(self, base: str, step: RestWait) -> bool:
        return self._busy(base) == (step.workers, step.active, None)

    def _busy(self, base: str) -> tuple[int, int, float | None]:
        """How many workers block, how many jobs are active, and the score of the wake-up token if there is one."""
        blocked = [
            connection
            for connection in self._connections()
            if connection["cmd"] == "bzpopmin" and "b" in connection["flags"]
        ]
        return len(blocked), self._redis.llen(f"{base}:active"), self._redis.zscore(f"{base}:marker", "0")

    def _connections(self) -> list[dict[str, str]]:
        """CLIENT LIST, of all nodes in a cluster."""
        client = self._redis
        nodes = [client]
        if self.server.mode == "cluster":
            nodes = [client.get_redis_connection(node) for node in client.get_primaries()]
        return [connection for node in nodes for connection in node.client_list()]

    def _note(self, what: str, result: Any) -> None:
        if isinstance(result, dict) and isinstance(result.get("unprocessed"), list):
            # A Redis set: its order depends on its members, and these hold the prefix.
            result = {**result, "unprocessed": sorted(result["unprocessed"])}
        self.answers.append([what, self._without_prefix(result)])

    def _own(self, value: Any) -> Any:
        """Replace the placeholder by this client's prefix."""
        return msgspec.json.decode(msgspec.json.encode(value).replace(PREFIX.encode(), self.prefix.encode()))

    def _without_prefix(self, value: Any) -> Any:
        return msgspec.json.decode(msgspec.json.encode(value).replace(self.prefix.encode(), PREFIX.encode()))

    @cached_property
    def _redis(self) -> Any:
        """The test's own connection; redis-py has no types for a cluster here."""
        return self.server.connect()


def _is_read(command: RecordedCommand) -> bool:
    """Drop the read with which the oracle's driver waits until a queue or event reader is open."""
    words = [word.upper() for word in command.words]
    return words[0] == b"XREVRANGE" or (words[0] == b"HGET" and words[2:] == [b"VERSION"])


def _with_numbered_uuids(answers: list[Any]) -> list[Any]:
    """Number uuids as they come up: equal numbers mean equal uuids."""
    known: dict[str, str] = {}
    text = msgspec.json.encode(answers).decode()
    numbered = _UUID.sub(lambda found: known.setdefault(found.group(), f"<uuid {len(known) + 1}>"), text)
    answered: list[Any] = msgspec.json.decode(numbered)
    return answered
