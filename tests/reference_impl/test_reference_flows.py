"""Flows by the reference client and by real BullMQ: same trees, same pages, same answers, same bytes in Redis."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from conformance.reference_impl.flow_producer import FlowProducer
from conformance.reference_impl.option_types import FlowJob
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.reference_impl.workers.worker import Worker
from conformance.servers import RedisInstance
from conformance.upstream.node import find_node
from conformance.upstream.package import ensure_package

if TYPE_CHECKING:
    from tests.reference_impl.conftest import Compare, ComparedClient


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


def open_all(client: ComparedClient) -> None:
    client.open("f", "flow", queue="")
    client.open("q", "queue")
    client.open("w", "worker", processor="manual")


def get_flow(client: ComparedClient, job: str, **limits: int) -> Any:
    """FlowProducer.getFlow; Redis scans children in an undefined order, so the result is sorted."""
    answer = client.do("flow.getFlow", "f", job=job, queue="q", **limits)
    client.answers[-1] = ["flow.getFlow", in_order(answer["flow"])]
    return answer["flow"]


def get_dependencies(client: ComparedClient, job: str) -> None:
    """Job.getDependencies; a set has no order."""
    answer = client.do("job.getDependencies", job=job)
    client.answers[-1][1]["unprocessed"] = sorted(client.answers[-1][1]["unprocessed"])
    assert set(answer) == {"processed", "unprocessed", "ignored", "failed"}


def in_order(flow: Any) -> Any:
    if flow is None:
        return None
    return {**flow, "children": sorted(map(in_order, flow["children"]), key=lambda child: str(child["id"]))}


def finish(client: ComparedClient, *jobs: str, fail: bool = False, message: str = "boom") -> None:
    """Claim and end jobs in the order in which they come."""
    for job in jobs:
        claimed = client.do("worker.getNextJob", "w", token="t")
        assert claimed["job"]["id"] == job, claimed
        if fail:
            client.do("worker.moveToFailed", "w", job=job, token="t", message=message)
        else:
            client.do("worker.moveToCompleted", "w", job=job, token="t", value_raw=f'{{"of":"{job}"}}')


def test_a_tree_is_stored_level_by_level(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        tree = node(
            "root",
            node("a", node("a1"), node("a2", node("a21", queue="other"), priority=3)),
            node("b", delay=5000),
            node("c", node("c1", lifo=True), node("c2"), attempts=2, backoff=100),
            priority=5,
        )
        client.do("flow.add", "f", flow=tree)
        client.do(
            "flow.addBulk",
            "f",
            flows=[node("x", node("x1"), node("x2", node("x21"))), node("y"), node("z", node("z1"))],
        )
        for job in ("root", "x", "y", "nothing"):
            get_flow(client, job)
        for depth in (1, 2, 3):
            get_flow(client, "root", depth=depth)
        client.do("queue.getJobs", types=["waiting-children", "waiting", "prioritized", "delayed"])

    state = compare(steps).state()
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
    def steps(client: ComparedClient) -> None:
        open_all(client)
        client.do("flow.add", "f", flow=node("p", node("c", **opts), **opts))
        client.do("flow.add", "f", flow=node("p2", node("c2", **opts), **opts))
        client.do("queue.getJob", job="c")

    compare(steps)


def test_children_values_reach_the_parent(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        client.do("flow.add", "f", flow=node("p", node("a"), node("b", removeOnComplete=True)))
        finish(client, "a")
        client.do("job.getState", job="p")
        finish(client, "b")
        client.do("job.getState", job="p")
        client.do("job.getChildrenValues", job="p")
        get_dependencies(client, "p")
        client.do("job.getDependenciesCount", job="p")
        get_flow(client, "p")
        finish(client, "p")

    compare(steps)


@pytest.mark.parametrize("place", [{}, {"delay": 500}, {"priority": 4}, {"lifo": True}], ids=str)
def test_a_released_parent_goes_where_its_options_say(place: dict[str, Any], compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        client.do("flow.add", "f", flow=node("p", node("c"), **place))
        client.do("queue.add", name="bystander")
        finish(client, "c")
        client.do("job.getState", job="p")

    compare(steps)


@pytest.mark.parametrize("option", FAILURE_OPTIONS)
def test_a_child_that_fails(option: str, compare: Compare) -> None:
    chosen: dict[str, Any] = {} if option == "none" else {option: True}

    def steps(client: ComparedClient) -> None:
        open_all(client)
        client.do("flow.add", "f", flow=node("top", node("p", node("bad", **chosen), node("good"), **chosen)))
        finish(client, "bad", fail=True)
        for job in ("p", "top"):
            client.do("job.getState", job=job)
            get_dependencies(client, job)
            client.do("job.getIgnoredChildrenFailures", job=job)
        client.do("worker.getNextJob", "w", token="t")
        client.do("worker.moveToCompleted", "w", job="good", token="t", fetch_next=True)
        client.do("worker.moveToCompleted", "w", job="p", token="t", fetch_next=True)
        client.do("job.getDependenciesCount", job="p")

    compare(steps)


@pytest.mark.parametrize("option", FAILURE_OPTIONS)
def test_a_managed_worker_carries_a_failure_up(option: str, compare: Compare) -> None:
    chosen: dict[str, Any] = {} if option == "none" else {option: True}

    def steps(client: ComparedClient) -> None:
        client.open("f", "flow", queue="")
        client.do("flow.add", "f", flow=node("top", node("middle", node("bad", queue="low", **chosen), **chosen)))
        client.open("low", "worker", queue="low", processor="throw", processor_args={"message": "no"})
        client.wait("low", "failed")
        client.wait_until_idle("low")
        client.open("w", "worker", processor="noop")
        client.wait("w", "drained")
        client.wait_until_idle()
        for handle in ("low", "w"):
            client.do("close", handle)

    compare(steps)


@pytest.mark.parametrize("children", [True, False])
def test_removing_parts_of_a_flow(children: bool, compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        client.do("flow.add", "f", flow=node("p", node("a", node("a1")), node("b"), node("c")))
        finish(client, "b")
        client.do("job.remove", job="a", remove_children=children)
        client.do("job.getState", job="p")
        client.do("job.removeChildDependency", job="c")
        client.do("job.getState", job="p")
        client.do("queue.remove", job="p", remove_children=children)
        client.do("queue.getJobCounts", types=[])

    compare(steps)


def test_unprocessed_children_are_removed(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        client.do("flow.add", "f", flow=node("p", node("a"), node("b", node("b1"))))
        client.do("worker.getNextJob", "w", token="t")
        client.do("job.removeUnprocessedChildren", job="p")
        get_dependencies(client, "p")
        client.do("worker.moveToCompleted", "w", job="a", token="t")
        client.do("job.getState", job="p")

    compare(steps)


def test_a_locked_child_protects_its_parent(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        client.do("flow.add", "f", flow=node("p", node("a")))
        client.do("worker.getNextJob", "w", token="t")
        client.do("queue.remove", job="p")
        client.do("job.remove", job="p")

    compare(steps)


def test_a_flow_hangs_below_a_job_that_exists(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        parent = {"id": "1", "queue": f"{client.prefix}:q"}
        client.do("queue.add", name="outside")
        client.do("worker.getNextJob", "w", token="t")
        client.do("flow.add", "f", flow=node("sub", node("leaf"), parent=parent))
        client.do("worker.moveToWaitingChildren", "w", job="1", token="t")
        finish(client, "leaf", "sub", "1")

    compare(steps)


def test_refusals_by_redis_go_unnoticed(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        client.do(
            "flow.add", "f", flow=node("lost", node("found"), parent={"id": "404", "queue": f"{client.prefix}:q"})
        )
        client.do("flow.add", "f", flow=node("first", node("child")))
        client.do("flow.add", "f", flow=node("second", node("child")))
        client.do("flow.add", "f", flow=node("first", node("child")))

    state = compare(steps).state()
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
    def steps(client: ComparedClient) -> None:
        open_all(client)
        client.do("flow.add", "f", flow=node("p", node("good"), node("q", node("bad", **opts))))
        client.do("flow.addBulk", "f", flows=[node("fine"), node("bad", **opts)])
        client.do("queue.getJobCounts", types=[])

    compare(steps)


def test_a_deep_tree(compare: Compare) -> None:
    depth = 60

    def steps(client: ComparedClient) -> None:
        open_all(client)
        tree = node(f"n{depth}")
        for level in reversed(range(depth)):
            tree = node(f"n{level}", tree)
        client.do("flow.add", "f", flow=tree)
        get_flow(client, "n0", depth=100)
        finish(client, *(f"n{level}" for level in reversed(range(depth + 1))))

    compare(steps)


def test_children_with_many_pages(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        open_all(client)
        client.do("flow.add", "f", flow=node("p", *(node(f"c{number}") for number in range(150))))
        found = get_flow(client, "p", max_children=10)["children"]
        assert 10 <= len(found) < 150, len(found)
        client.answers.pop()

    compare(steps)


CHILDREN = 30
ASK_NODE = """
const { createRequire } = require('node:module');
const [modules, host, port, prefix, ...call] = process.argv.slice(1);
const { Queue } = createRequire(modules + '/x.js')('bullmq');
const queue = new Queue('q', { connection: { host, port: Number(port) }, prefix, skipMetasUpdate: true });
queue.getDependencies(call[0], call[1], Number(call[2]), Number(call[3])).then(answer => {
  process.stdout.write(JSON.stringify(answer));
  process.exit(0);
});
"""


def ask_node(server: RedisInstance, prefix: str, *call: object) -> dict[str, Any]:
    node = find_node()
    package = ensure_package(node, announce=print)
    host, port = server.nodes[0].rsplit(":", 1)
    command = [str(node.path), "-e", ASK_NODE, str(package.root), host, port, prefix, *map(str, call)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def page_in_order(answer: dict[str, Any]) -> dict[str, Any]:
    """Redis gives the elements of a set or hash in no order."""
    items = sorted(answer["items"], key=lambda item: item["id"])
    return {**answer, "items": items, "jobs": sorted(answer["jobs"], key=lambda job: job["name"])}


@pytest.mark.parametrize("kind", ["pending", "processed"])
@pytest.mark.parametrize("page", [(0, -1), (0, 4), (CHILDREN, CHILDREN + 5)], ids=str)
def test_children_are_paged_like_in_node(
    server: RedisInstance,
    prefix: str,
    *,
    connection: dict[str, Any],
    scripts: ScriptTexts,
    kind: Any,
    page: tuple[int, int],
) -> None:
    async def steps() -> dict[str, Any]:
        opts: dict[str, Any] = {"connection": connection, "prefix": prefix}
        flow, queue = FlowProducer(opts, scripts=scripts), Queue("q", opts, scripts=scripts)
        worker = Worker("q", None, {**opts, "autorun": False}, scripts=scripts)
        children: list[FlowJob] = [
            {"name": f"child {number:02}", "queueName": "q", "data": {}} for number in range(CHILDREN)
        ]
        await flow.add({"name": "parent", "queueName": "q", "opts": {"jobId": "parent"}, "children": children})
        for number in range(CHILDREN // 2):
            job = await worker.getNextJob("token")
            assert job is not None
            await job.moveToCompleted({"n": number}, "token", False)
        answer = await queue.getDependencies("parent", kind, *page)
        await asyncio.gather(flow.close(), queue.close(), worker.close(force=True))
        return answer

    ours = asyncio.run(steps())
    theirs = ask_node(server, prefix, "parent", kind, *page)
    assert ours["total"] == theirs["total"] == CHILDREN // 2
    if page == (0, -1):
        assert page_in_order(ours) == page_in_order(theirs)
    else:
        assert len(ours["items"]) == len(theirs["items"])
