"""Every operation on a job in every state of a job: a table, each cell compared with what Node does.

The scenarios state only what holds in every cell. Whether a call is refused, what it returns and what it leaves behind
is compared with Node, of any version. Each operation has a queue and a job of its own, named after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import pytest

from conformance.driver.errors import OperationFailed
from conformance.driver.ops import job as job_ops
from conformance.driver.ops import queue as queue_ops
from conformance.driver.ops import worker as worker_ops
from conformance.driver.ops.base import Op
from conformance.participants.expect import equal
from conformance.participants.marks import also_in_core, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.prepared_queue import PreparedQueue, Step
from conformance.scenarios.support.steps import add_child, node

LATER_MS = 60_000
TOKEN = "token-1"
ANOTHER = "another token"


# The states, and how a job comes there.


def _added(**opts: Any) -> Step:
    return lambda prepared: prepared.queue.add("job", {"n": 1}, jobId=prepared.job, **opts)


def _park(prepared: PreparedQueue) -> None:
    prepared.queue.pause()
    _added()(prepared)


def _claim(prepared: PreparedQueue) -> None:
    _added()(prepared)
    prepared.worker.claim_one(TOKEN)


def _lose_lock(prepared: PreparedQueue) -> None:
    _claim(prepared)
    prepared.queue.redis.delete(f"{prepared.job}:lock")


def _steal_lock(prepared: PreparedQueue) -> None:
    _claim(prepared)
    prepared.queue.redis.set_string(f"{prepared.job}:lock", ANOTHER, ttl_ms=LATER_MS)


def _claim_with_attempts(prepared: PreparedQueue) -> None:
    _added(attempts=3, backoff=1000)(prepared)
    prepared.worker.claim_one(TOKEN)


def _complete(prepared: PreparedQueue) -> None:
    _claim(prepared)
    prepared.worker.complete(prepared.job, {"done": True})


def _fail(prepared: PreparedQueue) -> None:
    _claim(prepared)
    prepared.worker.fail(prepared.job)


def _wait_for_a_child(prepared: PreparedQueue) -> None:
    _claim(prepared)
    add_child(prepared.queue, prepared.job, jobId="child", delay=LATER_MS)
    prepared.worker.wait_for_children(prepared.job)


def _have_children(prepared: PreparedQueue) -> None:
    """The job is a parent: one child is done, one was ignored, one has failed, and one waits."""
    done, ignored = (
        node("done", queue=prepared.name),
        node("ignored", queue=prepared.name, ignoreDependencyOnFailure=True),
    )
    bad = node("bad", queue=prepared.name, continueParentOnFailure=True)
    pending = node("pending", queue=prepared.name, delay=LATER_MS)
    prepared.flow.add(node(prepared.job, done, ignored, bad, pending, queue=prepared.name))
    prepared.worker.complete(prepared.worker.claim_one(TOKEN).id, {"of": "done"})
    prepared.worker.fail(prepared.worker.claim_one(TOKEN).id, "ignored")
    prepared.worker.fail(prepared.worker.claim_one(TOKEN).id, "bad")


def _be_a_child(prepared: PreparedQueue) -> None:
    prepared.flow.add(node("parent", node(prepared.job, queue=prepared.name), queue=prepared.name))


def _be_claimed_as_a_child(prepared: PreparedQueue) -> None:
    _be_a_child(prepared)
    prepared.worker.claim_one(TOKEN)


STATES: Mapping[str, Step] = {
    "wait": _added(),
    "prioritized": _added(priority=5),
    "delayed": _added(delay=LATER_MS),
    "active": _claim,
    "active-with-attempts": _claim_with_attempts,
    "active-without-lock": _lose_lock,
    "active-for-another": _steal_lock,
    "completed": _complete,
    "failed": _fail,
    "waiting-children": _wait_for_a_child,
    "parent": _have_children,
    "child": _be_a_child,
    "active-child": _be_claimed_as_a_child,
    "owner": _added(deduplication={"id": "its"}),
    "delayed-owner": _added(deduplication={"id": "its"}, delay=LATER_MS),
}
"""States that come about by what clients do, or by what expires."""

STARTED = ("active", "active-with-attempts", "active-without-lock", "active-for-another", "active-child")
"""Those in which the job runs."""


def _be_listed_without_hash(prepared: PreparedQueue) -> None:
    _added()(prepared)
    prepared.queue.redis.delete(prepared.job)


def _be_active_without_hash(prepared: PreparedQueue) -> None:
    _claim(prepared)
    prepared.queue.redis.delete(prepared.job)


def _be_in_no_list(prepared: PreparedQueue) -> None:
    _added()(prepared)
    prepared.queue.redis.delete("wait")


def _be_unknown(prepared: PreparedQueue) -> None:
    """Nothing has this id."""


ODD_STATES: Mapping[str, Step] = {
    "wait-without-hash": _be_listed_without_hash,
    "active-without-hash": _be_active_without_hash,
    "in-no-list": _be_in_no_list,
    "unknown": _be_unknown,
}
"""States in which something was lost."""

LOST = {
    "oracle-health": "Node's getters answer nothing for a job whose hash was lost",
    "no-ghosts": "a hash was lost before",
    "one-state": "the list was lost before",
    "locks": "the hash of a running job was lost before",
    "required-fields": "what is written to a job that is lost makes half a hash",
    "owned-keys": "what is written to a job that is lost has no owner",
    "base-marker": "what woke workers is about a job that was lost",
}


# The operations.


OPERATOR: Mapping[str, Step] = {
    "removed": lambda prepared: prepared.queue.remove(prepared.job),
    "removed-alone": lambda prepared: prepared.queue.remove(prepared.job, children=False),
    "removed-by-itself": lambda prepared: prepared.queue.call(job_ops.RemoveJob(job=prepared.job)),
    "promoted": lambda prepared: prepared.queue.promote(prepared.job),
    "put-off": lambda prepared: prepared.queue.call(job_ops.ChangeDelay(job=prepared.job, delay_ms=2 * LATER_MS)),
    "made-due": lambda prepared: prepared.queue.call(job_ops.ChangeDelay(job=prepared.job, delay_ms=0)),
    "made-urgent": lambda prepared: prepared.queue.call(job_ops.ChangePriority(job=prepared.job, priority=3)),
    "made-first": lambda prepared: prepared.queue.call(job_ops.ChangePriority(job=prepared.job, priority=0, lifo=True)),
    "retried": lambda prepared: prepared.queue.retry(prepared.job),
    "retried-after-success": lambda prepared: prepared.queue.retry(prepared.job, "completed"),
}
"""Operations that a user calls by hand."""

WRITING: Mapping[str, Step] = {
    "progress": lambda prepared: prepared.queue.progress(prepared.job, {"at": 50}),
    "data": lambda prepared: prepared.queue.update_data(prepared.job, {"n": 2}),
    "log": lambda prepared: prepared.queue.log(prepared.job, "a row"),
    "short-log": lambda prepared: prepared.queue.log(prepared.job, "a row", keep=1),
    "no-log": lambda prepared: prepared.queue.call(job_ops.ClearLogs(job=prepared.job)),
    "less-log": lambda prepared: prepared.queue.call(job_ops.ClearLogs(job=prepared.job, keep_logs=1)),
}
"""Operations that write to it."""

FAMILY: Mapping[str, Step] = {
    "unlinked": lambda prepared: prepared.queue.call(job_ops.RemoveChildDependency(job=prepared.job)),
    "freed": lambda prepared: prepared.queue.call(job_ops.RemoveUnprocessedChildren(job=prepared.job)),
    "given-up": lambda prepared: prepared.queue.call(queue_ops.RemoveDeduplicationKey(id="its")),
}
"""Operations that separate it from its relatives and from its id."""


WorkerAct: TypeAlias = Callable[[PreparedQueue, str], object]
"""An operation of a worker with this token."""


def _put_off(prepared: PreparedQueue, token: str) -> object:
    due = prepared.client.clock.now_ms() + LATER_MS
    return prepared.worker.call(worker_ops.MoveToDelayed(job=prepared.job, token=token, timestamp=due))


WORKING: Mapping[str, WorkerAct] = {
    "completed": lambda prepared, token: prepared.worker.complete(prepared.job, {"done": True}, token),
    "completed-for-another": lambda prepared, token: prepared.worker.complete(
        prepared.job, None, token, fetch_next=True
    ),
    "failed": lambda prepared, token: prepared.worker.fail(prepared.job, "boom", token),
    "failed-for-good": lambda prepared, token: prepared.worker.fail(
        prepared.job, "boom", token, unrecoverable=True, fetch_next=True
    ),
    "put-off": _put_off,
    "put-back": lambda prepared, token: prepared.worker.call(worker_ops.MoveToWait(job=prepared.job, token=token)),
    "made-to-wait": lambda prepared, token: prepared.worker.wait_for_children(prepared.job, token),
    "kept": lambda prepared, token: prepared.worker.extend_lock(prepared.job, LATER_MS, token),
    "kept-with-others": lambda prepared, token: prepared.worker.extend_locks([prepared.job], [token], LATER_MS),
}
"""Operations of a worker on the job, allowed or not."""

NEIGHBOURS = {"next": "wait", "later": "delayed", "urgent": "prioritized"}
"""Jobs that come after it, and where they are."""


def _prepare(client: Participant, state: str, name: str) -> PreparedQueue:
    # `the-`: a job called as a key of its queue (`wait`) would be stored in that key.
    prepared = PreparedQueue(client, name, job=f"the-{name}")
    {**STATES, **ODD_STATES, "paused": _park}[state](prepared)
    prepared.queue.add("next", {}, jobId="next")
    prepared.queue.add("later", {}, jobId="later", delay=LATER_MS)
    prepared.queue.add("urgent", {}, jobId="urgent", priority=5)
    client.pass_time(20)
    return prepared


def _part(client: Participant, state: str) -> None:
    # Without a parent, the script looks for a key without name, which on a cluster is on any node.
    knows_parent = state.endswith(("child", "without-hash")) or state == "unknown"
    _do(client, state, {name: act for name, act in FAMILY.items() if knows_parent or name != "unlinked"})


def _do(client: Participant, state: str, acts: Mapping[str, Step]) -> None:
    """Do everything to a job in this state, each to another one; the neighbours stay where they are."""
    for name, act in acts.items():
        prepared = _prepare(client, state, name)
        # That Node refuses it as well, and why, is compared with the other answers.
        with suppress(OperationFailed):
            act(prepared)
        places = {"wait": "paused"} if prepared.queue.redis.elements("paused") else {}
        stay = {job: [places.get(place, place)] for job, place in NEIGHBOURS.items()}
        equal({job: prepared.queue.redis.state(job) for job in NEIGHBOURS}, stay, f"{name}: other jobs stay")


@pytest.mark.parametrize("state", STATES)
@scenario(
    *("lifecycle.remove.waiting", "getters.promote.wrong-state", "getters.change-delay", "getters.change-priority"),
    "retry.manual",
    tier="full",
)
@also_in_core("active-with-attempts | active-without-lock")
def test_by_hand(client: Participant, state: str) -> None:
    """A job is removed, promoted, put off, given another priority, or retried, wherever it is."""
    _do(client, state, OPERATOR)


@scenario("paused.everything-parks")
def test_by_hand_in_a_paused_queue(client: Participant) -> None:
    """A parked job is changed in all these ways; only its removal differs, by its event (`event.removed`)."""
    _do(client, "paused", {name: act for name, act in OPERATOR.items() if not name.startswith("removed")})
    _ask(client, "paused")
    _work(client, "paused", TOKEN)


@pytest.mark.parametrize("state", ODD_STATES)
@scenario(
    *("lifecycle.remove.waiting", "getters.promote.wrong-state", "getters.change-delay", "getters.change-priority"),
    "retry.manual",
    tier="full",
    without=LOST,
)
@also_in_core("unknown")
def test_by_hand_when_something_was_lost(client: Participant, state: str) -> None:
    """A job whose hash or place was lost is removed, promoted, put off, given another priority, or retried."""
    _do(client, state, OPERATOR)


@pytest.mark.parametrize("state", ["wait", "active", "completed", "failed", "waiting-children"])
@scenario("progress.stored", "data.updated", "log.appended", "log.keep", "log.cleared", tier="full")
@also_in_core("wait")
def test_by_writing(client: Participant, state: str) -> None:
    """Progress, data and log of a job are written, wherever it is."""
    _do(client, state, WRITING)


@pytest.mark.parametrize("state", ODD_STATES)
@scenario("progress.missing-job", "data.missing-job", "log.cleared", tier="full", without=LOST)
@also_in_core("wait-without-hash")
def test_by_writing_when_something_was_lost(client: Participant, state: str) -> None:
    """Nothing is written to a job without hash, in whichever list its id is."""
    _do(client, state, {name: WRITING[name] for name in ("progress", "data", "no-log")})


@pytest.mark.parametrize("state", [state for state in STATES if state not in STARTED or state == "active"])
@scenario("flow.unlink", "flow.remove.unprocessed", "dedup.key-removal", tier="full")
def test_by_parting(client: Participant, state: str) -> None:
    """A job is parted from its parent, from its children and from its id, wherever it is."""
    _part(client, state)


@pytest.mark.parametrize("state", ODD_STATES)
@scenario("flow.unlink", "flow.remove.unprocessed", "dedup.key-removal", tier="full", without=LOST)
@also_in_core("in-no-list | wait-without-hash")
def test_by_parting_when_something_was_lost(client: Participant, state: str) -> None:
    """A job whose hash or place was lost is parted from its parent, from its children and from its id."""
    _part(client, state)


def _asked(job: str) -> tuple[Op[Any], ...]:
    return (
        *(queue_ops.GetJob(job=job), queue_ops.GetJobState(job=job), queue_ops.GetJobLogs(job=job)),
        *(job_ops.GetState(job=job), job_ops.IsFinished(job=job), job_ops.GetDependencies(job=job)),
        *(job_ops.GetDependenciesCount(job=job), job_ops.GetChildrenValues(job=job)),
        job_ops.GetIgnoredChildrenFailures(job=job),
    )


def _ask(client: Participant, state: str) -> None:
    prepared = _prepare(client, state, "asked")
    before = prepared.queue.redis.hash(prepared.job)
    for op in _asked(prepared.job):
        with suppress(OperationFailed):
            prepared.queue.call(op)
    equal(prepared.queue.redis.hash(prepared.job), before, "reading the job changes nothing")


@pytest.mark.parametrize("state", STATES)
@scenario("getters.job", "getters.state", "log.read", "flow.children-values", "flow.fail.ignore", tier="full")
@also_in_core("waiting-children")
def test_by_asking(client: Participant, state: str) -> None:
    """A job is read, wherever it is."""
    _ask(client, state)


@pytest.mark.parametrize("state", ODD_STATES)
@scenario("getters.job", "getters.state", "log.read", "flow.children-values", tier="full", without=LOST)
@also_in_core("unknown")
def test_by_asking_when_something_was_lost(client: Participant, state: str) -> None:
    """A job whose hash or place was lost is read."""
    _ask(client, state)


def _work(client: Participant, state: str, token: str) -> None:
    for name, act in WORKING.items():
        prepared = _prepare(client, state, name)
        prepared.worker.claim("token-of-the-next")
        # That Node refuses it as well, and why, is compared with the other answers.
        with suppress(OperationFailed):
            act(prepared, token)


@pytest.mark.parametrize(
    ("state", "token"),
    [*((state, TOKEN) for state in STATES), *((state, ANOTHER) for state in STARTED)],
    ids=[*STATES, *(f"{state}-wrong-token" for state in STARTED)],
)
@scenario(
    *("lifecycle.complete.not-active", "lock.missing-refused", "lock.stale-token-refused", "lock.extend"),
    *("lifecycle.fail.moves", "order.delayed.score", "ratelimit.job-goes-back", "lock.extend-many"),
    "flow.pending-children-refuse-completion",
    tier="full",
)
@also_in_core("parent-token-1 | prioritized-token-1 | waiting-children-token-1")
def test_by_a_worker(client: Participant, state: str, token: str) -> None:
    """A worker ends a job, puts it back or keeps it, whether it has that job or not."""
    _work(client, state, token)


@pytest.mark.parametrize("state", ODD_STATES)
@scenario(
    *("lifecycle.complete.missing", "lock.missing-refused", "lock.stale-token-refused", "lock.extend"),
    *("lifecycle.fail.moves", "order.delayed.score", "ratelimit.job-goes-back", "lock.extend-many"),
    tier="full",
    without=LOST,
)
@also_in_core("unknown | wait-without-hash")
def test_by_a_worker_when_something_was_lost(client: Participant, state: str) -> None:
    """A worker ends, puts back or keeps a job whose hash or place was lost."""
    _work(client, state, TOKEN)
