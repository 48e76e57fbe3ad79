"""Area cluster: keys with braces share one slot, keys without are refused, and flows stay inside one slot."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.driver.errors import OperationFailed
from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import Mismatch, equal, holds
from conformance.participants.handles import FlowHandle, QueueHandle
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.operation_groups import EXERCISED_SCRIPTS, exercise_every_script
from conformance.scenarios.support.steps import HOUR_MS, node

NOT_THERE = "Script attempted to access a non local key"
"""What Redis says of a key in another slot that a script builds itself."""

SPREAD_ON_PURPOSE = {"one-slot": "the scenario uses keys of many slots, to see that they are refused"}


@pytest.mark.parametrize("tag", ["prefix", "name"])
@scenario("cluster.tagged-works", needs="cluster", slow=True)
def test_every_script_stays_in_its_slot(client: Participant, tag: str) -> None:
    """With braces in the prefix, or in the name of the queue, no script meets a key of another slot."""
    if tag == "prefix":
        exercise_every_script(client)
    else:
        exercise_every_script(client.untagged(), "{q}")
    sent = client.tap.commands()
    refused = [str(command) for command in sent if command.reply and _is_about_slots(command.reply.error)]
    equal(refused, [], "no command meets a key of another slot")
    if client.role == "oracle":
        called = {command.script for command in sent}
        equal(sorted(EXERCISED_SCRIPTS - called), [], "Node calls every script on the way")


ALONE: dict[str, Callable[[QueueHandle], object]] = {
    "drain": lambda queue: queue.call(queue_ops.Drain()),
    "drain-with-delayed": lambda queue: queue.call(queue_ops.Drain(delayed=True)),
    "obliterate": lambda queue: queue.call(queue_ops.Obliterate()),
    "repeat": lambda queue: queue.add("old", {}, repeat={"every": HOUR_MS}),
    "schedule": lambda queue: queue.schedule("s", {"every": HOUR_MS}),
}
"""Calls whose keys depend on their arguments."""


@pytest.mark.parametrize("call", ALONE)
@scenario("cluster.tagged-works", needs="cluster", cases={"repeat": "<6"})
def test_a_call_stays_in_its_slot(client: Participant, call: str) -> None:
    """No key of a script is empty or outside of the queue, also for arguments that leave something out."""
    queue = client.queue()
    queue.add("waiting")
    queue.add("later", {}, delay=HOUR_MS)
    ALONE[call](queue)
    sent = client.tap.commands()
    refused = [str(command) for command in sent if command.reply and _is_about_slots(command.reply.error)]
    equal(refused, [], "no command meets a key of another slot")


@scenario("cluster.untagged-spreads", needs="cluster", without=SPREAD_ON_PURPOSE)
def test_keys_without_braces_are_refused(client: Participant) -> None:
    """Every operation on keys without braces is refused, and nothing is written."""
    bare = client.untagged()
    queue, worker = bare.queue(), bare.worker()
    attempts: dict[str, Callable[[], object]] = {
        "adding": queue.add,
        "adding several": lambda: queue.add_bulk(("job", {}, {}), ("job", {}, {})),
        "pausing": queue.pause,
        "claiming": worker.claim,
    }
    for what, attempt in attempts.items():
        try:
            attempt()
        except OperationFailed:
            continue
        raise Mismatch(f"{what} without braces is refused", expected="an error", actual="accepted", where="answer")
    there = [name for name in ("id", "1", "wait", "paused", "marker", "events") if bare.redis().exists(name)]
    equal(there, [], "nothing was written")
    if client.role == "oracle":
        errors = {command.reply.error_code for command in client.tap.commands() if command.reply and command.script}
        holds("CROSSSLOT" in errors, "Redis refuses with CROSSSLOT", seen=sorted(map(str, errors)))


@pytest.mark.parametrize("bulk", [False, True])
@scenario("cluster.flow-in-one-slot", needs="cluster", without=SPREAD_ON_PURPOSE)
def test_a_flow_across_slots_is_refused(client: Participant, bulk: bool) -> None:
    """A flow is added as a whole, so it is refused as a whole where its queues are in different slots."""
    bare = client.untagged()
    flows = bare.flow()
    try:
        _add_across(flows, bulk=bulk)
    except OperationFailed:
        left = [name for queue in ("{a}", "{b}") for name in ("parent", "child") if bare.redis(queue).exists(name)]
        equal(left, [], "nothing of the flow is left")
    else:
        raise Mismatch("a flow across slots is refused", expected="an error", actual="accepted", where="answer")
    flows.add(node("parent", node("child", queue="{a}:2"), queue="{a}"))
    equal(bare.redis("{a}").state("parent"), ["waiting-children"], "queues of one slot can share a flow")


def _add_across(flows: FlowHandle, *, bulk: bool) -> None:
    """`{a}` and `{b}` are in different slots, and on different masters where there are three."""
    if bulk:
        flows.add_bulk(node("parent", queue="{a}"), node("child", queue="{b}"))
    else:
        flows.add(node("parent", node("child", queue="{b}"), queue="{a}"))


def _is_about_slots(error: str | None) -> bool:
    return error is not None and (error.startswith("CROSSSLOT") or NOT_THERE in error)


@scenario("cluster.workers-seen", needs="cluster", clock="real", compare=False, bullmq=">=5.67.1")
def test_workers_on_a_cluster_are_listed(client: Participant) -> None:
    """Each once, by its name, from its start to its end."""
    queue, worker = client.queue(), client.worker("noop", name="signed")
    worker.wait_local("completed", queue.add("work"))
    client.eventually(
        lambda: queue.call(queue_ops.GetWorkers()).names, lambda names: names == ["signed"], "the worker is listed"
    )
    worker.close()
    client.eventually(lambda: queue.call(queue_ops.GetWorkers()).names, lambda names: not names, "the worker is gone")
