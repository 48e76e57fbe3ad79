"""The kinds of steps that random sequences are made of, and how often each comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.driver.ops import Op, flow, job, lifecycle, queue, worker
from conformance.model import Model
from conformance.steps.shapes import CallStep, ClockStep, FaultStep, Step, opening

from .generator import CHILD_OPTIONS, QUEUES, WORKER_OPTIONS, Generator, StepMaker

WEIGHTS: dict[StepMaker, float] = {}


def step(weight: float) -> Callable[[StepMaker], StepMaker]:
    """Register a kind of step; it comes the more often the more it weighs."""

    def register(make: StepMaker) -> StepMaker:
        WEIGHTS[make] = weight
        return make

    return register


def on_queue(weight: float, make: Callable[[Generator], Op[Any]]) -> None:
    """Register an operation of a queue."""

    @step(weight)
    def _make(generator: Generator, model: Model, _: int) -> Step:
        return CallStep(generator.queue_handle(model)[0], make(generator))


# Time passes, locks and scripts get lost, idle workers wake up.


@step(2.5)
def _pass_time(generator: Generator, _: Model, __: int) -> Step:
    return ClockStep(generator.rng.choice((10_000, 10_000, 20_000, 60_000)))


@step(1.5)
def _delete_lock(generator: Generator, model: Model, _: int) -> Step:
    name = generator.rng.choice(QUEUES)
    active = model.jobs_by_state(name).get("active", ["1"])
    return FaultStep("delete-lock", name, generator.rng.choice(active))


@step(6)
def _take_markers(generator: Generator, _: Model, __: int) -> Step:
    return FaultStep("wake", generator.rng.choice(QUEUES))


@step(0.2)
def _flush(_: Generator, __: Model, ___: int) -> Step:
    return FaultStep("script-flush")


# Flows and job schedulers.


def _tree(generator: Generator, model: Model, depth: int) -> flow.FlowJob:
    rng = generator.rng
    name = rng.choice(QUEUES)
    options = {
        key: value
        for key, value in generator.options(model, name).items()
        if key not in {"parent", "jobId"} and not (isinstance(value, bool) and key == "delay")
    }
    if depth < 2:
        for option in CHILD_OPTIONS:
            options.pop(option, None)
        if generator.maybe(0.7):
            options[rng.choice(CHILD_OPTIONS)] = True
    if generator.maybe(0.3):
        options["jobId"] = rng.choice((model.free_id(name), "custom-0", "custom-2"))
    children = [_tree(generator, model, depth - 1) for _ in range(rng.randint(0, 3))] if depth else []
    return flow.FlowJob(name=f"node{depth}", queue=name, data_raw=generator.data(), opts=options, children=children)


@step(4)
def _add_flow(generator: Generator, model: Model, _: int) -> Step:
    return CallStep("f1", flow.AddFlow(flow=_tree(generator, model, 2)))


@step(0.6)
def _add_flows(generator: Generator, model: Model, _: int) -> Step:
    return CallStep("f1", flow.AddFlows(flows=[_tree(generator, model, 1) for _ in range(generator.rng.randint(0, 2))]))


@step(1)
def _get_flow(generator: Generator, model: Model, _: int) -> Step:
    name = generator.rng.choice(QUEUES)
    return CallStep(
        "f1", flow.GetFlow(job=generator.any_job(model, name), queue=name, depth=generator.rng.choice((1, 2, 10)))
    )


SCHEDULERS = ("s1", "s2", "s:3")


@step(3)
def _upsert(generator: Generator, model: Model, now_ms: int) -> Step:
    rng = generator.rng
    repeat: dict[str, Any] = rng.choice(
        (
            {"every": 1_000},
            {"every": 1_000, "limit": 2},
            {"every": 7_000, "startDate": now_ms + rng.choice((-5_000, 5_000))},
            {"every": 60_000, "endDate": now_ms + rng.choice((-1, 30_000, 600_000))},
            {"pattern": "*/5 * * * * *"},
            {"pattern": "0 */2 * * *", "limit": 3},
            {"pattern": "*/10 * * * *", "immediately": True},
            {"pattern": "15,45 10-12 1-7 * 1", "startDate": now_ms + 86_400_000},
            {"every": 1_000, "immediately": True},
            {},
            {"every": 5, "pattern": "* * * * *"},
        )
    )
    options = {
        key: value
        for key, value in generator.options(model, "q").items()
        if key in {"priority", "attempts", "lifo", "removeOnComplete", "backoff", "keepLogs", "deduplication"}
    }
    op = flow.UpsertJobScheduler(
        id=rng.choice(SCHEDULERS),
        repeat=repeat,
        name=rng.choice((None, "tick")),
        data_raw=rng.choice((None, generator.data())),
        opts=rng.choice((None, options)),
    )
    return CallStep(generator.queue_handle(model)[0], op)


on_queue(1, lambda g: flow.GetJobScheduler(id=g.rng.choice((*SCHEDULERS, "a:b:5:z:p"))))
on_queue(1, lambda g: flow.GetJobSchedulers(start=0, end=g.rng.choice((-1, 0)), asc=g.maybe(0.5)))
on_queue(0.3, lambda _: flow.GetJobSchedulersCount())
on_queue(1, lambda g: flow.RemoveJobScheduler(id=g.rng.choice(SCHEDULERS)))


# Jobs are added, changed, looked at and removed.


@step(12)
def _add(generator: Generator, model: Model, _: int) -> Step:
    handle, name = generator.queue_handle(model)
    return CallStep(
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
    return CallStep(handle, queue.AddBulk(jobs=jobs))


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
        return CallStep(op_handle, op)


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


# Everything that is asked of a queue as a whole.


STATES = ["active", "completed", "delayed", "failed", "paused", "prioritized", "waiting", "waiting-children"]
on_queue(1, lambda _: queue.Pause())
on_queue(3, lambda _: queue.Resume())
on_queue(0.5, lambda _: queue.IsPaused())
on_queue(
    2,
    lambda g: queue.GetJobs(
        types=g.rng.sample(STATES, g.rng.randint(0, 3)),
        start=g.rng.choice((0, 0, 1, -2)),
        end=g.rng.choice((-1, -1, 0, 2)),
        asc=g.maybe(0.5),
    ),
)
on_queue(1, lambda g: queue.GetJobCounts(types=g.rng.sample(STATES, g.rng.randint(0, 3))))
on_queue(0.5, lambda g: queue.GetJobCountByTypes(types=g.rng.sample(STATES, g.rng.randint(0, 3))))
on_queue(0.5, lambda _: queue.CountPending())
on_queue(0.5, lambda _: queue.GetCountsPerPriority(priorities=[0, 1, 2, 1]))
on_queue(0.7, lambda g: queue.Drain(delayed=g.maybe(0.5)))
on_queue(
    2,
    lambda g: queue.Clean(
        grace_ms=g.rng.choice((0, 0, 1_000, 60_000)),
        limit=g.rng.choice((0, 1, 2)),
        type=g.rng.choice(("completed", "wait", "active", "paused", "prioritized", "delayed", "failed")),
    ),
)
on_queue(0.4, lambda g: queue.Obliterate(force=g.maybe(0.7), count=g.rng.choice((1, 2, 1_000))))
on_queue(
    1,
    lambda g: queue.RetryJobs(
        count=g.rng.choice((1, 2, 1_000)),
        state=g.rng.choice(("completed", "failed")),
        timestamp=g.rng.choice((None, 1_700_000_001_000)),
    ),
)
on_queue(0.7, lambda g: queue.PromoteJobs(count=g.rng.choice((1, 1_000))))
on_queue(0.2, lambda g: queue.TrimEvents(max_length=g.rng.choice((0, 10_000))))
on_queue(1, lambda g: queue.GetMetrics(type=g.rng.choice(("completed", "failed")), start=0, end=g.rng.choice((-1, 0))))
on_queue(0.7, lambda g: queue.SetGlobalConcurrency(concurrency=g.rng.choice((1, 2, 5))))
on_queue(0.7, lambda _: queue.RemoveGlobalConcurrency())
on_queue(0.3, lambda _: queue.GetGlobalConcurrency())
on_queue(0.4, lambda g: queue.SetGlobalRateLimit(max=g.rng.choice((1, 3)), duration_ms=g.rng.choice((10_000, 30_000))))
on_queue(0.6, lambda _: queue.RemoveGlobalRateLimit())
on_queue(0.3, lambda _: queue.GetGlobalRateLimit())
on_queue(0.3, lambda g: queue.SetRateLimit(expire_ms=g.rng.choice((10_000, 50_000))))
on_queue(0.5, lambda _: queue.RemoveRateLimitKey())
on_queue(0.5, lambda g: queue.GetRateLimitTtl(max_jobs=g.rng.choice((None, 1, 2, 0))))
on_queue(0.5, lambda _: queue.IsMaxed())
on_queue(0.2, lambda _: queue.GetVersion())
on_queue(0.5, lambda g: queue.GetDeduplicationJobId(id=g.rng.choice(("d1", "d2"))))
on_queue(0.5, lambda g: queue.RemoveDeduplicationKey(id=g.rng.choice(("d1", "d2"))))
on_queue(0.2, lambda _: queue.GetWorkers())
on_queue(0.2, lambda _: queue.GetWorkersCount())


# Workers are opened and closed, take jobs, and do something with what they hold.


@step(14)
def _claim(generator: Generator, model: Model, _: int) -> Step | None:
    workers = list(model.handles("worker"))
    if not workers:
        return None
    return CallStep(generator.rng.choice(workers), worker.GetNextJob(token=generator.rng.choice(("t1", "t2", "0"))))


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
        return None if found is None else CallStep(found[0], make(generator, found[1], found[2], now_ms))


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
        return CallStep(generator.rng.choice(workers), make(generator)) if workers else None


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
    return CallStep(generator.rng.choice(workers), lifecycle.Close(force=generator.maybe(0.5)))


@step(0.8)
def _open_worker(generator: Generator, model: Model, _: int) -> Step | None:
    if len(model.handles()) > 8:
        return None
    generator.opened += 1
    name = generator.rng.choice(QUEUES)
    if generator.maybe(0.2):
        return opening(f"q{generator.opened + 1}", "queue", name, skipMetasUpdate=generator.maybe(0.5))
    bad = generator.rng.choice(({"maxStalledCount": -1}, {"concurrency": 0}, {"stalledInterval": 0}))
    options = bad if generator.maybe(0.1) else generator.rng.choice(WORKER_OPTIONS)
    return opening(f"v{generator.opened}", "worker", name, **options)
