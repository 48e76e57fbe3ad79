"""Deduplication of every kind of job: each kind against each mode, and each state that the owner of an id can be in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from conformance.participants.expect import between, equal
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import also_in_core, scenario
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
    "replace-no-ttl": {"ttl": 0, "replace": True},
    "debounce": {"ttl": TTL_MS, "replace": True, "extend": True},
}

NOBODY_COMES = {
    "waits-for-something": "a parent waits for ever for a child that was not stored",
}

Add: TypeAlias = Callable[[QueueHandle, str, dict[str, Any]], str]
"""Adds a job to the queue under an id and with options; returns what the client says the id is."""


def _add_plain(queue: QueueHandle, job: str, opts: dict[str, Any]) -> str:
    return queue.add(job, {"of": job}, jobId=job, **opts)


def _add_with(**more: Any) -> Add:
    return lambda queue, job, opts: _add_plain(queue, job, {**more, **opts})


def _add_in_bulk(queue: QueueHandle, job: str, opts: dict[str, Any]) -> str:
    return queue.add_bulk((job, {}, {"jobId": job, **opts}))[0]


KINDS: dict[str, Add] = {
    "plain": _add_plain,
    "lifo": _add_with(lifo=True),
    "delayed": _add_with(delay=LATER_MS),
    "prioritized": _add_with(priority=2),
    "delayed-prioritized": _add_with(delay=LATER_MS, priority=2),
    "bulk": _add_in_bulk,
}

CLAIMED = ("running", "done", "broken")
"""Owners that a worker has taken. They come first, while nothing else waits that it could take."""

OWNERS = (*CLAIMED, "plain", "urgent", "late", "nobody", "parked")
"""Kinds of owners of an id."""


def _queue_of(owner: str) -> str:
    """One queue for all of them, but for the one that waits behind a pause: opening a queue takes longer than a job."""
    return "paused" if owner == "parked" else "open"


def _job_of(owner: str) -> str:
    return f"{owner}-owner"


def _asking(owner: str, mode: dict[str, Any]) -> dict[str, Any]:
    """The options of a job that wants the id of this owner."""
    return {"deduplication": {"id": f"its-{owner}", **mode}}


def _own_everything(client: Participant, mode: dict[str, Any]) -> dict[str, QueueHandle]:
    """Make each owner the owner of its id, and bring it into the state that it is named after; returns the queues."""
    queues = {name: client.queue(name) for name in ("open", "paused")}
    queues["paused"].pause()
    worker = client.worker(queue="open")
    for owner in OWNERS:
        if owner != "nobody":
            more: dict[str, Any] = {"urgent": {"priority": 5}, "late": {"delay": 2 * LATER_MS}}.get(owner, {})
            queues[_queue_of(owner)].add(owner, {}, jobId=_job_of(owner), **more, **_asking(owner, mode))
        if owner in CLAIMED:
            worker.claim_one()
        if owner == "done":
            worker.complete(_job_of(owner))
        if owner == "broken":
            worker.fail(_job_of(owner))
    return queues


def _heir(owner: str, mode: dict[str, Any]) -> str:
    """Who owns the id after the add: the owner that is there, or the new job."""
    is_free = owner == "nobody" or (owner in ("done", "broken") and not mode.get("ttl"))
    is_replaced = owner == "late" and mode.get("replace")
    return _new_of(owner) if is_free or is_replaced else _job_of(owner)


def _new_of(owner: str) -> str:
    return f"{owner}-new"


def _let_half_pass(queue: QueueHandle, owner: str) -> None:
    """Half of the time of an id that has a time has passed."""
    if queue.redis.ttl_ms(f"de:its-{owner}") > 0:
        queue.redis.set_string(f"de:its-{owner}", _job_of(owner), ttl_ms=TTL_MS // 2)


def _check_ids(queue: QueueHandle, owner: str, mode: dict[str, Any]) -> None:
    """The heir owns the id, and the new job is stored only as the heir.

    The ttl starts with the first owner and restarts only with `extend`; but not for an owner that cannot be replaced.
    """
    key, heir, new = f"de:its-{owner}", _heir(owner, mode), _new_of(owner)
    equal(queue.redis.string(key), heir, f"this job owns the id of {owner}")
    equal(queue.redis.exists(new), heir == new, f"it is stored if it owns the id of {owner}")
    if not mode.get("ttl"):
        equal(queue.redis.ttl_ms(key), -1, f"the id of {owner} has no time", where="dedup.ttl")
        return
    extended = mode.get("extend") and (heir == new or not mode.get("replace"))
    low, high = (TTL_MS // 2 + 1, TTL_MS) if owner == "nobody" or extended else (1, TTL_MS // 2)
    between(queue.redis.ttl_ms(key), low, high, f"the time of the id of {owner}", where="dedup.ttl")


def _meet_every_owner(client: Participant, kind: str, mode: dict[str, Any]) -> None:
    """Who is there decides, and neither the kind of the new job nor the order of the options."""
    queues = _own_everything(client, mode)
    for owner in OWNERS:
        queue = queues[_queue_of(owner)]
        _let_half_pass(queue, owner)
        reported = KINDS[kind](queue, _new_of(owner), _asking(owner, mode))
        equal(reported, _heir(owner, mode), f"the answer is who owns the id of {owner}")
        _check_ids(queue, owner, mode)


@pytest.mark.parametrize("mode", KEEPING)
@pytest.mark.parametrize("kind", KINDS)
@scenario("dedup.simple", "dedup.ttl", tier="full")
def test_every_kind_of_job_meets_every_owner(client: Participant, kind: str, mode: str) -> None:
    """An owner stays, in every state."""
    _meet_every_owner(client, kind, KEEPING[mode])


@pytest.mark.parametrize("mode", EXTENDING)
@pytest.mark.parametrize("kind", KINDS)
@scenario("dedup.extend", tier="full")
@also_in_core(
    "delayed-extend | delayed-prioritized-extend | delayed-prioritized-extend-without-ttl | plain-extend | "
    "prioritized-extend"
)
def test_every_kind_of_job_extends_every_owner(client: Participant, kind: str, mode: str) -> None:
    """An owner stays, in every state, and the ttl restarts."""
    _meet_every_owner(client, kind, EXTENDING[mode])


@pytest.mark.parametrize("mode", REPLACING)
@pytest.mark.parametrize("kind", KINDS)
@scenario("dedup.replace", "dedup.debounce", tier="full")
@also_in_core(
    "bulk-replace-ttl | delayed-prioritized-debounce | delayed-replace-ttl | lifo-debounce | plain-debounce | "
    "plain-replace-ttl | prioritized-debounce | prioritized-replace | prioritized-replace-ttl"
)
def test_every_kind_of_job_replaces_a_delayed_owner(client: Participant, kind: str, mode: str) -> None:
    """An owner that is not delayed stays, in every state."""
    _meet_every_owner(client, kind, REPLACING[mode])


REFUSED = {"*child-*": "<5.70.4", "parent-*": "<6"}
"""Which versions let a member of a flow ask for an id that is not its root alone; the others refuse the call."""

REPLACED_BY_ROOTS = {**REFUSED, "parent-*": "<5.66.4"}
"""From 5.66.4 on a parent replaces no owner."""

Grow: TypeAlias = Callable[[str, dict[str, Any]], dict[str, Any]]
"""The flow of which the job that wants an owner's id is a member, with these options."""


