"""Repeat keys, which came before job schedulers: methods that the driver protocol has no operations for."""

from __future__ import annotations

import asyncio
import json
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance.reference_impl.clock import AdjustableClock
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.recurrence import SchedulerRecord
from conformance.upstream.node import find_node
from conformance.upstream.package import ensure_package
from tests.reference_impl.conftest import state_of

if TYPE_CHECKING:
    from conformance.reference_impl.scripts.runner import ScriptTexts
    from conformance.servers import RedisInstance

ORACLE = Path(__file__).parent / "repeat_oracle.mjs"
NOW = 1_700_000_000_000
SHOWN = ("key", "name", "endDate", "tz", "pattern", "every", "next")
"""The fields of a repeat key that Node.js returns."""

Call = list[Any]
EVERY = {"every": 5000}
DAILY = {"pattern": "0 3 * * *", "tz": "Europe/Berlin", "endDate": "2031-01-01T00:00:00Z"}
ADD: list[Call] = [
    ["add", "tick", {"id": "x"}, {"repeat": EVERY}],
    ["add", "tick", {}, {"repeat": EVERY, "jobId": "own"}],
    ["add", "daily", {}, {"repeat": DAILY}],
    ["add", "keyed", {}, {"repeat": {**EVERY, "key": "mine"}}],
    ["add", "old", {"id": 7}, {"repeat": {**EVERY, "key": "old:own:::5000"}}],
]
LOOK: list[Call] = [["getRepeatableJobs", 0, -1, True], ["getRepeatableJobs", 1, 2, False], ["getRepeatableJobs"]]

STORIES: dict[str, list[Call]] = {
    "add": [*ADD, *LOOK],
    "add-again": [*ADD, *ADD, *LOOK],
    "remove": [*ADD, ["removeRepeatable", "tick", EVERY], ["removeRepeatable", "daily", DAILY], *LOOK],
    "remove-by-job-id": [*ADD, ["removeRepeatable", "tick", EVERY, "own"], *LOOK],
    "remove-by-own-key": [*ADD, ["removeRepeatable", "keyed", {**EVERY, "key": "mine"}], *LOOK],
    "remove-what-is-not-there": [
        *ADD,
        ["removeRepeatable", "other", EVERY],
        ["removeRepeatable", "tick", DAILY],
        *LOOK,
    ],
    "remove-by-key": [*ADD, ["removeRepeatableByKey", "mine"], ["removeRepeatableByKey", "nobody"], *LOOK],
    "remove-by-old-key": [*ADD, ["removeRepeatableByKey", "old:own:::5000"], *LOOK],
    "scheduler-among-them": [*ADD, ["removeJobScheduler", "mine"], *LOOK],
}


def results_of_node(server: RedisInstance, prefix: str, calls: list[Call]) -> list[Any]:
    node = find_node(None)
    root = ensure_package(node, announce=print).root
    port = int(server.nodes[0].rpartition(":")[2])
    request = {"port": port, "prefix": prefix, "now": NOW, "calls": calls}
    command = [str(node.path), str(ORACLE), str(root), json.dumps(request)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    answers: list[Any] = json.loads(found.stdout)
    return answers


async def results_of_reference(options: dict[str, Any], scripts: ScriptTexts, calls: list[Call]) -> list[Any]:
    clock = AdjustableClock()
    clock.stop_at(NOW)
    queue = Queue("q", options, scripts=scripts, clock=clock)
    try:
        async with asyncio.timeout(15):
            return [_shown(await getattr(queue, method)(*given)) for method, *given in calls]
    finally:
        await queue.close()


def _shown(answer: Any) -> Any:
    if isinstance(answer, Job):
        return answer.id
    if isinstance(answer, SchedulerRecord):
        shown = {name: value for name, value in asdict(answer).items() if name in SHOWN}
        return {**shown, "every": None if shown["every"] is None else str(shown["every"])}
    return [_shown(record) for record in answer] if isinstance(answer, list) else answer


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
def test_repeat_keys(
    name: str,
    server: RedisInstance,
    connection: dict[str, Any],
    scripts: ScriptTexts,
    prefix: str,
) -> None:
    theirs, ours = f"{prefix}:node", f"{prefix}:own"
    expected = results_of_node(server, theirs, STORIES[name])
    options = {"connection": connection, "prefix": ours}
    assert asyncio.run(results_of_reference(options, scripts, STORIES[name])) == expected
    assert state_of(server, ours) == state_of(server, theirs)


def test_options_that_allow_no_iteration_are_refused(
    connection: dict[str, Any], prefix: str, scripts: ScriptTexts
) -> None:
    calls = [["add", "never", {}, {"repeat": {"every": 1000, "limit": 0}}]]
    with pytest.raises(InvalidArgument, match="allow no iteration"):
        asyncio.run(results_of_reference({"connection": connection, "prefix": prefix}, scripts, calls))


def test_a_strategy_of_ones_own(connection: dict[str, Any], prefix: str, scripts: ScriptTexts) -> None:
    async def strategy(after: int, repeat: dict[str, Any], name: str) -> int:
        assert (repeat["pattern"], name) == ("whenever", "own")
        return after + 1234

    options = {"connection": connection, "prefix": prefix, "settings": {"repeatStrategy": strategy}}
    calls = [
        ["add", "own", {}, {"repeat": {"pattern": "whenever", "key": "k"}}],
        ["upsertJobScheduler", "s", {"pattern": "whenever"}, {"name": "own"}],
    ]
    assert asyncio.run(results_of_reference(options, scripts, calls)) == [f"repeat:{key}:{NOW + 1234}" for key in "ks"]
