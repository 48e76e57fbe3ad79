"""A session: every measure of both clients in turns, round by round, so that a slow moment hits both of them."""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from conformance.driver.errors import (
    DriverBroken,
    OperationFailed,
    OperationGivenUp,
    OperationIndeterminate,
    OperationUnsupported,
)
from conformance.driver.messages import Ready, client_text
from conformance.driver.run_queue import RunQueue
from conformance.environment.clients import Launch
from conformance.environment.drivers import RestartableDriver
from conformance.environment.prepare import Environment
from conformance.gate.records import KIT_VERSION
from conformance.problems import UsageProblem
from conformance.speed.gates import SpeedBound, judged
from conformance.speed.measures import SpeedMeasure
from conformance.speed.peers import SpeedPeer, Unmeasurable
from conformance.speed.ratios import ratio_interval
from conformance.speed.records import MeasuredRatio, MeasureState, SpeedReport

Announce = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class SpeedOptions:
    """Options of a session. `rounds`: those that count, after one that warms up; `bounds`: to judge the results by.

    A round without a result is repeated, up to twice the number of rounds in total.
    """

    measures: Sequence[SpeedMeasure]
    rounds: int = 5
    jobs: int = 1000
    bounds: Sequence[SpeedBound] = ()


@dataclass
class _Taken:
    """The results of one measure: pairs of client and oracle, and why a round has none.

    `starved`: for each pair, the share of the client's time in which kit or driver waited for a processor.
    """

    pairs: list[tuple[float, float]] = field(default_factory=list)
    starved: list[float] = field(default_factory=list)
    state: MeasureState = "measured"
    reasons: list[str] = field(default_factory=list)

    def lacks(self, rounds: int) -> bool:
        """Whether another round can add a result."""
        return self.state == "measured" and len(self.pairs) < rounds

    def not_declared(self, reason: str) -> None:
        """The client does not do it at all."""
        self.state, self.reasons = "not-declared", [reason]


def measure_speed(environment: Environment, options: SpeedOptions, announce: Announce) -> SpeedReport:
    """Measure both clients of the environment. Raises a Problem for a driver that cannot be started."""
    server = environment.server
    if server.mode != "standalone":
        raise UsageProblem("bench needs a single Redis, not a cluster", hint="leave --redis away")
    before = os.getloadavg()[0]
    with _peers(environment) as (client, oracle):
        taken = _all_rounds(client, oracle, options, announce)
        ratios = [_ratio(measure, taken[measure.name]) for measure in options.measures]
        return SpeedReport(
            kit=KIT_VERSION,
            client=_described(environment.client, client.ready),
            oracle=_described(environment.oracle, oracle.ready),
            redis=server.source,
            rounds=options.rounds,
            jobs=options.jobs,
            load=(round(before, 1), round(os.getloadavg()[0], 1)),
            ratios=ratios,
            gates=judged(options.bounds, ratios),
        )


def _described(launch: Launch, ready: Ready) -> str:
    """The client with its versions, under the name that a run gives it."""
    name = launch.name if launch.named else ready.client.name
    return client_text(msgspec.structs.replace(ready.client, name=name))


@contextmanager
def _peers(environment: Environment) -> Iterator[tuple[SpeedPeer, SpeedPeer]]:
    """The client and the oracle, and a second oracle that adds jobs for both."""
    seed, server = environment.seed, environment.server
    # A second oracle adds the jobs: otherwise the measured one would share its process with that work.
    drivers = [
        RestartableDriver(launch, seed) for launch in (environment.client, environment.oracle, environment.oracle)
    ]
    seeder = drivers[2]
    try:
        with server.connect() as redis:
            client, oracle = (
                SpeedPeer(name, driver, server, redis, seeder)
                for name, driver in zip(("client", "oracle"), drivers, strict=False)
            )
            yield client, oracle
    finally:
        for driver in drivers:
            driver.close()


def _all_rounds(client: SpeedPeer, oracle: SpeedPeer, options: SpeedOptions, announce: Announce) -> dict[str, _Taken]:
    taken: defaultdict[str, _Taken] = defaultdict(_Taken)
    for number in range(2 * options.rounds + 1):
        open_measures = [measure for measure in options.measures if taken[measure.name].lacks(options.rounds)]
        if not open_measures:
            break
        again = (
            f", once more: {', '.join(measure.name for measure in open_measures)}" if number > options.rounds else ""
        )
        announce(f"round {number} of {options.rounds}{again}" if number else "warming up")
        # They alternate in going first: the second one profits from caches that the first one has filled.
        order = (client, oracle) if number % 2 else (oracle, client)
        for measure in open_measures:
            _take(measure, order, options.jobs, taken[measure.name], counted=number > 0)
    return taken


def _take(measure: SpeedMeasure, order: Sequence[SpeedPeer], jobs: int, found: _Taken, *, counted: bool) -> None:
    """One measurement of each. A measure that the client does not declare is not tried in further rounds."""
    values: dict[str, float] = {}
    starved = 0.0
    if lacking := [name for peer in order for name in measure.lacking(peer.ready)]:
        found.not_declared(f"the driver does not declare {', '.join(lacking)}")
        return
    for peer in order:
        try:
            with starved_share(peer) as share:
                values[peer.name] = measure.take(peer, jobs)
            starved = max(starved, *share) if peer.name == "client" else starved
        except OperationUnsupported as missing:
            found.not_declared(str(missing))
            return
        except (OperationFailed, OperationGivenUp, OperationIndeterminate, DriverBroken, Unmeasurable) as why:
            found.reasons.append(f"{peer.name}: {why}")
            return
    # Only complete pairs: a ratio needs both values from the same moment.
    if counted:
        found.pairs.append((values["client"], values["oracle"]))
        found.starved.append(starved if measure.timed else 0.0)


@contextmanager
def starved_share(peer: SpeedPeer) -> Iterator[list[float]]:
    """Measure the share of the block's time in which the kit or the driver waited for a processor (0 if unknown)."""
    waits, share = RunQueue(), [0.0]
    processes = (os.getpid(), peer.driver.pid())
    for process in processes:
        waits.newly_waited_s(process)
    started_s = time.monotonic()
    yield share
    took_s = time.monotonic() - started_s
    share[0] = max(map(waits.newly_waited_s, processes)) / took_s if took_s else 0.0


def _ratio(measure: SpeedMeasure, found: _Taken) -> MeasuredRatio:
    said = MeasuredRatio(
        measure=measure.name,
        meaning=measure.meaning,
        unit=measure.unit,
        state=found.state,
        reason=found.reasons[-1] if found.reasons else "",
    )
    if found.state == "not-declared":
        return said
    if not found.pairs:
        return msgspec.structs.replace(said, state="not-measured")
    ratios = [measure.ratio(client, oracle) for client, oracle in found.pairs]
    interval = ratio_interval(ratios)
    clients, oracles = zip(*found.pairs, strict=True)
    return msgspec.structs.replace(
        said,
        client=statistics.median(clients),
        oracle=statistics.median(oracles),
        ratios=ratios,
        median=interval.median,
        low=interval.low,
        high=interval.high,
        confidence=interval.confidence,
        clients=list(clients),
        oracles=list(oracles),
        starved=statistics.median(found.starved),
    )