def _new(owner: str, *children: dict[str, Any], **opts: Any) -> dict[str, Any]:
    return node(_new_of(owner), *children, queue=_queue_of(owner), **opts)


def _below_another(owner: str, new: dict[str, Any]) -> dict[str, Any]:
    return node(f"above {owner}", new, queue="above")


def _child_of(owner: str) -> dict[str, Any]:
    return node(f"below {owner}", queue="below")


MEMBERS: dict[str, Grow] = {
    "root": lambda owner, opts: _new(owner, **opts),
    "parent": lambda owner, opts: _new(owner, _child_of(owner), **opts),
    "child": lambda owner, opts: _below_another(owner, _new(owner, **opts)),
    "delayed-child": lambda owner, opts: _below_another(owner, _new(owner, delay=LATER_MS, **opts)),
    "prioritized-child": lambda owner, opts: _below_another(owner, _new(owner, priority=2, **opts)),
    "parent-and-child": lambda owner, opts: _below_another(owner, _new(owner, _child_of(owner), **opts)),
}
"""Places of a new job in its flow."""


def _join_every_flow(client: Participant, member: str, mode: dict[str, Any]) -> None:
    """A member whose id is taken is not stored, and its relatives stay incomplete."""
    flow, queues = client.flow(), _own_everything(client, mode)
    for owner in OWNERS:
        queue = queues[_queue_of(owner)]
        _let_half_pass(queue, owner)
        flow.add(MEMBERS[member](owner, _asking(owner, mode)))
        _check_ids(queue, owner, mode)


