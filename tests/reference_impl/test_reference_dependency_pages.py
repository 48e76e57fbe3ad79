"""Children of a parent in pages, as the reference client and real BullMQ return them; no driver operation does."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Any

import pytest

from conformance.reference_impl.flow_producer import FlowProducer
from conformance.reference_impl.option_types import FlowJob
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.reference_impl.workers.worker import Worker
from conformance.servers import RedisInstance
from conformance.upstream.node import find_node
from conformance.upstream.package import ensure_package

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
