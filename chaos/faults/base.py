"""How a fault is declared, and the registry of all faults.

    @fault("worker.kill", group="workers")
    @contextmanager
    def kill_worker(system: ChaosSystem) -> Iterator[None]:
        \"\"\"A worker dies in the middle of its work; another process takes its place.\"\"\"
        process = system.workers[0].process
        with system.window(victims=[process], resume_ms=system.stall_ms):
            process.kill()
            try:
                yield
            finally:
                process.restart_if_dead()

The code before `yield` injects the fault; the code in `finally` heals it, also if the run is interrupted. The nemesis
decides how long the fault lasts.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace

from chaos.clients import ChaosProducer, ChaosWorker
from chaos.config import TopologyName
from chaos.processes import ClientProcess
from chaos.recorder import HistoryRecorder
from chaos.redis_servers import Persistence, RedisProcess, RedisServer
from chaos.topologies import Topology
from chaos.workload import WorkloadMix
from conformance.checkers.histories.evidence import REDIS
from conformance.checkers.histories.history import FaultEnded, FaultStarted
from conformance.problems import EnvironmentProblem
from conformance.registry import Registry

EVERYTHING = 0.0
"""The start of the run: everything written since then may be lost."""


@dataclass
class ActiveWindow:
    """An open fault. The fault sets these fields when it knows them: see `FaultEnded`. 0 is everything."""

    lost_since_ms: float | None = None
    torn: bool = False


@dataclass
class ChaosSystem:
    """Redis and the processes of one run.

    `stall_ms`: how long the recovery of a dead worker's job may take. `fault_name`: the injected fault.
    """

    topology: Topology
    producers: Sequence[ChaosProducer]
    workers: Sequence[ChaosWorker]
    recorder: HistoryRecorder
    prefix: str
    stall_ms: float
    random: random.Random
    aborted: threading.Event = field(default_factory=threading.Event)
    fault_name: str = ""

    @property
    def processes(self) -> list[ClientProcess]:
        """All processes of the client."""
        clients: list[ChaosProducer | ChaosWorker] = [*self.producers, *self.workers]
        return [client.process for client in clients]

    def living_pids(self) -> dict[str, int]:
        """The process ids of the live processes of the client, by name."""
        return {process.name: process.pid for process in self.processes if process.alive}

    def measured_pids(self) -> dict[str, int]:
        """Those, and the primary's, if it is a process of this machine."""
        # During a failover there may be no primary.
        with suppress(EnvironmentProblem):
            if isinstance(self.primary, RedisProcess) and self.primary.running and self.primary.pid:
                return {**self.living_pids(), REDIS: self.primary.pid}
        return self.living_pids()

    @property
    def primary(self) -> RedisServer:
        """The server that has the data."""
        return self.topology.primary()

    def pause(self, ms: float) -> None:
        """Wait this long, or until the run is aborted."""
        self.aborted.wait(ms / 1000)

    @contextmanager
    def window(
        self,
        target: str = "",
        *,
        victims: Iterable[ClientProcess] | None = None,
        keys: Sequence[str] = (),
        skew_ms: float = 0,
        resume_ms: float | None = None,
    ) -> Iterator[ActiveWindow]:
        """Record that the fault is on for the duration of the block. Heal inside of the block.

        `target`: in words; by default the names of the victims. `victims`: the processes that it touches, None for all
        of them; only their symptoms are excused. `keys`: the kinds of keys that it deletes. `resume_ms`: how long work
        may be interrupted afterwards.
        """
        fault, number = self.fault_name, self.recorder.number()
        names = None if victims is None else [process.name for process in victims]
        began = FaultStarted(
            at_ms=self.recorder.now_ms(),
            number=number,
            fault=fault,
            target=target or ", ".join(names or ()),
            processes=names,
            keys=list(keys),
            skew_ms=skew_ms,
            resume_ms=resume_ms,
        )
        self.recorder.put(began)
        window = ActiveWindow()
        # The window ends even if healing raises, so that the time after it is not excused.
        try:
            yield window
        finally:
            self.recorder.put(
                FaultEnded(
                    at_ms=self.recorder.now_ms(),
                    number=number,
                    fault=fault,
                    lost_since_ms=window.lost_since_ms,
                    torn=window.torn,
                )
            )


Inject = Callable[[ChaosSystem], AbstractContextManager[None]]
EVERYWHERE: tuple[TopologyName, ...] = ("single", "replica", "sentinel", "cluster")


@dataclass(frozen=True)
class Fault:
    """A disturbance and its healing.

    `hold_ms`: how long it lasts. `times`: how often it is injected in one run. `persistence`: the persistence of Redis
    that it needs. `topologies`: where it applies; the first is the default. `mix`: its own workload. `containers`:
    whether it works on Redis in a container; `only_containers`: whether it works only there.
    """

    name: str
    what: str
    inject: Inject = field(repr=False)
    group: str
    hold_ms: float = 1000
    times: int = 2
    persistence: Persistence = "none"
    topologies: tuple[TopologyName, ...] = EVERYWHERE
    mix: WorkloadMix = field(default_factory=WorkloadMix)
    containers: bool = True
    only_containers: bool = False
    drain_s: float = 45.0
    """How long draining may take; short if the fault may leave jobs that cannot be finished."""

    def inject_into(self, system: ChaosSystem) -> AbstractContextManager[None]:
        """Inject the fault for the duration of a block, and heal it. Its windows get the fault's name."""
        return self.inject(replace(system, fault_name=self.name))


FAULTS: Registry[Fault] = Registry("fault", package="chaos.faults", by_name=True)
"""Every fault by name."""


def fault(name: str, *, group: str, **more: object) -> Callable[[Inject], Inject]:
    """Declare a fault. Raises ValueError if the name is taken or the docstring is missing."""

    def declare(inject: Inject) -> Inject:
        what = (inject.__doc__ or "").strip()
        if not what:
            raise ValueError(f"fault {name}: it needs a docstring")
        FAULTS.add(name, Fault(name, what, inject, group, **more))  # type: ignore[arg-type]
        return inject

    return declare


def select_faults(patterns: str) -> list[Fault]:
    """The faults that a comma-separated list of names and globs selects; `none` selects no fault.

    Raises UsageProblem for a pattern that selects nothing.
    """
    return FAULTS.matching(",".join(part for part in patterns.split(",") if part.strip() != "none"))
