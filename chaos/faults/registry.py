"""All faults by name, and the decorator that declares one.

    @fault("worker.kill", group="workers")
    @contextmanager
    def kill(stage: Stage) -> Iterator[None]:
        \"\"\"A worker dies at once, whatever it is doing; another process takes its place.\"\"\"
        ...

The body up to `yield` hurts, the rest heals. How long it lasts is the nemesis's choice.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache

from chaos.redis_process import Persistence
from chaos.stage import Stage
from chaos.topologies.base import TopologyName
from chaos.workload import Mix
from conformance.problems import UsageProblem

Act = Callable[[Stage], AbstractContextManager[None]]
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
    act: Act = field(repr=False)
    group: str
    hold_ms: float = 1000
    times: int = 2
    persistence: Persistence = "none"
    topologies: tuple[TopologyName, ...] = EVERYWHERE
    mix: Mix = field(default_factory=Mix)
    containers: bool = True
    only_containers: bool = False
    drain_s: float = 45.0
    """How long draining may take; short where what is left need not be possible to finish."""


_FAULTS: dict[str, Fault] = {}


def fault(name: str, *, group: str, **more: object) -> Callable[[Act], Act]:
    """Declare a fault. Raises ValueError for a name that is taken, or without docstring."""

    def declare(act: Act) -> Act:
        what = (act.__doc__ or "").strip()
        if name in _FAULTS or not what:
            raise ValueError(f"fault {name}: the name must be new, and it needs a docstring")
        _FAULTS[name] = Fault(name, what, act, group, **more)  # type: ignore[arg-type]
        return act

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
        matching = {name: one for name, one in all_faults().items() if fnmatchcase(name, pattern)}
        if not matching and pattern != "none":
            raise UsageProblem(f"no fault is called {pattern!r}", hint=f"use one of {', '.join(all_faults())}")
        found |= matching
    return list(found.values())
