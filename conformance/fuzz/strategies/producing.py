"""Steps of producers: adding jobs, bulks, flows and schedulers."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from conformance.driver.ops import flow, queue
from conformance.fuzz.scene import MAIN, OTHER, Scene
from conformance.fuzz.sides import PREFIX
from conformance.fuzz.steps import Step
from conformance.fuzz.strategies.json_texts import json_texts
from conformance.fuzz.strategies.options import REPEATS, TEMPLATES, favoured_options, node_options

_NAMES = st.sampled_from(("job",) * 6 + ("é\U0001f389", "", "a:b", "x" * 200, "__proto__", "0"))
_BULKS = st.integers(1, 3)
_REPEATS, _TEMPLATES = st.sampled_from(REPEATS), st.sampled_from(TEMPLATES)
_SCHEDULERS = st.sampled_from(("s1", "s2"))
_CHILD_COUNT = st.sampled_from((1, 1, 2, 2, 3, 0))
_CHILD_QUEUES = st.sampled_from((MAIN, MAIN, OTHER))
_ODDS = st.sampled_from(range(12))
_LEVELS = st.sampled_from((1, 1, 1, 2))


@st.composite
def adding(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """Queue.add; now and then as the child of a job that exists."""
    where = scene.any_queue(draw)
    opts = draw(favoured_options(scene.favourites))
    parents = scene.queue(MAIN).in_states({"waiting-children", "active", "wait"})
    if parents and draw(_ODDS) == 11 and not opts.keys() & {"deduplication", "debounce"}:
        opts = opts | {"parent": {"id": draw(st.sampled_from(parents)), "queue": f"{PREFIX}:{MAIN}"}}
    op = queue.Add(name=draw(_NAMES), data_raw=draw(json_texts(exact=scene.exact_data)), opts=opts)
    return scene.producer(draw, where, op)


@st.composite
def adding_bulk(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """Queue.addBulk."""
    data, options = json_texts(exact=scene.exact_data), favoured_options(scene.favourites)
    jobs = [queue.NewJob(name=draw(_NAMES), data_raw=draw(data), opts=draw(options)) for _ in range(draw(_BULKS))]
    return scene.producer(draw, scene.any_queue(draw), queue.AddBulk(jobs=jobs))


@st.composite
def adding_flow(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """FlowProducer.add, or addBulk of two."""
    if draw(_ODDS) > 9 and scene.can("flow.addBulk"):
        return draw(adding_flows(scene))
    return scene.flow(draw, flow.AddFlow(flow=_tree(draw, scene, 0, draw(_LEVELS))))


@st.composite
def adding_flows(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """FlowProducer.addBulk of two."""
    return scene.flow(draw, flow.AddFlows(flows=[_tree(draw, scene, number, 1) for number in (0, 1)]))


@st.composite
def adding_parent(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """A plain flow of two jobs: the parent waits for its child."""
    root = f"f{_free_number(scene)}"
    child = flow.FlowJob(name="node", queue=MAIN, opts={"jobId": f"{root}-1"})
    return scene.flow(
        draw, flow.AddFlow(flow=flow.FlowJob(name="node", queue=MAIN, opts={"jobId": root}, children=[child]))
    )


def _tree(draw: st.DrawFn, scene: Scene, number: int, levels: int) -> flow.FlowJob:
    root = f"f{_free_number(scene) + number}"
    return msgspec.convert(_node(draw, scene, MAIN, root, levels, child=False), flow.FlowJob)


def _free_number(scene: Scene) -> int:
    """A number that no flow of the world has; the ids of flows are `f1`, their children's `f1-1`, and so on."""
    known = [job for queue_name in (MAIN, OTHER) for job in scene.queue(queue_name).jobs if job.startswith("f")]
    numbers = [int(text) for job in known if (text := job[1:].partition("-")[0]).isdigit()]
    return max(numbers, default=0) + 1


def _node(draw: st.DrawFn, scene: Scene, where: str, job_id: str, levels: int, *, child: bool) -> dict[str, Any]:
    children = [
        _node(draw, scene, draw(_CHILD_QUEUES), f"{job_id}-{number}", levels - 1, child=True)
        for number in range(1, draw(_CHILD_COUNT) + 1 if levels else 1)
    ]
    return {
        "name": "node",
        "queue": where,
        "data_raw": "{}",
        "opts": draw(node_options(job_id, scene.favourites, child=child)),
        "children": children,
    }


@st.composite
def scheduling(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """Queue.upsertJobScheduler, new or changed."""
    template = draw(_TEMPLATES)
    op = flow.UpsertJobScheduler(
        id=draw(_SCHEDULERS), repeat=draw(_REPEATS), name="tick", data_raw='{"t":1}', opts=template or None
    )
    return scene.producer(draw, MAIN, op)