@pytest.mark.parametrize("mode", KEEPING)
@pytest.mark.parametrize("member", MEMBERS)
@scenario("dedup.simple", "dedup.ttl", tier="full", without=NOBODY_COMES, cases=REFUSED)
@also_in_core("parent-and-child-ttl | parent-simple | parent-ttl")
def test_every_member_of_a_flow_meets_every_owner(client: Participant, member: str, mode: str) -> None:
    """An owner stays, in every state."""
    _join_every_flow(client, member, KEEPING[mode])


@pytest.mark.parametrize("mode", EXTENDING)
@pytest.mark.parametrize("member", MEMBERS)
@scenario("dedup.extend", tier="full", without=NOBODY_COMES, cases=REFUSED)
@also_in_core("parent-and-child-extend | parent-extend | parent-extend-without-ttl")
def test_every_member_of_a_flow_extends_every_owner(client: Participant, member: str, mode: str) -> None:
    """An owner stays, in every state, and the ttl restarts."""
    _join_every_flow(client, member, EXTENDING[mode])


@pytest.mark.parametrize("mode", REPLACING)
@pytest.mark.parametrize("member", MEMBERS)
@scenario("dedup.replace", "dedup.debounce", tier="full", without=NOBODY_COMES, cases=REPLACED_BY_ROOTS)
@also_in_core(
    "child-replace-no-ttl | parent-and-child-debounce | parent-and-child-replace | parent-and-child-replace-ttl | "
    "parent-debounce | parent-replace | parent-replace-ttl | prioritized-child-debounce | "
    "prioritized-child-replace-no-ttl | prioritized-child-replace-ttl | root-replace-no-ttl"
)
def test_every_member_of_a_flow_replaces_a_delayed_owner(client: Participant, member: str, mode: str) -> None:
    """An owner that is not delayed stays, in every state."""
    _join_every_flow(client, member, REPLACING[mode])


OF_CHILDREN = ("processed", "failed", "unsuccessful", "dependencies")


@pytest.mark.parametrize("member", ["root", "parent", "delayed-child", "prioritized-child"])
@scenario("dedup.replace", tier="full", without=NOBODY_COMES, cases={"*-child": "<5.70.4", "parent": "<5.66.4"})
@also_in_core("delayed-child | parent | prioritized-child")
def test_what_a_replaced_owner_has_of_its_children_goes_too(client: Participant, member: str) -> None:
    """The owner is a parent that was put off: what its children have returned goes, and who is not done."""
    queue, flow = client.queue("open"), client.flow()
    owner = _job_of("late")
    queue.add("late", {}, jobId=owner, delay=2 * LATER_MS, **_asking("late", {}))
    queue.log(owner, "a row")
    queue.add("pending child", {}, parent={"id": owner, "queue": queue.redis.base[:-1]})
    queue.redis.set_field(f"{owner}:processed", f"{queue.redis.base}done", "1")
    queue.redis.set_field(f"{owner}:failed", f"{queue.redis.base}ignored", "no")
    queue.redis.set_score(f"{owner}:unsuccessful", f"{queue.redis.base}failed child", 1)
    flow.add(MEMBERS[member]("late", _asking("late", REPLACING["replace"])))
    left = [
        name
        for name in (owner, f"{owner}:logs", *(f"{owner}:{kind}" for kind in OF_CHILDREN))
        if queue.redis.exists(name)
    ]
    equal(left, [], "nothing of the owner is left")
    equal(queue.redis.string("de:its-late"), _new_of("late"), "the id is the new job's")
