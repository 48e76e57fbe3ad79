"""Flows by the reference client and by real BullMQ: same trees, same clock, same answers, same bytes in Redis."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.reference_impl.conftest import Compare, Side

FAILURE_OPTIONS = (
    "none",
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
)


def node(name: str, *children: dict[str, Any], queue: str = "q", **opts: Any) -> dict[str, Any]:
    """A job of a flow whose id is its name, so that both clients give the same one."""
    opts = {"jobId": name, **opts}
    return {"name": name, "queue": queue, "data_raw": json.dumps(name), "opts": opts, "children": list(children)}


def open_all(side: Side) -> None:
    side.open("f", "flow", queue="")
    side.open("q", "queue")
    side.open("w", "worker", processor="manual")


def get_flow(side: Side, job: str, **limits: int) -> Any:
    """FlowProducer.getFlow; Redis scans children in an order of its own, which is no answer of the client."""
    answer = side.do("flow.getFlow", "f", job=job, queue="q", **limits)
    side.answers[-1] = ["flow.getFlow", in_order(answer["flow"])]
    return answer["flow"]


def get_dependencies(side: Side, job: str) -> None:
    """Job.getDependencies; a set has no order."""
    answer = side.do("job.getDependencies", job=job)
    side.answers[-1][1]["unprocessed"] = sorted(side.answers[-1][1]["unprocessed"])
    assert set(answer) == {"processed", "unprocessed", "ignored", "failed"}


def in_order(flow: Any) -> Any:
    if flow is None:
        return None
    return {**flow, "children": sorted(map(in_order, flow["children"]), key=lambda child: str(child["id"]))}


def finish(side: Side, *jobs: str, fail: bool = False, message: str = "boom") -> None:
    """Claim and end jobs in the order in which they come."""
    for job in jobs:
        claimed = side.do("worker.getNextJob", "w", token="t")
        assert claimed["job"]["id"] == job, claimed
        if fail:
            side.do("worker.moveToFailed", "w", job=job, token="t", message=message)
        else:
            side.do("worker.moveToCompleted", "w", job=job, token="t", value_raw=f'{{"of":"{job}"}}')


def test_a_tree_is_stored_level_by_level(compare: Compare) -> None:
    def story(side: Side) -> None:
        open_all(side)
        tree = node(
            "root",
            node("a", node("a1"), node("a2", node("a21", queue="other"), priority=3)),
            node("b", delay=5000),
            node("c", node("c1", lifo=True), node("c2"), attempts=2, backoff=100),
            priority=5,
        )
        side.do("flow.add", "f", flow=tree)
        side.do(
            "flow.addBulk",
            "f",
            flows=[node("x", node("x1"), node("x2", node("x21"))), node("y"), node("z", node("z1"))],
        )
        for job in ("root", "x", "y", "nothing"):
            get_flow(side, job)
        for depth in (1, 2, 3):
            get_flow(side, "root", depth=depth)
        side.do("queue.getJobs", types=["waiting-children", "waiting", "prioritized", "delayed"])

    state = compare(story).state()
    assert state["P:q:root:dependencies"][1] == ["P:q:a", "P:q:b", "P:q:c"]


@pytest.mark.parametrize(
    "opts",
    [
        {"deduplication": {"id": "d"}},
        {"telemetry": {"metadata": "trace", "omitContext": True}},
        {"removeOnComplete": True, "timestamp": 1234567890123, "keepLogs": 3},
        {"delay": 100, "priority": 2},
    ],
    ids="-".join,
)
def test_options_of_parents_and_children(opts: dict[str, Any], compare: Compare) -> None:
    def story(side: Side) -> None:
        open_all(side)
        side.do("flow.add", "f", flow=node("p", node("c", **opts), **opts))
        side.do("flow.add", "f", flow=node("p2", node("c2", **opts), **opts))
        side.do("queue.getJob", job="c")

    compare(story)


def test_children_values_reach_the_parent(compare: Compare) -> None:
    def story(side: Side) -> None:
        open_all(side)
        side.do("flow.add", "f", flow=node("p", node("a"), node("b", removeOnComplete=True)))
        finish(side, "a")
        side.do("job.getState", job="p")
        finish(side, "b")
        side.do("job.getState", job="p")
        side.do("job.getChildrenValues", job="p")
        get_dependencies(side, "p")
        side.do("job.getDependenciesCount", job="p")
        get_flow(side, "p")
        finish(side, "p")

    compare(story)


@pytest.mark.parametrize("place", [{}, {"delay": 500}, {"priority": 4}, {"lifo": True}], ids=str)
def test_a_released_parent_goes_where_its_options_say(place: dict[str, Any], compare: Compare) -> None:
    def story(side: Side) -> None:
        open_all(side)
        side.do("flow.add", "f", flow=node("p", node("c"), **place))
        side.do("queue.add", name="bystander")
        finish(side, "c")
        side.do("job.getState", job="p")

    compare(story)


@pytest.mark.parametrize("option", FAILURE_OPTIONS)
def test_a_child_that_fails(option: str, compare: Compare) -> None:
    chosen: dict[str, Any] = {} if option == "none" else {option: True}

    def story(side: Side) -> None:
        open_all(side)
        side.do("flow.add", "f", flow=node("top", node("p", node("bad", **chosen), node("good"), **chosen)))
        finish(side, "bad", fail=True)
        for job in ("p", "top"):
            side.do("job.getState", job=job)
            get_dependencies(side, job)
            side.do("job.getIgnoredChildrenFailures", job=job)
        side.do("worker.getNextJob", "w", token="t")
        side.do("worker.moveToCompleted", "w", job="good", token="t", fetch_next=True)
        side.do("worker.moveToCompleted", "w", job="p", token="t", fetch_next=True)
        side.do("job.getDependenciesCount", job="p")

    compare(story)


@pytest.mark.parametrize("option", FAILURE_OPTIONS)
def test_a_managed_worker_carries_a_failure_up(option: str, compare: Compare) -> None:
    chosen: dict[str, Any] = {} if option == "none" else {option: True}

    def story(side: Side) -> None:
        side.open("f", "flow", queue="")
        side.do("flow.add", "f", flow=node("top", node("middle", node("bad", queue="low", **chosen), **chosen)))
        side.open("low", "worker", queue="low", processor="throw", processor_args={"message": "no"})
        side.wait("low", "failed")
        side.wait_until_idle("low")
        side.open("w", "worker", processor="noop")
        side.wait("w", "drained")
        side.wait_until_idle()
        for handle in ("low", "w"):
            side.do("close", handle)

    compare(story)


@pytest.mark.parametrize("children", [True, False])
def test_removing_parts_of_a_flow(children: bool, compare: Compare) -> None:
    def story(side: Side) -> None:
        open_all(side)
        side.do("flow.add", "f", flow=node("p", node("a", node("a1")), node("b"), node("c")))
        finish(side, "b")
        side.do("job.remove", job="a", remove_children=children)
        side.do("job.getState", job="p")
        side.do("job.removeChildDependency", job="c")
        side.do("job.getState", job="p")
        side.do("queue.remove", job="p", remove_children=children)
        side.do("queue.getJobCounts", types=[])

    compare(story)


def test_unprocessed_children_are_removed(compare: Compare) -> None:
    def story(side: Side) -> None:
        open_all(side)
        side.do("flow.add", "f", flow=node("p", node("a"), node("b", node("b1"))))
        side.do("worker.getNextJob", "w", token="t")
        side.do("job.removeUnprocessedChildren", job="p")
        get_dependencies(side, "p")
        side.do("worker.moveToCompleted", "w", job="a", token="t")
        side.do("job.getState", job="p")

    compare(story)


def test_a_locked_child_protects_its_parent(compare: Compare) -> None:
    def story(side: Side) -> None:
        open_all(side)
        side.do("flow.add", "f", flow=node("p", node("a")))
        side.do("worker.getNextJob", "w", token="t")
        side.do("queue.remove", job="p")
        side.do("job.remove", job="p")

    compare(story)


def test_a_flow_hangs_below_a_job_that_exists(compare: Compare) -> None:
    def story(side: Side) -> None:
        open_all(side)
        parent = {"id": "1", "queue": f"{side.prefix}:q"}
        side.do("queue.add", name="outside")
        side.do("worker.getNextJob", "w", token="t")
        side.do("flow.add", "f", flow=node("sub", node("leaf"), parent=parent))
        side.do("worker.moveToWaitingChildren", "w", job="1", token="t")
        finish(side, "leaf", "sub", "1")

    compare(story)


def test_refusals_by_redis_go_unnoticed(compare: Compare) -> None:
    def story(side: Side) -> None:
        open_all(side)
        side.do("flow.add", "f", flow=node("lost", node("found"), parent={"id": "404", "queue": f"{side.prefix}:q"}))
        side.do("flow.add", "f", flow=node("first", node("child")))
        side.do("flow.add", "f", flow=node("second", node("child")))
        side.do("flow.add", "f", flow=node("first", node("child")))

    state = compare(story).state()
    assert "P:q:lost" not in state


@pytest.mark.parametrize(
    "opts",
    [
        {"priority": 1.5},
        {"jobId": "7"},
        {"deduplication": {}},
        {"failParentOnFailure": True, "continueParentOnFailure": True},
    ],
    ids=str,
)
def test_one_invalid_job_refuses_the_whole_flow(opts: dict[str, Any], compare: Compare) -> None:
    def story(side: Side) -> None:
        open_all(side)
        side.do("flow.add", "f", flow=node("p", node("good"), node("q", node("bad", **opts))))
        side.do("flow.addBulk", "f", flows=[node("fine"), node("bad", **opts)])
        side.do("queue.getJobCounts", types=[])

    compare(story)


def test_a_deep_tree(compare: Compare) -> None:
    depth = 60

    def story(side: Side) -> None:
        open_all(side)
        tree = node(f"n{depth}")
        for level in reversed(range(depth)):
            tree = node(f"n{level}", tree)
        side.do("flow.add", "f", flow=tree)
        get_flow(side, "n0", depth=100)
        finish(side, *(f"n{level}" for level in reversed(range(depth + 1))))

    compare(story)


def test_children_with_many_pages(compare: Compare) -> None:
    def story(side: Side) -> None:
        open_all(side)
        side.do("flow.add", "f", flow=node("p", *(node(f"c{number}") for number in range(150))))
        found = get_flow(side, "p", max_children=10)["children"]
        assert 10 <= len(found) < 150, len(found)
        side.answers.pop()

    compare(story)
