"""Steps about a whole queue: producing jobs, flows and schedulers, control, maintenance, limits and questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st

from conformance.driver.ops import Op, flow, queue, worker
from conformance.fuzz.strategies.arguments import (
    REFUSED_WORKER_OPTIONS,
    TEMPLATES,
    Options,
    favoured_options,
    json_texts,
    node_options,
    repeats,
)
from conformance.fuzz.strategies.context import MAIN, NO_SUCH_JOB, OTHER, GenerationContext
from conformance.steps.shapes import PREFIX, Step, opening

QueueOpMaker = Callable[[st.DrawFn, GenerationContext], Op[Any]]
NO_SUCH_SCHEDULER = "no-such"
REFUSED = "refused"
_REFUSED_OBJECTS: st.SearchStrategy[Step] = st.sampled_from(
    (opening(REFUSED, "queue", "a:b"), *(opening(REFUSED, "worker", MAIN, **opts) for opts in REFUSED_WORKER_OPTIONS))
)
_BULKS = st.integers(1, 3)
_TEMPLATES = st.sampled_from(TEMPLATES)
_CHILD_COUNT = st.sampled_from((1, 1, 2, 2, 3, 0))
_CHILD_QUEUES = st.sampled_from((MAIN, MAIN, OTHER))
_TWELVE = st.sampled_from(range(12))
_LEVELS = st.sampled_from((1, 1, 1, 2))
_COUNTS = st.sampled_from((1000, 1, 2))
_TYPES = ("waiting", "active", "delayed", "prioritized", "completed", "failed", "waiting-children", "paused", "wait")
_TYPE_LISTS = st.sampled_from(
    (*((job_type,) for job_type in _TYPES), ("waiting", "delayed"), ("completed", "failed"), _TYPES)
)
_CLEANED: st.SearchStrategy[Any] = st.sampled_from(
    ("completed", "failed", "delayed", "wait", "active", "paused", "prioritized", "waiting")
)
_STARTS, _ENDS = st.sampled_from((0, 1, -2)), st.sampled_from((-1, 0, 1, 5))
_FLAGS = st.booleans()
_QUEUES_OPTIONS = st.sampled_from((None, None, None, {MAIN: {"attempts": 2}, OTHER: {"priority": 1}}))
_DEPTHS = st.sampled_from((10, 1, 2))


@st.composite
def adding(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """Queue.add; now and then as the child of a job that exists."""
    where = context.any_queue(draw)
    opts = _options(draw, context)
    parents = context.queue(MAIN).in_states({"waiting-children", "active", "wait"})
    if parents and draw(_TWELVE) == 11 and not opts.keys() & {"deduplication", "debounce"}:
        opts = opts | {"parent": parent_in_main(draw(st.sampled_from(parents)))}
        if draw(st.booleans()):
            # Often the child of another parent.
            opts["jobId"] = draw(
                st.sampled_from([job for job in context.queue(where).jobs if not job.isdigit()] or [""])
            )
    op = queue.Add(name=_name(draw, context), data_raw=draw(json_texts(exact=context.exact_data)), opts=opts)
    return context.producer(draw, where, op)


@st.composite
def adding_bulk(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """Queue.addBulk."""
    data = json_texts(exact=context.exact_data)
    jobs = [
        queue.NewJob(name=_name(draw, context), data_raw=draw(data), opts=_options(draw, context))
        for _ in range(draw(_BULKS))
    ]
    return context.producer(draw, context.any_queue(draw), queue.AddBulk(jobs=jobs))


def parent_in_main(job: str) -> Options:
    """The option `parent` of a child of this job."""
    return {"id": job, "queue": f"{PREFIX}:{MAIN}"}


def _name(draw: st.DrawFn, context: GenerationContext) -> str:
    return draw(st.sampled_from(context.words.names))


def _options(draw: st.DrawFn, context: GenerationContext) -> Options:
    return with_free_id(draw, context, draw(favoured_options(context.favourites, context.words)))


def with_free_id(draw: st.DrawFn, context: GenerationContext, opts: Options) -> Options:
    """The options; if the vocabulary has ids for it, often with one that no job has."""
    free = context.free_ids()
    if context.words.named and free and "jobId" not in opts and draw(st.booleans()):
        opts = opts | {"jobId": draw(st.sampled_from(free))}
    return opts


@st.composite
def adding_flow(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """FlowProducer.add, or addBulk of two."""
    if draw(_TWELVE) > 9 and context.can("flow.addBulk"):
        return draw(adding_flows(context))
    tree = _tree(draw, context, 0, draw(_LEVELS))
    if draw(_TWELVE) == 11:
        known = [*context.queue(MAIN).in_states({"waiting-children", "active"}), NO_SUCH_JOB]
        tree.opts["parent"] = parent_in_main(draw(st.sampled_from(known)))
    return context.flow(draw, flow.AddFlow(flow=tree, queues_options=draw(_QUEUES_OPTIONS)))


@st.composite
def adding_flows(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """FlowProducer.addBulk of two."""
    return context.flow(draw, flow.AddFlows(flows=[_tree(draw, context, number, 1) for number in (0, 1)]))


@st.composite
def adding_parent(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """A plain flow of two jobs: the parent waits for its child."""
    root = f"f{free_number(context)}"
    child = flow.FlowJob(name="node", queue=MAIN, opts={"jobId": f"{root}-1"})
    return context.flow(
        draw, flow.AddFlow(flow=flow.FlowJob(name="node", queue=MAIN, opts={"jobId": root}, children=[child]))
    )


def _tree(draw: st.DrawFn, context: GenerationContext, number: int, levels: int) -> flow.FlowJob:
    known = [*_orphans(context), *range(1, free_number(context))]
    again = known and number == 0 and draw(_TWELVE) > 8
    root = f"f{draw(st.sampled_from(known)) if again else free_number(context) + number}"
    return msgspec.convert(_node(draw, context, MAIN, root, levels, child=False), flow.FlowJob)


def _orphans(context: GenerationContext) -> list[int]:
    """The numbers of flows whose root no longer exists."""
    roots = context.queue(MAIN).jobs
    return [number for number in range(1, free_number(context)) if f"f{number}" not in roots]


def free_number(context: GenerationContext) -> int:
    """A number that no flow has yet; the ids of flows are `f1`, their children's `f1-1`, and so on."""
    known = [job for queue_name in (MAIN, OTHER) for job in context.queue(queue_name).jobs if job.startswith("f")]
    numbers = [int(text) for job in known if (text := job[1:].partition("-")[0]).isdigit()]
    return max(numbers, default=0) + 1


