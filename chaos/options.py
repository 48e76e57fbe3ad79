"""The options of chaos runs: one frozen object, which is passed on whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.config import ChaosConfig, TopologyName
from chaos.faults.base import Fault
from chaos.redis_servers import Persistence
from chaos.workload import WorkloadMix
from conformance.environment.clients import Launch
from conformance.gate.records import redacted
from conformance.options import DurationMs, command_line, option_words

DRAIN_DEADLINE_S = 45.0
ALONE_MS = 25_000
"""How long the workload alone runs at least: memory is judged by 20 samples, one a second."""
TELLING = (
    "redis.client-kill",
    "network.outage-all",
    "worker.kill",
    "worker.freeze",
    "worker.kill-all",
    "worker.kill-reconnected",
    "redis.oom",
    "redis.script-flush",
    "cluster.migrate-slot",
    "network.outage-worker",
    "network.half-open",
    "redis.flushall",
    "network.truncate",
    "redis.away-20s",
)
"""Faults that show what most clients do wrong. In the default campaign they come first, after the workload alone and
before the crash points: every planted defect is shown until then (`chaos/mutants/`), and the rest is for rarer ones."""


@dataclass(frozen=True, kw_only=True)
class ChaosOptions:
    """A chaos run or suite: the client, the faults and the settings.

    `faults`: those of one run, or of a whole suite (see `runs`): `together` in one run, by the seed (a soak), else
    one run for each. `alone`: start with the workload and no fault. `at_once`: how many faults of one run overlap.
    `crash_points`: also break every script at its three points. `duration_ms` is a least time: every fault gets its
    turn. `hold_ms`: how long each fault is kept on, and `rounds`: how often it comes, None for the fault's own.
    `mix`: the workload, None for that of the faults. `pause_ms`: between two calls of a producer. `oracle`: its
    version, where it is not the pinned one. `partner`: the client of the last worker, where it is another one: two
    clients, or two versions, share the queues. `image`: run the workers in containers of this image instead of by
    the client's command. `redis`: as the user wrote it, for the line that repeats a run; the environment has the
    server itself. `out`: folder of history and results, None for nowhere. `command`: the command line, for
    the results file.
    """

    client: Launch
    faults: Sequence[Fault]
    topology: TopologyName = "single"
    duration_ms: float = 0
    hold_ms: float | None = None
    rounds: int | None = None
    seed: int = 0
    redis: str = ""
    out: Path | None = None
    together: bool = False
    at_once: int = 1
    alone: bool = False
    crash_points: bool = False
    oracle: str = ""
    partner: Launch | None = None
    command: Sequence[str] = ()
    workers: int = 2
    producers: int = 1
    pause_ms: float = 15
    mix: WorkloadMix | None = None
    drain_s: float = DRAIN_DEADLINE_S
    image: str = ""

    def runs(self) -> Iterator[ChaosOptions]:
        """The options of each run of a suite; none where only crash points were asked for."""
        if self.crash_points and not self.faults:
            return
        if self.alone:
            out = self.out / "no-fault" if self.out is not None else None
            yield replace(self, faults=[], duration_ms=max(self.duration_ms, ALONE_MS), out=out)
        for faults in [self.faults] if self.together or not self.faults else [[fault] for fault in self.faults]:
            name = "together" if len(faults) > 1 else faults[0].name if faults else "no-fault"
            out = self.out / name if self.out is not None else None
            yield replace(self, faults=faults, topology=topology_for(self.topology, faults), out=out)

    def runs_around_crash_points(self) -> tuple[Sequence[ChaosOptions], Sequence[ChaosOptions]]:
        """The runs before the crash points, and those after them: the most telling come first in the default campaign.

        Faults that were named run in the order of the list, and the crash points last.
        """
        runs = list(self.runs())
        if not self.alone:
            return runs, []
        telling = [run for run in runs if all(fault.name in TELLING for fault in run.faults)]
        telling.sort(key=lambda run: [TELLING.index(fault.name) for fault in run.faults])
        return telling, [run for run in runs if not all(fault.name in TELLING for fault in run.faults)]

    @property
    def worker_clients(self) -> list[Launch]:
        """The client of each worker."""
        clients = [self.client] * self.workers
        return clients if self.partner is None else [*clients[:-1], self.partner]

    @property
    def persistence(self) -> Persistence:
        """How Redis has to keep its data: as the first fault wants that cares."""
        return next((fault.persistence for fault in self.faults if fault.persistence != "none"), "none")

    @property
    def workload_mix(self) -> WorkloadMix:
        """The mix of the options, or a fault's own; of several faults only those of clocks have one, without delays."""
        insisting = (fault for fault in self.faults if len(self.faults) == 1 or fault.group == "clocks")
        own = (fault.mix for fault in insisting if fault.mix != WorkloadMix())
        return self.mix or next(own, WorkloadMix())

    @property
    def drain_deadline_s(self) -> float:
        """How long draining may take: the shortest that options or a fault ask for."""
        return min(self.drain_s, DRAIN_DEADLINE_S, *(fault.drain_s for fault in self.faults))

    @property
    def reproduce(self) -> str:
        """The command that runs the same once more."""
        config = ChaosConfig(
            faults=",".join(fault.name for fault in self.faults) or "none",
            topology=self.topology,
            duration_ms=DurationMs(self.duration_ms),
            hold_ms=None if self.hold_ms is None else DurationMs(self.hold_ms),
            together=self.together,
            at_once=self.at_once,
            seed=self.seed,
            redis=self.redis,
            partner=self.partner.text if self.partner is not None else "",
            oracle=self.oracle,
        )
        return command_line("chaos", redacted([*option_words(config), *self.client.words]))

    @property
    def reproduce_crash_points(self) -> str:
        """The command that tries all crash points once more."""
        config = ChaosConfig(crash_points=True, oracle=self.oracle)
        return command_line("chaos", redacted([*option_words(config), *self.client.words]))


def topology_for(wanted: TopologyName, faults: Sequence[Fault]) -> TopologyName:
    """The topology that was asked for, unless a fault has another home."""
    for fault in faults:
        if wanted not in fault.topologies:
            return fault.topologies[0]
    return wanted
