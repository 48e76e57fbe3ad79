"""A fault: what it may touch, the window in which it is recorded, and the registry of all faults by name.

    @fault("worker.kill", group="workers")
    @contextmanager
    def kill_worker(system: SystemUnderTest) -> Iterator[None]:
        \"\"\"A worker dies at once, whatever it is doing; another process takes its place.\"\"\"
        ...

The body up to `yield` hurts, the rest heals. How long it lasts is the nemesis's choice.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache

from chaos.clients import ChaosProducer, ChaosWorker
from chaos.processes import ClientProcess
from chaos.recorder import HistoryRecorder
from chaos.redis_servers import Persistence, RedisProcess, RedisServer
from chaos.topologies import Topology, TopologyName
from chaos.workload import WorkloadMix
from conformance.checkers.histories.evidence import REDIS
from conformance.checkers.histories.history import FaultBegan, FaultEnded
from conformance.problems import EnvironmentProblem, UsageProblem

EVERYTHING = 0.0
"""The start of the run: all that was written since then may be gone."""


@dataclass
class ActiveWindow:
    """An open fault, which sets these when it knows them: see `FaultEnded`. 0 is everything."""

    lost_since_ms: float | None = None
    torn: bool = False


@dataclass
class ChaosSystem:
    """One run's Redis and processes.

    `stall_ms`: how long a dead worker's job may take to be recovered. `fault_name`: of the fault that is injected.
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
        """The process ids of the client's processes that live, by name."""
        return {process.name: process.pid for process in self.processes if process.alive}

    def measured_pids(self) -> dict[str, int]:
        """Those, and the server's that has the data, where it is a process of this machine."""
        with suppress(EnvironmentProblem):
            if isinstance(self.primary, RedisProcess) and self.primary.running and self.primary.pid:
                return {**self.living_pids(), REDIS: self.primary.pid}
        return self.living_pids()

    @property
    def primary(self) -> RedisServer:
        """The server that has the data."""
        return self.topology.primary()

    def pause(self, ms: float) -> None:
        """Let the world go on for so long; less when the run is aborted."""
        self.aborted.wait(ms / 1000)

    @contextmanager
    def window(self, target: str = "", *, skew_ms: float = 0, resume_ms: float | None = None) -> Iterator[ActiveWindow]:
        """Record that the fault is on for the duration of the block. Healing belongs inside of it.

        `resume_ms`: how long work may stand still afterwards.
        """
        fault, number = self.fault_name, self.recorder.number()
        began = FaultBegan(
            at_ms=self.recorder.now_ms(),
            number=number,
            fault=fault,
            target=target,
            skew_ms=skew_ms,
            resume_ms=resume_ms,
        )
        self.recorder.put(began)
        window = ActiveWindow()
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
    """A disturbance with its healing.

    `hold_ms`: how long it is kept on. `times`: how often in one scenario. `persistence`: how Redis has to keep its data
    for it. `topologies`: where it makes sense, the first being its home. `mix`: a workload of its own. `containers`:
    whether it works on Redis in a container; `only_containers`: whether nowhere else.
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
    """How long draining may take; short where what is left need not be possible to finish."""

    def inject_into(self, system: ChaosSystem) -> AbstractContextManager[None]:
        """Hurt the system for the duration of a block, and heal it; the windows meanwhile bear this fault's name."""
        return self.inject(replace(system, fault_name=self.name))


_FAULTS: dict[str, Fault] = {}


def fault(name: str, *, group: str, **more: object) -> Callable[[Inject], Inject]:
    """Declare a fault. Raises ValueError for a name that is taken, or without docstring."""

    def declare(inject: Inject) -> Inject:
        what = (inject.__doc__ or "").strip()
        if name in _FAULTS or not what:
            raise ValueError(f"fault {name}: the name must be new, and it needs a docstring")
        _FAULTS[name] = Fault(name, what, inject, group, **more)  # type: ignore[arg-type]
        return inject

    return declare


@cache
def all_faults() -> Mapping[str, Fault]:
    """Every fault by name."""
    package = importlib.import_module("chaos.faults")
    for module in sorted(entry.name for entry in pkgutil.iter_modules(package.__path__)):
        importlib.import_module(f"chaos.faults.{module}")
    return dict(sorted(_FAULTS.items()))


def chosen_faults(patterns: str) -> list[Fault]:
    """The faults that a comma-separated list of names and globs means. Raises UsageProblem for one that means none."""
    found: dict[str, Fault] = {}
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        matching = {name: fault for name, fault in all_faults().items() if fnmatchcase(name, pattern)}
        if not matching and pattern != "none":
            raise UsageProblem(f"no fault is called {pattern!r}", hint=f"use one of {', '.join(all_faults())}")
        found |= matching
    return list(found.values())