def _node(
    draw: st.DrawFn, context: GenerationContext, where: str, job_id: str, levels: int, *, child: bool
) -> dict[str, Any]:
    children = [
        _node(draw, context, draw(_CHILD_QUEUES), f"{job_id}-{number}", levels - 1, child=True)
        for number in range(1, draw(_CHILD_COUNT) + 1 if levels else 1)
    ]
    return {
        "name": _name(draw, context) if context.words.named else "node",
        "queue": where,
        "data_raw": "{}",
        "opts": draw(node_options(job_id, context.favourites, context.words, child=child)),
        "children": children,
    }


@st.composite
def scheduling(draw: st.DrawFn, context: GenerationContext, scheduler: str = "") -> list[Step]:
    """Queue.upsertJobScheduler, new or changed. `scheduler`: its id, by default one of the vocabulary."""
    template = draw(_TEMPLATES)
    op = flow.UpsertJobScheduler(
        id=scheduler or draw(st.sampled_from(context.words.schedulers)),
        repeat=draw(repeats(context.words)),
        name="tick",
        data_raw='{"t":1}',
        opts=template or None,
    )
    return context.producer(draw, MAIN, op)


def _lives(context: GenerationContext) -> st.SearchStrategy[int]:
    return st.sampled_from((*context.words.lives, 60_000))


def _deduplications(context: GenerationContext) -> st.SearchStrategy[str]:
    return st.sampled_from(context.words.deduplications)


def _schedulers(context: GenerationContext) -> st.SearchStrategy[str]:
    return st.sampled_from((*context.words.schedulers, NO_SUCH_SCHEDULER))


QUEUE_CONTROLS: dict[str, QueueOpMaker] = {
    "queue.pause": lambda _draw, _: queue.Pause(),
    "queue.resume": lambda _draw, _: queue.Resume(),
    "queue.setGlobalConcurrency": lambda draw, _: queue.SetGlobalConcurrency(concurrency=draw(st.sampled_from((1, 2)))),
    "queue.removeGlobalConcurrency": lambda _draw, _: queue.RemoveGlobalConcurrency(),
    "queue.setGlobalRateLimit": lambda draw, context: queue.SetGlobalRateLimit(
        max=draw(st.sampled_from((1, 2))), duration_ms=draw(_lives(context))
    ),
    "queue.removeGlobalRateLimit": lambda _draw, _: queue.RemoveGlobalRateLimit(),
    "queue.rateLimit": lambda draw, context: queue.SetRateLimit(expire_ms=draw(_lives(context))),
    "queue.removeRateLimitKey": lambda _draw, _: queue.RemoveRateLimitKey(),
    "queue.removeDeduplicationKey": lambda draw, context: queue.RemoveDeduplicationKey(
        id=draw(_deduplications(context))
    ),
    "queue.removeJobScheduler": lambda draw, context: flow.RemoveJobScheduler(id=draw(_schedulers(context))),
}
"""Calls that change how a queue works, by operation."""

