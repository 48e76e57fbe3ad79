"""A child ends while its parent is anywhere: it waits for it, is put off, is at work, or has a parent of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from conformance.driver.ops import Op, flow, job, queue, worker
from conformance.fuzz.strategies.arguments import FAILURES, Options, deduplicated
from conformance.fuzz.strategies.context import MAIN, TOKENS, GenerationContext
from conformance.fuzz.strategies.crossings import joined
from conformance.fuzz.strategies.queue_steps import free_number, parent_in_main
from conformance.steps.shapes import CallStep, ClockStep, Step

_TOKEN = TOKENS[0]
_NEXT: Options = {"lifo": True}
"""A worker takes this job next."""

_FAILURES: st.SearchStrategy[Options] = st.sampled_from((FAILURES[0], *FAILURES)).map(lambda name: {name: True})
_PLACES: st.SearchStrategy[Options] = st.sampled_from(({}, {"priority": 1}, {"delay": 20_000}))
_KEPT: st.SearchStrategy[Options] = st.sampled_from(
    ({}, {"removeOnFail": True}, {"removeOnComplete": True}, {"attempts": 2})
)
_DEDUPLICATED = st.sampled_from((False, False, True))
_GENERATIONS = st.sampled_from((1, 2))
_FAMILIES = st.sampled_from(("flow", "joined", "at work"))
_ENDS = st.sampled_from(("fail", "fail", "fail", "complete", "stall", "unlink"))
_STOLEN = st.sampled_from((False, False, True))
"""Whether a child is added again to another parent."""
_RETRIED = st.sampled_from((False, True))
_LOCKS_END_MS = 60_000


@st.composite
def ending_a_child(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """A child is added with its family, or to an existing parent, and ends."""
    family = draw(_FAMILIES)
    if family == "flow" and context.can("flow.add"):
        return draw(_in_a_flow(context))
    return draw(_joining(context, at_work=family == "at work"))


@st.composite
def _in_a_flow(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    job_id = f"f{free_number(context)}"
    younger = [{**draw(_KEPT), **draw(_FAILURES)} for _ in range(draw(_GENERATIONS))]
    younger[-1] |= _NEXT
    options = [{**draw(_parent_options(context)), **draw(_PLACES)}, *younger]
    ids = [job_id + "-1" * generation for generation in range(len(options))]
    *above, youngest = (
        flow.FlowJob(name="node", queue=MAIN, opts={**opts, "jobId": job_id})
        for job_id, opts in zip(ids, options, strict=True)
    )
    tree = youngest
    for node in reversed(above):
        node.children.append(tree)
        tree = node
    opened, claim = _claim(draw, context)
    added = context.flow(draw, flow.AddFlow(flow=tree))
    parent_ends = [claim, replace(claim, op=worker.MoveToCompleted(job=ids[-2], token=_TOKEN, value_raw="1"))]
    later: list[Step] = draw(st.sampled_from(([], [], parent_ends, [*parent_ends, added[-1]])))
    return joined(added, [*opened, claim], draw(_end(context, ids[-1], claim)), later)


@st.composite
def _joining(draw: st.DrawFn, context: GenerationContext, *, at_work: bool) -> list[Step]:
    """A child is added to an existing parent. `at_work`: the parent is active, and ends after the child."""
    job_id = f"f{free_number(context)}"
    child = f"{job_id}-1"
    place = _NEXT if at_work else draw(_PLACES)
    options = {**draw(_parent_options(context)), **place, "jobId": job_id}
    joins = {**draw(_FAILURES), **_NEXT, "jobId": child, "parent": parent_in_main(job_id)}
    parent, youngest = (context.producer(draw, MAIN, queue.Add(name="node", opts=opts)) for opts in (options, joins))
    opened, claim = _claim(draw, context)
    end = draw(_end(context, child, claim))
    if not at_work:
        other = parent_in_main(f"f{free_number(context) + 1}")
        second = context.producer(draw, MAIN, queue.Add(name="node", opts={"jobId": other["id"]}))
        again = context.producer(draw, MAIN, queue.Add(name="node", opts={**joins, "parent": other}))
        stolen = joined(second, again) if draw(_STOLEN) else []
        return joined(parent, youngest, stolen, [*opened, claim], end)
    return joined(parent, [*opened, claim], youngest, [claim], end, [replace(claim, op=draw(_end_of_parent(job_id)))])


def _claim(draw: st.DrawFn, context: GenerationContext) -> tuple[list[Step], CallStep]:
    """Return the steps that open the worker, if there is none yet, and its claim."""
    *opened, claim = context.worker(draw, MAIN, worker.GetNextJob(token=_TOKEN))
    assert isinstance(claim, CallStep)
    return opened, claim


@st.composite
def _parent_options(draw: st.DrawFn, context: GenerationContext) -> Options:
    shared = draw(deduplicated(context.words)) if draw(_DEDUPLICATED) else {}
    return {**shared, **draw(_KEPT)}


@st.composite
def _end(draw: st.DrawFn, context: GenerationContext, child: str, claim: CallStep) -> list[Step]:
    """The worker ends the child, or loses it until it has stalled too often; or the child is unlinked."""
    how = draw(_ENDS)
    if how == "stall" and context.frozen and context.can("worker.checkStalled"):
        check, later = replace(claim, op=worker.CheckStalled()), ClockStep(_LOCKS_END_MS)
        return [check, later, check, claim, later, check, later, check]
    if how == "unlink":
        unlink, look = (
            context.producer(draw, MAIN, op) for op in (job.RemoveChildDependency(job=child), queue.GetJob(job=child))
        )
        return joined(unlink, look, unlink)
    op: Op[Any] = worker.MoveToFailed(job=child, token=_TOKEN, message="boom", unrecoverable=True)
    if how == "complete":
        op = worker.MoveToCompleted(job=child, token=_TOKEN, value_raw="1")
    retried: list[Step] = []
    if draw(_RETRIED):
        retried = context.producer(
            draw, MAIN, job.Retry(job=child, state="completed" if how == "complete" else "failed")
        )
    return [replace(claim, op=op), *retried]


def _end_of_parent(parent: str) -> st.SearchStrategy[Op[Any]]:
    return st.sampled_from(
        (
            worker.MoveToWaitingChildren(job=parent, token=_TOKEN),
            worker.MoveToCompleted(job=parent, token=_TOKEN, value_raw="1"),
            worker.MoveToFailed(job=parent, token=_TOKEN, message="boom"),
        )
    )
