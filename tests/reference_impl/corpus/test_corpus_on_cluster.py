"""The reference on a cluster of three primaries: unchanged with a hash tag in the prefix, a clear error without one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.exceptions import ClusterCrossSlotError, ResponseError

from conformance.driver.errors import OperationFailed
from conformance.driver.ops import lifecycle
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.driver.ops.queue import Add
from conformance.reference_impl.connection.connection import CrossSlot, cross_slot, with_slots_explained
from conformance.reference_impl.flow_producer import FlowProducer
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.reference_impl.workers.worker import Worker
from conformance.servers import RedisInstance
from tests.reference_impl.corpus.all_cases import CASES, cases_for_every_operation, operations
from tests.reference_impl.corpus.client_runs import CaseRunner
from tests.reference_impl.corpus.comparison import compare_answers, compare_snapshots

STANDALONE_ONLY = {"limit-workers-by-name"}
"""BullMQ 5.62.0 does not name connections to a cluster, so getWorkers does not list the workers."""

CHOSEN = cases_for_every_operation(name for name in CASES if name not in STANDALONE_ONLY)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOSEN)
def test_a_cluster_makes_no_difference(name: str, reference: CaseRunner, reference_on_cluster: CaseRunner) -> None:
    case = CASES[name]
    alone, spread = reference.run(case), reference_on_cluster.run(case)
    assert compare_answers(alone.answers, spread.answers) == []
    assert compare_snapshots(alone.snapshot, spread.snapshot, case.context) == []


def test_every_operation_was_among_them() -> None:
    missing = set().union(*map(operations, CASES.values())) - set().union(*(operations(CASES[name]) for name in CHOSEN))
    assert missing == {"queue.getWorkers", "queue.getWorkersCount"}


Do = Callable[[Queue, Worker, FlowProducer], Awaitable[Any]]

WITHOUT_TAG: dict[str, Do] = {
    "add": lambda queue, *_: queue.add("job", {}),
    "bulk": lambda queue, *_: queue.addBulk([{"name": "a"}, {"name": "b", "opts": {"delay": 5}}]),
    "pause": lambda queue, *_: queue.pause(),
    "counts": lambda queue, *_: queue.getJobCounts(),
    "jobs": lambda queue, *_: queue.getJobs(["waiting", "completed"]),
    "drain": lambda queue, *_: queue.drain(),
    "obliterate": lambda queue, *_: queue.obliterate(),
    "schedule": lambda queue, *_: queue.upsertJobScheduler("s", {"every": 1000}),
    "fetch": lambda _queue, worker, _flows: worker.getNextJob("t", {"block": False}),
    "flow": lambda _queue, _worker, flows: flows.add(
        {"name": "p", "queueName": "q", "children": [{"name": "c", "queueName": "r"}]}
    ),
}


@pytest.mark.parametrize("what", WITHOUT_TAG)
def test_without_a_hash_tag_the_error_says_what_to_do(what: str, cluster: RedisInstance, scripts: ScriptTexts) -> None:
    async def attempt() -> None:
        opts: dict[str, Any] = {"connection": {"mode": "cluster", "nodes": list(cluster.nodes)}, "prefix": "untagged"}
        queue, worker = Queue("q", opts, scripts=scripts), Worker("q", None, opts, scripts=scripts)
        flows = FlowProducer(opts, scripts=scripts)
        try:
            with pytest.raises(CrossSlot, match=r"CROSSSLOT.*hash tag.*\{bull\}"):
                await WITHOUT_TAG[what](queue, worker, flows)
        finally:
            for client in (queue, worker, flows):
                await client.close()

    asyncio.run(attempt())
    cluster.remove_prefix("untagged")


def test_other_errors_stay_as_they_are() -> None:
    assert cross_slot(ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")) is None
    known = ClusterCrossSlotError("Keys in request don't hash to the same slot")
    other = ResponseError("OOM command not allowed")
    explained, kept, reply = with_slots_explained([known, other, b"OK"])
    assert isinstance(explained, CrossSlot)
    assert (kept, reply) == (other, b"OK")


def test_the_driver_says_it_too(reference_on_cluster: CaseRunner, cluster: RedisInstance) -> None:
    driver = reference_on_cluster.driver
    address = RedisAddress(mode="cluster", nodes=list(cluster.nodes))
    driver.call(lifecycle.Open(role="queue", queue="q", prefix="untagged", redis=address), handle="untagged")
    with pytest.raises(OperationFailed, match=r"CROSSSLOT.*\{bull\}"):
        driver.call(Add(name="job"), handle="untagged")
    driver.call(lifecycle.Reset())
    cluster.remove_prefix("untagged")