QUEUE_MAINTENANCE: dict[str, QueueOpMaker] = {
    "queue.drain": lambda draw, _: queue.Drain(delayed=draw(_FLAGS)),
    "queue.clean": lambda draw, _: queue.Clean(
        grace_ms=draw(st.sampled_from((0, 20_000, 1))), limit=draw(st.sampled_from((0, 1, 2))), type=draw(_CLEANED)
    ),
    "queue.retryJobs": lambda draw, _: queue.RetryJobs(
        count=draw(_COUNTS),
        state=draw(st.sampled_from(("failed", "completed"))),
        timestamp=draw(st.sampled_from((None, None, 1_700_000_010_000))),
    ),
    "queue.promoteJobs": lambda draw, _: queue.PromoteJobs(count=draw(_COUNTS)),
    "queue.trimEvents": lambda draw, _: queue.TrimEvents(max_length=draw(st.sampled_from((0, 1, 5)))),
    "queue.obliterate": lambda draw, _: queue.Obliterate(force=draw(_FLAGS), count=draw(_COUNTS)),
}
"""Calls that change many jobs at once, by operation."""

QUEUE_QUESTIONS: dict[str, QueueOpMaker] = {
    "queue.getJobs": lambda draw, _: queue.GetJobs(
        types=list(draw(_TYPE_LISTS)), start=draw(_STARTS), end=draw(_ENDS), asc=draw(_FLAGS)
    ),
    "queue.getJobCounts": lambda draw, _: queue.GetJobCounts(types=list(draw(_TYPE_LISTS))),
    "queue.getJobCountByTypes": lambda draw, _: queue.GetJobCountByTypes(types=list(draw(_TYPE_LISTS))),
    "queue.count": lambda _draw, _: queue.CountPending(),
    "queue.getCountsPerPriority": lambda _draw, _: queue.GetCountsPerPriority(priorities=[0, 1, 2]),
    "queue.isPaused": lambda _draw, _: queue.IsPaused(),
    "queue.isMaxed": lambda _draw, _: queue.IsMaxed(),
    "queue.getGlobalConcurrency": lambda _draw, _: queue.GetGlobalConcurrency(),
    "queue.getGlobalRateLimit": lambda _draw, _: queue.GetGlobalRateLimit(),
    "queue.getRateLimitTtl": lambda draw, _: queue.GetRateLimitTtl(max_jobs=draw(st.sampled_from((None, 1, 2)))),
    "queue.getMetrics": lambda draw, _: queue.GetMetrics(
        type=draw(st.sampled_from(("completed", "failed"))), start=draw(_STARTS), end=draw(_ENDS)
    ),
    "queue.getDeduplicationJobId": lambda draw, context: queue.GetDeduplicationJobId(id=draw(_deduplications(context))),
    "queue.getJobScheduler": lambda draw, context: flow.GetJobScheduler(id=draw(_schedulers(context))),
    "queue.getJobSchedulers": lambda draw, _: flow.GetJobSchedulers(
        start=draw(_STARTS), end=draw(_ENDS), asc=draw(_FLAGS)
    ),
    "queue.getJobSchedulersCount": lambda _draw, _: flow.GetJobSchedulersCount(),
    "queue.getVersion": lambda _draw, _: queue.GetVersion(),
}
"""Calls that only ask about a queue, by operation."""

QUEUE_OP_WEIGHTS = {"queue.pause": 4, "queue.resume": 3, "queue.getJobs": 3, "queue.clean": 2, "queue.retryJobs": 2}
"""How often an operation is chosen, in relation to the others of its kind."""


@st.composite
def controlling(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """One change of how a queue works."""
    return _on_a_queue(draw, context, QUEUE_CONTROLS)


@st.composite
def maintaining(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """One change of many jobs."""
    return _on_a_queue(draw, context, QUEUE_MAINTENANCE)


@st.composite
def asking_about_a_queue(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """One question about a queue, or about a flow."""
    parents = context.queue(MAIN).parents
    if parents and context.can("flow.getFlow") and draw(st.sampled_from(range(8))) == 7:
        return draw(asking_about_a_flow(context))
    return _on_a_queue(draw, context, QUEUE_QUESTIONS)


@st.composite
def asking_about_a_flow(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """FlowProducer.getFlow."""
    parent = next(iter(context.queue(MAIN).parents), NO_SUCH_JOB)
    return context.flow(draw, flow.GetFlow(job=parent, queue=MAIN, depth=draw(_DEPTHS)))


@st.composite
def refused_object(draw: st.DrawFn, _: GenerationContext) -> list[Step]:
    """A queue or worker with a name or option that BullMQ refuses."""
    return [draw(_REFUSED_OBJECTS)]


@st.composite
def limiting(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """Worker.rateLimit."""
    return context.worker(draw, MAIN, worker.WorkerRateLimit(expire_ms=draw(_lives(context))))


def _on_a_queue(draw: st.DrawFn, context: GenerationContext, makers: dict[str, QueueOpMaker]) -> list[Step]:
    declared = [name for name in makers if context.can(name)]
    name = draw(st.sampled_from([name for name in declared for _ in range(QUEUE_OP_WEIGHTS.get(name, 1))]))
    op = makers[name](draw, context)
    return context.producer(draw, context.any_queue(draw), op)
