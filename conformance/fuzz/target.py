"""Targets of sequences: the oracle next to a client, to clients that take turns, or to the model."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, get_args

import msgspec

from conformance.driver.errors import DriverBroken, OperationFailed, OperationIndeterminate, OperationUnsupported
from conformance.driver.messages import client_text
from conformance.driver.ops import lifecycle
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.environment.drivers import RestartableDriver
from conformance.environment.prepare import EnvironmentOptions
from conformance.fuzz.comparison import Completion, KnownDifferences
from conformance.fuzz.execution import ObservedPair, SequenceRunner, SystemUnderTest, TapConnectionCutter
from conformance.fuzz.keyspace import RedisKeyspace
from conformance.fuzz.prediction import SequenceModel
from conformance.fuzz.setup import FuzzedDrivers, prepare_drivers
from conformance.observe.tables import Snapshot
from conformance.participants.clock import FrozenClock, ParticipantClock, RunningClock
from conformance.steps.shapes import CallStep, OutsideStep, addressed

Mode: TypeAlias = Literal["differential", "interop", "model"]

MODES: tuple[Mode, ...] = get_args(Mode)
"""`differential`: the client against the oracle, each on its own prefix. `interop`: client and partner (the oracle
by default) take turns on one prefix, compared with the oracle alone on another. `model`: the oracle against
the model."""

# Far above any call on loopback: only a client that hangs or retries for ever exceeds it.
CALL_DEADLINE_MS = 10_000

ALONE = "alone-"
"""Prefix of the oracle's handles on its own prefix: in interop, one driver has those and the handles of its turns."""

STREAM_ID = "0-1"
"""Replaces the ids of stream entries, which contain Redis's time: the model has none."""


@dataclass
class DriverUnderTest:
    """A client behind its driver, on one prefix. `handles` distinguishes two systems that share one driver."""

    driver: RestartableDriver
    address: RedisAddress
    prefix: str
    handles: str = ""

    def perform(self, step: CallStep, now_ms: int | None) -> Completion:
        """Make one call; errors of a client are returned, not raised."""
        op, handle = addressed(step.op, self.prefix, self.address), self.handles + step.handle
        try:
            value = self.driver.living().call(op, handle=handle, deadline_ms=CALL_DEADLINE_MS, now_ms=now_ms)
        except OperationFailed as failure:
            return Completion("fail", code=failure.error.code, message=failure.error.message)
        except OperationIndeterminate as unknown:
            return Completion("info", code=unknown.error.code, message=unknown.error.message)
        except OperationUnsupported as refusal:
            return Completion("unsupported", message=str(refusal))
        except DriverBroken as broken:
            return Completion("broken", message=str(broken))
        return Completion("ok", msgspec.to_builtins(value))

    def endure(self, step: OutsideStep) -> None:
        """Do nothing: all state of the client is in Redis, or survives."""


@dataclass
class AlternatingClients:
    """Client and partner (the oracle by default) on one prefix; each step names the client whose turn it is."""

    client: DriverUnderTest
    partner: DriverUnderTest

    @property
    def prefix(self) -> str:
        """The shared prefix."""
        return self.client.prefix

    def perform(self, step: CallStep, now_ms: int | None) -> Completion:
        """Make the call on the client whose turn it is. Both clients open and close every object, for later turns."""
        if step.opens or isinstance(step.op, lifecycle.Close):
            completions = [client.perform(step, now_ms) for client in (self.partner, self.client)]
            return next((completion for completion in completions if completion.status != "ok"), completions[0])
        return (self.client if step.by == "client" else self.partner).perform(step, now_ms)

    def endure(self, step: OutsideStep) -> None:
        """Do nothing, like each of the two."""


@dataclass
class ModelUnderTest:
    """The model in the place of a client. It has no keys in Redis; `observe` returns its state."""

    model: SequenceModel = field(default_factory=SequenceModel)

    @property
    def prefix(self) -> str:
        """The prefix of the model's keys."""
        return self.model.prefix

    def perform(self, step: CallStep, now_ms: int | None) -> Completion:
        """The completion that the model predicts."""
        assert now_ms is not None, "the oracle has a clock"
        completion = self.model.follow(step, now_ms)
        if completion is None or not self.model.certain:
            return Completion("unsupported", message="the model does not know what comes of this")
        return completion

    def endure(self, step: OutsideStep) -> None:
        """Apply a step that no client takes to the model."""
        self.model.follow(step, 0)

    def observe(self) -> ModelObservation:
        """The model's state as it would be seen in Redis."""
        snapshot = self.model.snapshot()
        events = tuple(replace(event, id=STREAM_ID) for event in snapshot.events)
        return ModelObservation(replace(snapshot, events=events))


