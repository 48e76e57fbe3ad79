"""Time passes, locks and scripts get lost, idle workers wake up."""

from __future__ import annotations

from conformance.model import Model
from tests.model.bench import DeleteLock, FlushScripts, PassTime, Step, TakeMarkers

from .generator import QUEUES, Generator
from .registry import step


@step(2.5)
def _pass_time(generator: Generator, _: Model, __: int) -> Step:
    return PassTime(generator.rng.choice((10_000, 10_000, 20_000, 60_000)))


@step(1.5)
def _delete_lock(generator: Generator, model: Model, _: int) -> Step:
    name = generator.rng.choice(QUEUES)
    active = model.jobs_by_state(name).get("active", ["1"])
    return DeleteLock(name, generator.rng.choice(active))


@step(6)
def _take_markers(generator: Generator, _: Model, __: int) -> Step:
    return TakeMarkers(generator.rng.choice(QUEUES))


@step(0.2)
def _flush(_: Generator, __: Model, ___: int) -> Step:
    return FlushScripts()
