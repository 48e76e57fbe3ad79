"""Workers are opened and closed, take jobs, and do something with what they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.driver.ops import Op, lifecycle, worker
from conformance.model import Call, Model
from tests.model.bench import Step, opening

from .generator import QUEUES, WORKER_OPTIONS, Generator
from .registry import step


@step(14)
def _claim(generator: Generator, model: Model, _: int) -> Step | None:
    workers = list(model.handles("worker"))
    if not workers:
        return None
    return Call(generator.rng.choice(workers), worker.GetNextJob(token=generator.rng.choice(("t1", "t2", "0"))))


def _held(generator: Generator, model: Model) -> tuple[str, str, str] | None:
    """A worker, a job and a token: mostly its own ones. Where no worker holds anything, mostly nothing at all."""
    rng = generator.rng
    workers = model.handles("worker")
    busy = [name for name in workers if model.held(name)]
    if not workers or (not busy and generator.maybe(0.9)):
        return None
    name = rng.choice(busy or list(workers)) if generator.maybe(0.9) else rng.choice(list(workers))
    home = workers[name].queue
    held = list(model.held(name))
    chosen = rng.choice(held) if held and generator.maybe(0.8) else generator.any_job(model, home)
    right = model.lock_token(home, chosen) or model.held(name).get(chosen) or "t1"
    return name, chosen, right if generator.maybe(0.85) else rng.choice(("t1", "wrong", "0"))


def _on_held(weight: float, make: Callable[[Generator, str, str, int], Op[Any]]) -> None:
    @step(weight)
    def _make(generator: Generator, model: Model, now_ms: int) -> Step | None:
        found = _held(generator, model)
        return None if found is None else Call(found[0], make(generator, found[1], found[2], now_ms))


_on_held(
    20,
    lambda g, j, t, _: worker.MoveToCompleted(job=j, token=t, value_raw=g.data(), fetch_next=g.maybe(0.5)),
)
_on_held(
    20,
    lambda g, j, t, _: worker.MoveToFailed(
        job=j, token=t, message=g.rng.choice(("boom", "", "ü")), unrecoverable=g.maybe(0.3), fetch_next=g.maybe(0.4)
    ),
)
_on_held(2, lambda g, j, t, now: worker.MoveToDelayed(job=j, token=t, timestamp=now + g.rng.choice((-5, 0, 3, 1_000))))
_on_held(2, lambda _g, j, t, _: worker.MoveToWait(job=j, token=t))
_on_held(3, lambda _g, j, t, _: worker.MoveToWaitingChildren(job=j, token=t))
_on_held(2, lambda g, j, t, _: worker.ExtendLock(job=j, token=t, duration_ms=g.rng.choice((30_000, 60_000))))
_on_held(
    1,
    lambda g, j, t, _: worker.ExtendLocks(
        jobs=[j, "1", "2"], tokens=[t, "t1", "t2"], duration_ms=g.rng.choice((30_000, 60_000))
    ),
)


def _on_worker(weight: float, make: Callable[[Generator], Op[Any]]) -> None:
    @step(weight)
    def _make(generator: Generator, model: Model, _: int) -> Step | None:
        workers = list(model.handles("worker"))
        return Call(generator.rng.choice(workers), make(generator)) if workers else None


_on_worker(3, lambda _: worker.CheckStalled())
_on_worker(0.3, lambda g: worker.PauseWorker(do_not_wait_active=g.maybe(0.5)))
_on_worker(0.8, lambda _: worker.ResumeWorker())
_on_worker(0.2, lambda _: worker.IsWorkerPaused())
_on_worker(0.2, lambda _: worker.IsWorkerRunning())
_on_worker(0.3, lambda g: worker.WorkerRateLimit(expire_ms=g.rng.choice((10_000, 50_000))))


@step(0.6)
def _close(generator: Generator, model: Model, _: int) -> Step | None:
    workers = list(model.handles("worker"))
    if len(workers) < 2:
        return None
    return Call(generator.rng.choice(workers), lifecycle.Close(force=generator.maybe(0.5)))


@step(0.8)
def _open_worker(generator: Generator, model: Model, _: int) -> Step | None:
    if len(model.handles()) > 8:
        return None
    generator.opened += 1
    name = generator.rng.choice(QUEUES)
    if generator.maybe(0.2):
        return Call(f"q{generator.opened + 1}", opening("queue", name, {"skipMetasUpdate": generator.maybe(0.5)}))
    bad = generator.rng.choice(({"maxStalledCount": -1}, {"concurrency": 0}, {"stalledInterval": 0}))
    options = bad if generator.maybe(0.1) else generator.rng.choice(WORKER_OPTIONS)
    return Call(f"v{generator.opened}", opening("worker", name, options))