@dataclass(frozen=True)
class ModelObservation:
    """The state of the model."""

    snapshot: Snapshot
    modelled = True
    """The state is not in Redis."""

    @property
    def fingerprint(self) -> str:
        """Never equal to that of a state in Redis, so the canonical rules always compare."""
        return ""

    @property
    def times_left(self) -> Mapping[str, int]:
        """Times to live in ms by key without prefix."""
        rows = self.snapshot
        found = {f"{row.queue}:{row.job}:lock": row.ttl_ms for row in rows.locks}
        found |= {f"{row.queue}:de:{row.id}": row.ttl_ms for row in rows.deduplications}
        found |= {f"{row.queue}:{row.name}": row.ttl_ms for row in (*rows.limiters, *rows.stalled_checks)}
        return {key: int(ttl) for key, ttl in found.items() if not isinstance(ttl, str) and ttl >= 0}


@dataclass
class FuzzTarget:
    """Runs one sequence after the other. Call `end` before the next sequence, and finally `close`."""

    drivers: FuzzedDrivers
    mode: Mode = "differential"

    def __post_init__(self) -> None:
        self._keyspace = RedisKeyspace(self.drivers.redis)
        # Two, because the oracle's call runs next to the client's.
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="fuzz")

    @property
    def parties(self) -> str:
        """The two compared systems, with all versions."""
        client = self.drivers.client
        compared = client_text(client.handshake().client) if client else "the model"
        partner = self.drivers.partner
        compared += f" in turns with {client_text(partner.handshake().client)}" if partner else ""
        return f"{compared}, compared with {client_text(self.drivers.oracle.handshake().client)}"

    def start(self, known: KnownDifferences | None = None) -> SequenceRunner:
        """A new sequence on fresh prefixes."""
        drivers = self.drivers
        expected, actual = self._systems()
        prefixes = [expected.prefix] if isinstance(actual, ModelUnderTest) else [expected.prefix, actual.prefix]

        def observe() -> ObservedPair:
            dumps = self._keyspace.dump(*prefixes)
            return dumps[0], actual.observe() if isinstance(actual, ModelUnderTest) else dumps[1]

        clock: ParticipantClock = FrozenClock() if drivers.frozen else RunningClock()
        # Rules and recorded commands of the sequence before must not apply.
        drivers.client_point.start_scenario()
        tap = drivers.client_point.tap
        return SequenceRunner(
            expected,
            actual,
            observe,
            self._keyspace,
            clock,
            self._pool,
            prefixes,
            drivers.kill_connections,
            known or KnownDifferences(),
            cutter=TapConnectionCutter(tap) if tap is not None else None,
            oracle_version=drivers.oracle.handshake().client.version,
        )

    def end(self, runner: SequenceRunner) -> None:
        """Close what the sequence opened and remove what it left."""
        # The clients first: an open client might write again what was removed.
        list(self._pool.map(RestartableDriver.reset, self.drivers.drivers))
        self._keyspace.clear(runner.prefixes)

    def close(self) -> None:
        """End the drivers and all connections."""
        # The pool first: a call may still be running on a driver.
        self._pool.shutdown()
        self.drivers.close()

    def _systems(self) -> tuple[SystemUnderTest, SystemUnderTest]:
        """The expected system, and the system under test."""
        drivers, fresh_prefix = self.drivers, self.drivers.server.fresh_prefix
        alone = DriverUnderTest(drivers.oracle, drivers.address, fresh_prefix(), ALONE)
        if drivers.client is None:
            return alone, ModelUnderTest()
        client = DriverUnderTest(drivers.client, drivers.client_point.address, fresh_prefix())
        if self.mode == "differential":
            return alone, client
        other = DriverUnderTest(drivers.partner or drivers.oracle, drivers.address, client.prefix)
        return alone, AlternatingClients(client, other)


def open_target(options: EnvironmentOptions, stack: ExitStack, mode: Mode) -> FuzzTarget:
    """A target that ends with `stack`. Raises a Problem that says what is wrong with the options or the environment."""
    target = FuzzTarget(
        prepare_drivers(options, stack, oracle_alone=mode == "model", takes_turns=mode == "interop"), mode
    )
    stack.callback(target.close)
    return target
