"""Plainer variants of a sequence: without some steps, without options, with the first handle of each kind. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from conformance.driver.ops import Op, flow, lifecycle, queue
from conformance.fuzz.answers import Answer
from conformance.fuzz.foresight import Foresight
from conformance.fuzz.steps import CallStep, ClockStep, FaultStep, Step
from conformance.participants.clock import FROZEN_START_MS

SIMPLER_NAMES = {"queue-2": "queue-1", "worker-2": "worker-1", "token-2": "token-1"}


def without(steps: Sequence[Step], left_out: frozenset[int]) -> list[Step]:
    """The sequence without the steps at these positions.

    What is called on an object that is no longer made goes, too. Jobs that are still added may get other ids than
    before: the model tells which, and later steps mean them by those.
    """
    kept = [(step, ids) for index, (step, ids) in enumerate(_with_ids(steps)) if index not in left_out]
    made = {step.handle for step, _ in kept if isinstance(step, CallStep) and step.opens}
    after, new_ids, rest = Foresight(), dict[str, str](), list[Step]()
    now_ms = FROZEN_START_MS
    for step, before in kept:
        if isinstance(step, CallStep) and step.handle not in made:
            continue
        renamed = _with_jobs(step, new_ids)
        rest.append(renamed)
        new_ids.update(zip(before, _ids_in(after.follow(renamed, now_ms)), strict=False))
        now_ms += renamed.ms if isinstance(renamed, ClockStep) else 0
    return rest


def _with_ids(steps: Sequence[Step]) -> Iterator[tuple[Step, list[str]]]:
    """Each step with the ids of the jobs that it names in its answer."""
    model, now_ms = Foresight(), FROZEN_START_MS
    for step in steps:
        yield step, _ids_in(model.follow(step, now_ms))
        now_ms += step.ms if isinstance(step, ClockStep) else 0


def _ids_in(answer: Answer | None) -> list[str]:
    """The ids of jobs in an answer: those that were added, or claimed."""
    value = answer.value if answer and isinstance(answer.value, dict) else {}
    job = value.get("job")
    found = [value.get("id"), *value.get("ids", ()), job.get("id") if isinstance(job, dict) else None]
    return [one for one in found if isinstance(one, str)]


def _with_jobs(step: Step, new_ids: dict[str, str]) -> Step:
    if isinstance(step, FaultStep):
        return replace(step, job=new_ids.get(step.job, step.job))
    if not isinstance(step, CallStep):
        return step
    job, jobs = getattr(step.op, "job", None), getattr(step.op, "jobs", None)
    if isinstance(job, str) and job in new_ids:
        return replace(step, op=msgspec.structs.replace(step.op, job=new_ids[job]))
    if isinstance(jobs, list) and all(isinstance(one, str) for one in jobs):
        return replace(step, op=msgspec.structs.replace(step.op, jobs=[new_ids.get(one, one) for one in jobs]))
    return step


def simpler_steps(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Variants in which one thing is plainer, the most telling ones first."""
    for plainer in SIMPLER_NAMES.items():
        renamed = [_renamed(step, *plainer) for step in steps]
        once = [step for index, step in enumerate(renamed) if step not in renamed[:index] or not _opens(step)]
        if once != list(steps):
            yield once
    for index, step in enumerate(steps):
        if isinstance(step, CallStep):
            if step.cut:
                yield [*steps[:index], replace(step, cut=""), *steps[index + 1 :]]
            for op in _plainer(step.op):
                yield [*steps[:index], replace(step, op=op), *steps[index + 1 :]]


def _opens(step: Step) -> bool:
    return isinstance(step, CallStep) and step.opens


def _renamed(step: Step, name: str, plainer: str) -> Step:
    if not isinstance(step, CallStep):
        return step
    op = step.op
    if getattr(op, "token", None) == name:
        op = msgspec.structs.replace(op, token=plainer)
    return replace(step, handle=plainer if step.handle == name else step.handle, op=op)


def _plainer(op: Op[Any]) -> Iterator[Op[Any]]:
    """The same operation with less to it."""
    edit: Callable[..., Op[Any]] = lambda **changes: msgspec.structs.replace(op, **changes)  # noqa: E731
    match op:
        case lifecycle.Open():
            yield from (edit(options=options) for options in _fewer(op.options))
        case queue.Add():
            yield from (edit(opts=opts) for opts in _fewer(op.opts))
            yield from _at_defaults(op, {"name": "job", "data_raw": "{}"})
        case queue.AddBulk():
            yield from (
                edit(jobs=[*op.jobs[:at], *op.jobs[at + 1 :]]) for at in range(len(op.jobs)) if len(op.jobs) > 1
            )
            for at, one in enumerate(op.jobs):
                for opts in _fewer(one.opts):
                    plain = msgspec.structs.replace(one, opts=opts)
                    yield edit(jobs=[*op.jobs[:at], plain, *op.jobs[at + 1 :]])
        case flow.AddFlow():
            yield from (edit(flow=node) for node in _plainer_nodes(op.flow))
        case flow.AddFlows():
            yield from (flow.AddFlow(flow=node) for node in op.flows)
        case flow.UpsertJobScheduler():
            yield from _at_defaults(op, {"opts": None})
        case _:
            yield from _at_defaults(op, {"fetch_next": False, "value_raw": "null", "message": "boom"})


def _fewer(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Without one of the options; an id stays, because other steps mean the job by it."""
    for name in options:
        if name != "jobId":
            yield {other: value for other, value in options.items() if other != name}


def _plainer_nodes(node: flow.FlowJob) -> Iterator[flow.FlowJob]:
    for at, child in enumerate(node.children):
        rest = [*node.children[:at], *node.children[at + 1 :]]
        yield msgspec.structs.replace(node, children=rest)
        for plainer in _plainer_nodes(child):
            yield msgspec.structs.replace(node, children=[*node.children[:at], plainer, *node.children[at + 1 :]])
    for opts in _fewer(node.opts):
        yield msgspec.structs.replace(node, opts=opts)
    if node.queue != "q":
        yield msgspec.structs.replace(node, queue="q")


def _at_defaults(op: Op[Any], plain: dict[str, Any]) -> Iterator[Op[Any]]:
    for name, value in plain.items():
        if name in op.__struct_fields__ and getattr(op, name) != value:
            yield msgspec.structs.replace(op, **{name: value})
