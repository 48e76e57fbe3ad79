"""Calls of workers and of parents that scripts refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from conformance.driver.ops import job, worker
from conformance.participants.handles import WorkerHandle
from conformance.participants.participant import Participant
from conformance.protocol.errors import ErrorCode
from conformance.scenarios.flow_steps import node
from conformance.scenarios.refusal_steps import (
    LATER_MS,
    TOKEN,
    Attempt,
    Finish,
    Prepare,
    Refusal,
    claimed,
    give_a_child,
    lose,
    parent_of,
)


def refusals_of_workers() -> Iterator[Refusal]:
    """All of them, by script."""
    yield from _of_workers()
    yield from _of_flows()


def _of_workers() -> Iterator[Refusal]:
    finishes: dict[str, Finish] = {
        "moveToFinished": lambda _, runner: runner.complete("1"),
        "retryJob": lambda _, runner: runner.fail("1"),
        "moveToDelayed": lambda _, runner: runner.call(
            worker.MoveToDelayed(job="1", token=TOKEN, timestamp=LATER_MS + runner.caller.clock.now_ms())
        ),
        "moveJobFromActiveToWait": lambda _, runner: runner.call(worker.MoveToWait(job="1", token=TOKEN)),
        "moveToWaitingChildren": lambda _, runner: runner.wait_for_children("1"),
    }
    for script, finish in finishes.items():
        yield Refusal(script, ErrorCode.MISSING_JOB, _without_its_hash(finish))
        children = script == "moveToWaitingChildren"
        yield Refusal(script, ErrorCode.MISSING_LOCK, _without_its_lock(finish, children=children))
        yield Refusal(script, ErrorCode.LOCK_MISMATCH, _with_the_lock_of_another(finish, children=children))
        if script != "moveJobFromActiveToWait":
            yield Refusal(script, ErrorCode.WRONG_STATE, _while_it_waits(finish, children=children))


def _without_its_hash(finish: Finish) -> Prepare:
    def prepare(client: Participant) -> Attempt:
        jobs, runner = claimed(client)
        mend = lose(jobs, "1")
        return Attempt(lambda: finish(jobs, runner), mend)

    return prepare


def _without_its_lock(finish: Finish, *, children: bool) -> Prepare:
    def prepare(client: Participant) -> Attempt:
        jobs, runner = claimed(client, children=children)
        jobs.redis.delete("1:lock")
        return Attempt(lambda: finish(jobs, runner))

    return prepare


def _with_the_lock_of_another(finish: Finish, *, children: bool) -> Prepare:
    def prepare(client: Participant) -> Attempt:
        jobs, runner = claimed(client, children=children)
        jobs.redis.set_string("1:lock", "another token", ttl_ms=LATER_MS)
        return Attempt(lambda: finish(jobs, runner))

    return prepare


def _while_it_waits(finish: Finish, *, children: bool) -> Prepare:
    def prepare(client: Participant) -> Attempt:
        jobs, runner = client.queue(), client.worker()
        jobs.add(attempts=2)
        if children:
            give_a_child(jobs)
        jobs.redis.set_string("1:lock", TOKEN, ttl_ms=LATER_MS)
        return Attempt(lambda: finish(jobs, runner), lambda: jobs.redis.delete("1:lock"))

    return prepare


# Flows


def _of_flows() -> Iterator[Refusal]:
    yield Refusal("moveToFinished", ErrorCode.PENDING_DEPENDENCIES, _complete_too_early)
    yield Refusal("moveToFinished", ErrorCode.FAILED_CHILDREN, _after_a_failed_child(WorkerHandle.complete))
    yield Refusal(
        "moveToWaitingChildren", ErrorCode.FAILED_CHILDREN, _after_a_failed_child(WorkerHandle.wait_for_children)
    )
    yield Refusal("removeChildDependency", ErrorCode.MISSING_JOB, _leave_without("child"))
    yield Refusal("removeChildDependency", ErrorCode.MISSING_PARENT, _leave_without("parent"))


def _complete_too_early(client: Participant) -> Attempt:
    _, runner = claimed(client, children=True)
    return Attempt(lambda: runner.complete("1"))


def _after_a_failed_child(finish: Callable[[WorkerHandle, str], object]) -> Prepare:
    def prepare(client: Participant) -> Attempt:
        jobs, runner = claimed(client)
        jobs.add(jobId="child", parent=parent_of(jobs, "1"), failParentOnFailure=True)
        runner.claim_one(TOKEN)
        runner.fail("child")
        return Attempt(lambda: finish(runner, "1"))

    return prepare


def _leave_without(gone: str) -> Prepare:
    """The hash of the child or of the parent is lost after the client has read the child, before the script runs."""

    def prepare(client: Participant) -> Attempt:
        jobs = client.queue()
        client.flow().add(node("parent", node("child")))
        mends: list[Callable[[], None]] = []

        def mend() -> None:
            for each in mends:
                each()

        def attempt() -> None:
            with client.tap.hold("removeChildDependency") as barrier:
                leaving = client.meanwhile(lambda: jobs.call(job.RemoveChildDependency(job="child")))
                barrier.wait()
                mends.append(lose(jobs, gone))
                barrier.release()
                leaving.result()

        return Attempt(attempt, mend)

    return prepare
