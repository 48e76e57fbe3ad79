"""Flows and job schedulers."""

from __future__ import annotations

from typing import Any

from conformance.driver.ops import flow
from conformance.model import Call, Model
from tests.model.bench import Step

from .generator import CHILD_OPTIONS, QUEUES, Generator
from .registry import on_queue, step


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
    return Call("f1", flow.AddFlow(flow=_tree(generator, model, 2)))


@step(0.6)
def _add_flows(generator: Generator, model: Model, _: int) -> Step:
    return Call("f1", flow.AddFlows(flows=[_tree(generator, model, 1) for _ in range(generator.rng.randint(0, 2))]))


@step(1)
def _get_flow(generator: Generator, model: Model, _: int) -> Step:
    name = generator.rng.choice(QUEUES)
    return Call(
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
    return Call(generator.queue_handle(model)[0], op)


on_queue(1, lambda g: flow.GetJobScheduler(id=g.rng.choice((*SCHEDULERS, "a:b:5:z:p"))))
on_queue(1, lambda g: flow.GetJobSchedulers(start=0, end=g.rng.choice((-1, 0)), asc=g.maybe(0.5)))
on_queue(0.3, lambda _: flow.GetJobSchedulersCount())
on_queue(1, lambda g: flow.RemoveJobScheduler(id=g.rng.choice(SCHEDULERS)))
