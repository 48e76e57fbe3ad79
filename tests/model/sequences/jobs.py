"""Jobs are added, changed, looked at and removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.driver.ops import Op, job, queue
from conformance.model import Call, Model
from tests.model.bench import Step

from .generator import Generator
from .registry import step


@step(12)
def _add(generator: Generator, model: Model, _: int) -> Step:
    handle, name = generator.queue_handle(model)
    return Call(
        handle,
        queue.Add(
            name=generator.rng.choice(("a", "b", "ü/x")), data_raw=generator.data(), opts=generator.options(model, name)
        ),
    )


@step(2)
def _add_bulk(generator: Generator, model: Model, _: int) -> Step:
    handle, name = generator.queue_handle(model)
    jobs = [
        queue.NewJob(name=f"n{number}", data_raw=generator.data(), opts=generator.options(model, name))
        for number in range(generator.rng.randint(0, 4))
    ]
    return Call(handle, queue.AddBulk(jobs=jobs))


def _on_job(weight: float, make: Callable[[Generator, str], Op[Any]], *preferred: str) -> None:
    @step(weight)
    def _make(generator: Generator, model: Model, _: int) -> Step:
        handles = {**model.handles("queue"), **(model.handles("worker") if generator.maybe(0.2) else {})}
        op_handle = generator.rng.choice(list(handles))
        home = handles[op_handle].queue
        parents = model.parents(home) if preferred == ("parent",) and generator.maybe(0.8) else []
        op = make(generator, generator.rng.choice(parents) if parents else generator.any_job(model, home, preferred))
        if handles[op_handle].role == "worker" and type(op).on == "queue" and not type(op).op.startswith("job."):
            op_handle, _name = generator.queue_handle(model)
        return Call(op_handle, op)


_on_job(2, lambda g, j: job.UpdateData(job=j, data_raw=g.data()))
_on_job(2, lambda g, j: job.UpdateProgress(job=j, value_raw=g.data()))
_on_job(2, lambda g, j: job.Log(job=j, row=f"row {g.rng.random()}", keep_logs=g.rng.choice((None, None, 0, 1, 2))))
_on_job(0.5, lambda g, j: job.ClearLogs(job=j, keep_logs=g.rng.choice((None, 0, 1))))
_on_job(2, lambda _g, j: job.Promote(job=j), "delayed")
_on_job(2, lambda g, j: job.ChangeDelay(job=j, delay_ms=g.rng.choice((0, 1, 500, 60_000))), "delayed")
_on_job(
    2,
    lambda g, j: job.ChangePriority(job=j, priority=g.rng.choice((0, 1, 2, 3, 99_999_999)), lifo=g.maybe(0.3)),
    "prioritized",
    "waiting",
    "paused",
)
_on_job(3, lambda g, j: job.Retry(job=j, state=g.rng.choice(("completed", "failed"))), "failed", "completed")
_on_job(2, lambda g, j: job.RemoveJob(job=j, remove_children=g.maybe(0.7)))
_on_job(2, lambda g, j: queue.Remove(job=j, remove_children=g.maybe(0.7)))
_on_job(1, lambda _g, j: job.GetState(job=j))
_on_job(1, lambda _g, j: job.IsFinished(job=j))
_on_job(1, lambda _g, j: job.GetDependencies(job=j), "parent")
_on_job(1, lambda _g, j: job.GetDependenciesCount(job=j), "parent")
_on_job(1, lambda _g, j: job.GetChildrenValues(job=j), "parent")
_on_job(1, lambda _g, j: job.GetIgnoredChildrenFailures(job=j), "parent")
_on_job(1.5, lambda _g, j: job.RemoveChildDependency(job=j))
_on_job(1, lambda _g, j: job.RemoveUnprocessedChildren(job=j), "parent")
_on_job(2, lambda _g, j: queue.GetJob(job=j))
_on_job(1, lambda _g, j: queue.GetJobState(job=j))
_on_job(
    1,
    lambda g, j: queue.GetJobLogs(
        job=j, start=g.rng.choice((0, 1, -2)), end=g.rng.choice((-1, 0, 1)), asc=g.maybe(0.5)
    ),
)
