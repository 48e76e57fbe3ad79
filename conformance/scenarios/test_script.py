"""Area script: how the official scripts are called, and how their refusals are reported."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from conformance.driver.errors import OperationUnsupported
from conformance.participants.expect import equal, holds
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.participants.redis_view import RedisView
from conformance.scenarios.support.operation_groups import OPERATION_GROUPS
from conformance.scenarios.support.refusals import REFUSALS, SLOTS_BUSY, Refusal
from conformance.scenarios.support.steps import wait_for_finished

CONTAINERS = ("wait", "paused", "active", "prioritized", "delayed", "completed", "failed", "waiting-children")


@pytest.mark.parametrize("group", OPERATION_GROUPS)
@scenario("script.keys", "script.arguments", "script.atomic", "script.harmless", "script.by-hash")
def test_everything_that_is_sent_is_in_order(client: Participant, group: str) -> None:
    """Every operation sends commands in the form that Node sends them (the traffic checks decide that)."""
    OPERATION_GROUPS[group](client, "q")
    if not {"EVALSHA", "EVAL"} & {command.name for command in client.tap.commands()}:
        raise OperationUnsupported("tap", "the client sends no script")


@scenario("script.loading")
def test_forgotten_scripts_are_sent_again(client: Participant) -> None:
    """If Redis has forgotten every script, the client sends the text again and every call succeeds."""
    queue, worker = client.queue(), client.worker()
    queue.add(attempts=2)
    queue.add()
    with client.tap.forgotten_scripts():
        queue.add_bulk(("job", {}, {}), ("job", {}, {}))
        worker.claim_one()
        worker.fail("1")
        queue.pause()
        queue.resume()
    worker.claim_one()
    with client.tap.forgotten_scripts():
        worker.complete(worker.claim_one("token-2").id, token="token-2")
    equal(
        sorted(job for name in CONTAINERS for job in _members(queue.redis, name)),
        ["1", "2", "3", "4"],
        "no job is lost",
    )
    equal(queue.redis.string("id"), "4", "every job was added once")


@scenario("script.loading", clock="real")
def test_a_running_worker_survives_forgotten_scripts(client: Participant) -> None:
    """Its loop goes on, without a restart: it runs the jobs that are added meanwhile and later."""
    queue = client.queue()
    client.worker("noop", drainDelay=1)
    for number, forgotten in enumerate((False, True, True, False), start=1):
        with client.tap.forgotten_scripts() if forgotten else nullcontext():
            queue.add("job")
            wait_for_finished(client, number)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
@scenario("script.refused-call")
def test_a_refusal_is_told(client: Participant, refusal: Refusal) -> None:
    """A call that a script refuses fails with its reason, and no job moves."""
    _see_refused(client, refusal)


@scenario("script.refused-call", bullmq="<5.80.8")
def test_a_busy_slot_is_refused(client: Participant) -> None:
    """A scheduler is refused if other jobs have the ids of its next two times."""
    _see_refused(client, SLOTS_BUSY)


@scenario("script.refused-call", bullmq=">=5.80.8")
def test_a_busy_slot_is_passed_over(client: Participant) -> None:
    """A scheduler is accepted if other jobs have the ids of its next two times; these jobs do not change."""
    with SLOTS_BUSY.prepared(client) as prepared:
        before = _places(client.redis())
        SLOTS_BUSY.call(prepared)
        after = _places(client.redis())
        lost = {name: sorted(set(ids) - set(after[name])) for name, ids in before.items()}
        equal({name: ids for name, ids in lost.items() if ids}, {}, "no job has left its place")


def _see_refused(client: Participant, refusal: Refusal) -> None:
    with refusal.prepared(client) as prepared:
        before = _places(client.redis())
        with client.refuses(refusal.error_code, f"{refusal.script} refuses with {int(refusal.code)}"):
            refusal.call(prepared)
        equal(_places(client.redis()), before, "no job has moved")
    if client.role == "oracle":
        reply = client.tap.calls(refusal.script)[-1].reply
        refused = reply is not None and f":{int(refusal.code)}\r\n".encode() in reply.head
        holds(refused, "the scenario reaches the script, and its code", seen=str(reply))


def _places(redis: RedisView) -> dict[str, list[str]]:
    """The ids of jobs in each container."""
    return {name: _members(redis, name) for name in CONTAINERS}


def _members(redis: RedisView, name: str) -> list[str]:
    return redis.elements(name) if name in ("wait", "paused", "active") else redis.members(name)
