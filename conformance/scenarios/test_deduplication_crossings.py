"""Deduplication of every kind of job: each kind against each mode, and each state that the owner of an id can be in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from conformance.participants.expect import between, equal
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import node

TTL_MS = 60_000
LATER_MS = 60_000

KEEPING: dict[str, dict[str, Any]] = {"simple": {}, "ttl": {"ttl": TTL_MS}, "no-ttl": {"ttl": 0}}
EXTENDING: dict[str, dict[str, Any]] = {
    "extend": {"ttl": TTL_MS, "extend": True},
    "extend-without-ttl": {"extend": True},
}
REPLACING: dict[str, dict[str, Any]] = {
    "replace": {"replace": True},
    "replace-ttl": {"ttl": TTL_MS, "replace": True},
    "debounce": {"ttl": TTL_MS, "replace": True, "extend": True},
}

NOBODY_COMES = {
    "waits-for-something": "a parent waits for ever for a child that was not stored",
}

Add: TypeAlias = Callable[[Participant, str, str, dict[str, Any]], str]
"""Adds a job to the queue under an id and with options; answers what the client says the id is."""


def _add_plain(client: Participant, queue: str, job: str, opts: dict[str, Any]) -> str:
    return client.queue(queue).add(job, {"of": job}, jobId=job, **opts)


def _add_with(**more: Any) -> Add:
    return lambda client, queue, job, opts: _add_plain(client, queue, job, {**more, **opts})


def _add_in_bulk(client: Participant, queue: str, job: str, opts: dict[str, Any]) -> str:
    return client.queue(queue).add_bulk((job, {}, {"jobId": job, **opts}))[0]


KINDS: dict[str, Add] = {
    "plain": _add_plain,
    "lifo": _add_with(lifo=True),
    "delayed": _add_with(delay=LATER_MS),
    "prioritized": _add_with(priority=2),
    "delayed-prioritized": _add_with(delay=LATER_MS, priority=2),
    "bulk": _add_in_bulk,
}

OWNERS = ("nobody", "plain", "parked", "urgent", "late", "running", "done", "broken")
"""What the owner of an id is, and the name of the queue in which it is that."""


def _own(client: Participant, owner: str, opts: dict[str, Any]) -> None:
    """Make a job the owner of its id, and bring it into the state that it is named after."""
    queue = client.queue(owner)
    if owner == "nobody":
        return
    if owner == "parked":
        queue.pause()
    more: dict[str, Any] = {"urgent": {"priority": 5}, "late": {"delay": 2 * LATER_MS}}.get(owner, {})
    queue.add("owner", {}, jobId="owner", **more, **opts)
    if owner in ("running", "done", "broken"):
        worker = client.worker(queue=owner)
        worker.claim_one()
        if owner == "done":
            worker.complete("owner")
        if owner == "broken":
            worker.fail("owner")


def _heir(owner: str, mode: dict[str, Any]) -> str:
    """Who owns the id after the add: the owner that is there, or the new job."""
    if owner == "nobody":
        return "new"
    if owner == "late" and mode.get("replace"):
        return "new"
    if owner in ("done", "broken") and not mode.get("ttl"):
        return "new"
    return "owner"


def _let_half_pass(queue: QueueHandle) -> None:
    """Half of the time of an id that has a time has passed."""
    if queue.redis.ttl_ms("de:its") > 0:
        queue.redis.set_string("de:its", "owner", ttl_ms=TTL_MS // 2)


def _check_ttl(queue: QueueHandle, owner: str, mode: dict[str, Any], heir: str) -> None:
    """A time begins with the first owner, and anew only with `extend`; but not for an owner that cannot be replaced."""
    if not mode.get("ttl"):
        equal(queue.redis.ttl_ms("de:its"), -1, f"the id of {owner} has no time", where="dedup.ttl")
        return
    extended = mode.get("extend") and (heir == "new" or not mode.get("replace"))
    low, high = (TTL_MS // 2 + 1, TTL_MS) if owner == "nobody" or extended else (1, TTL_MS // 2)
    between(queue.redis.ttl_ms("de:its"), low, high, f"the time of the id of {owner}", where="dedup.ttl")


def _meet_every_owner(client: Participant, kind: str, mode: dict[str, Any]) -> None:
    """Who is there decides, and neither the kind of the new job nor the order of the options."""
    opts = {"deduplication": {"id": "its", **mode}}
    for owner in OWNERS:
        _own(client, owner, opts)
        queue, heir = client.queue(owner), _heir(owner, mode)
        _let_half_pass(queue)
        equal(KINDS[kind](client, owner, "new", opts), heir, f"the answer is who owns the id of {owner}")
        equal(queue.redis.string("de:its"), heir, f"this job owns the id of {owner}")
        equal(queue.redis.exists("new"), heir == "new", f"it is stored if it owns the id of {owner}")
        _check_ttl(queue, owner, mode, heir)


@pytest.mark.parametrize("mode", KEEPING)
@pytest.mark.parametrize("kind", KINDS)
@scenario("dedup.simple", "dedup.ttl", tier="full")
def test_every_kind_of_job_meets_every_owner(client: Participant, kind: str, mode: str) -> None:
    """An owner stays, whatever it is."""
    _meet_every_owner(client, kind, KEEPING[mode])


@pytest.mark.parametrize("mode", EXTENDING)
@pytest.mark.parametrize("kind", KINDS)
@scenario("dedup.extend", tier="full")
def test_every_kind_of_job_extends_every_owner(client: Participant, kind: str, mode: str) -> None:
    """An owner stays, whatever it is, and for longer."""
    _meet_every_owner(client, kind, EXTENDING[mode])


@pytest.mark.parametrize("mode", REPLACING)
@pytest.mark.parametrize("kind", KINDS)
@scenario("dedup.replace", "dedup.debounce", tier="full")
def test_every_kind_of_job_replaces_a_delayed_owner(client: Participant, kind: str, mode: str) -> None:
    """An owner that is not delayed stays, whatever it is."""
    _meet_every_owner(client, kind, REPLACING[mode])


Grow: TypeAlias = Callable[[str, dict[str, Any]], dict[str, Any]]
"""The flow of which job `new` in a queue is a member, with these options."""


def _below_another(queue: str, new: dict[str, Any]) -> dict[str, Any]:
    return node(f"above {queue}", new, queue="above")


MEMBERS: dict[str, Grow] = {
    "root": lambda queue, opts: node("new", queue=queue, **opts),
    "parent": lambda queue, opts: node("new", node(f"below {queue}", queue="below"), queue=queue, **opts),
    "child": lambda queue, opts: _below_another(queue, node("new", queue=queue, **opts)),
    "delayed-child": lambda queue, opts: _below_another(queue, node("new", queue=queue, delay=LATER_MS, **opts)),
    "prioritized-child": lambda queue, opts: _below_another(queue, node("new", queue=queue, priority=2, **opts)),
    "parent-and-child": lambda queue, opts: _below_another(
        queue, node("new", node(f"below {queue}", queue="below"), queue=queue, **opts)
    ),
}
"""What a new job can be in its flow."""


def _join_every_flow(client: Participant, member: str, mode: dict[str, Any]) -> None:
    """A member whose id is taken is not stored; what hangs on it is not mended."""
    opts = {"deduplication": {"id": "its", **mode}}
    for owner in OWNERS:
        _own(client, owner, opts)
        queue, heir = client.queue(owner), _heir(owner, mode)
        _let_half_pass(queue)
        client.flow().add(MEMBERS[member](owner, opts))
        equal(queue.redis.string("de:its"), heir, f"this job owns the id of {owner}")
        equal(queue.redis.exists("new"), heir == "new", f"the member is stored if it owns the id of {owner}")
        _check_ttl(queue, owner, mode, heir)


@pytest.mark.parametrize("mode", KEEPING)
@pytest.mark.parametrize("member", MEMBERS)
@scenario("dedup.simple", "dedup.ttl", tier="full", without=NOBODY_COMES)
def test_every_member_of_a_flow_meets_every_owner(client: Participant, member: str, mode: str) -> None:
    """An owner stays, whatever it is."""
    _join_every_flow(client, member, KEEPING[mode])


@pytest.mark.parametrize("mode", EXTENDING)
@pytest.mark.parametrize("member", MEMBERS)
@scenario("dedup.extend", tier="full", without=NOBODY_COMES)
def test_every_member_of_a_flow_extends_every_owner(client: Participant, member: str, mode: str) -> None:
    """An owner stays, whatever it is, and for longer."""
    _join_every_flow(client, member, EXTENDING[mode])


@pytest.mark.parametrize("mode", REPLACING)
@pytest.mark.parametrize("member", MEMBERS)
@scenario("dedup.replace", "dedup.debounce", tier="full", without=NOBODY_COMES)
def test_every_member_of_a_flow_replaces_a_delayed_owner(client: Participant, member: str, mode: str) -> None:
    """An owner that is not delayed stays, whatever it is."""
    _join_every_flow(client, member, REPLACING[mode])
