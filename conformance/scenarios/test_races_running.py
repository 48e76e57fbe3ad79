"""The races again, two hundred times each, between the client and Node, with nobody who holds them up."""

from __future__ import annotations

from typing import Any

from conformance.participants.expect import equal
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import shared
from conformance.participants.participant import Participant
from conformance.scenarios.free_running import ROUNDS, Round, Side, place_of, race_often
from conformance.scenarios.race_steps import claimed, drain, obliterate


def _add_and_claim(side: Side, **opts: Any) -> str:
    """A job that this side's worker holds."""
    job = side.queue.add("contended", {}, **opts)
    equal(claimed(side.worker), job, "the new job is the only one to claim")
    return job


def _suspected(one: Side, other: Side) -> str:
    """A job of the one side that a stalled check of the other has marked, before the next check is due."""
    job = _add_and_claim(one)
    _check(other)
    return job


def _check(side: Side) -> int:
    """A stalled check that is due; how many jobs it puts back."""
    side.queue.redis.delete("stalled-check")
    return len(side.worker.check_stalled())


def _check_without_lock(side: Side, job: str) -> int:
    """The lock expires, and then a check is due."""
    side.queue.redis.delete(f"{job}:lock")
    return _check(side)


def _look_and_clear(queue: QueueHandle, job: str) -> str:
    """Where the job is now; what is not finished is removed."""
    place = place_of(queue, job)
    if place in {"wait", "active"}:
        queue.remove(job)
    return place


@shared("stalled.race.one-outcome", tier="full", slow=True)
def test_completions_meet_checks(client: Participant, oracle: Participant) -> None:
    """The lock expires, a check is due, and the worker completes the job."""

    def stage(_number: int, one: Side, other: Side) -> Round:
        job = _suspected(one, other)
        return Round(
            lambda: one.worker.complete(job, "done"),
            lambda: _check_without_lock(other, job),
            lambda: _look_and_clear(one.queue, job),
        )

    race_often(client, oracle, stage, {(None, 0, "completed"), ("missing-lock", 1, "wait")})


@shared("race.next-owner", tier="full", slow=True)
def test_completions_meet_the_next_owners(client: Participant, oracle: Participant) -> None:
    """The lock expires, a check puts the job back, another worker claims it, and the first one completes it."""

    def stage(_number: int, one: Side, other: Side) -> Round:
        job = _suspected(one, other)

        def take_over() -> bool:
            _check_without_lock(other, job)
            return claimed(other.worker, "token-next") == job

        def look() -> str:
            place = place_of(one.queue, job)
            if place == "active":
                other.worker.complete(job, "next", "token-next")
            return f"{place}, then {one.queue.redis.field(job, 'returnvalue')}"

        return Round(lambda: one.worker.complete(job, "late"), take_over, look)

    late = {(code, True, 'active, then "next"') for code in ("missing-lock", "lock-mismatch")}
    race_often(client, oracle, stage, {(None, False, 'completed, then "late"'), *late})


@shared("race.extend-and-stalled", tier="full", slow=True)
def test_renewals_meet_checks(client: Participant, oracle: Participant) -> None:
    """The lock expires, a check is due, and the worker renews the lock."""

    def stage(_number: int, one: Side, other: Side) -> Round:
        job = _suspected(one, other)

        def look() -> str:
            locked = one.queue.redis.exists(f"{job}:lock")
            return _look_and_clear(one.queue, job) + (" with lock" if locked else "")

        return Round(lambda: one.worker.extend_lock(job, 60_000), lambda: _check_without_lock(other, job), look)

    race_often(client, oracle, stage, {(True, 0, "active"), (False, 1, "wait")})


@shared("race.one-token", tier="full", slow=True)
def test_two_workers_with_one_token(client: Participant, oracle: Participant) -> None:
    """One completes the job and the other fails it, under the same token."""

    def stage(_number: int, one: Side, other: Side) -> Round:
        job = _add_and_claim(one)
        return Round(
            lambda: one.worker.complete(job),
            lambda: other.worker.fail(job),
            lambda: (place_of(one.queue, job), one.queue.redis.field(job, "atm")),
        )

    refused = "missing-lock"
    race_often(client, oracle, stage, {(None, refused, ("completed", "1")), (refused, None, ("failed", "1"))})


@shared("race.pause-and-fetch", tier="full", slow=True)
def test_pauses_meet_fetches(client: Participant, oracle: Participant) -> None:
    """One pauses the queue, and the other claims a job."""

    def stage(_number: int, one: Side, other: Side) -> Round:
        one.queue.redis.delete("events")
        job = one.queue.add("contended")

        def look() -> tuple[str, str]:
            place, events = place_of(one.queue, job), one.queue.redis.event_names()[2:]
            one.queue.resume()
            if place == "active":
                other.worker.complete(job)
            drain(one.queue)
            return place, " ".join(events)

        return Round(one.queue.pause, lambda: claimed(other.worker) == job, look)

    race_often(client, oracle, stage, {(None, True, ("active", "active paused")), (None, False, ("paused", "paused"))})


@shared("race.retry-and-remove", tier="full", slow=True)
def test_retries_meet_removals(client: Participant, oracle: Participant) -> None:
    """One retries a failed job, and the other removes it."""

    def stage(_number: int, one: Side, other: Side) -> Round:
        job = _add_and_claim(one)
        one.worker.fail(job)
        return Round(
            lambda: one.queue.retry(job), lambda: other.queue.remove(job), lambda: _look_and_clear(one.queue, job)
        )

    race_often(client, oracle, stage, {(None, 1, "gone"), ("missing-job", 1, "gone")})


@shared("race.promote-and-due", tier="full", slow=True)
def test_promotions_meet_the_time(client: Participant, oracle: Participant) -> None:
    """One promotes a job that is due, and the other claims the next job."""

    def stage(_number: int, one: Side, other: Side) -> Round:
        job = one.queue.add("due", {}, delay=1)
        one.participant.pass_time(3)

        def look() -> str:
            place = place_of(one.queue, job)
            other.worker.complete(job)
            return place

        return Round(lambda: one.queue.promote(job), lambda: claimed(other.worker) == job, look)

    race_often(client, oracle, stage, {(None, True, "active"), ("wrong-state", True, "active")})


@shared("race.add-and-drain", tier="full", slow=True)
def test_additions_meet_drains(client: Participant, oracle: Participant) -> None:
    """One adds a job, and the other drains the queue."""

    def stage(number: int, one: Side, other: Side) -> Round:
        one.queue.add("old")
        job = f"new-{number}"
        return Round(
            lambda: one.queue.add("new", {}, jobId=job) == job,
            lambda: drain(other.queue),
            lambda: _look_and_clear(one.queue, job),
        )

    race_often(client, oracle, stage, {(True, None, "wait"), (True, None, "gone")})


@shared("race.add-and-obliterate", tier="full", slow=True)
def test_additions_meet_obliterations(client: Participant, oracle: Participant) -> None:
    """One adds a job, and the other obliterates the queue."""

    def stage(number: int, one: Side, other: Side) -> Round:
        one.queue.add("old")
        job = f"new-{number}"
        return Round(
            lambda: one.queue.add("new", {}, jobId=job) == job,
            lambda: obliterate(other.queue),
            lambda: (_look_and_clear(one.queue, job), one.queue.redis.exists("paused")),
        )

    race_often(client, oracle, stage, {(True, None, ("wait", False)), (True, None, ("gone", False))})


@shared("race.progress-and-finish", tier="full", slow=True)
def test_progress_meets_completions(client: Participant, oracle: Participant) -> None:
    """One completes a job, which removes it, and the other sets its progress."""

    def stage(_number: int, one: Side, other: Side) -> Round:
        job = _add_and_claim(one, removeOnComplete=True)
        return Round(
            lambda: one.worker.complete(job), lambda: other.queue.progress(job, 50), lambda: place_of(one.queue, job)
        )

    race_often(client, oracle, stage, {(None, None, "gone"), (None, "missing-job", "gone")})


@shared("race.same-id", tier="full", slow=True)
def test_producers_add_the_same_ids(client: Participant, oracle: Participant) -> None:
    """Both add a job under one id."""

    def stage(number: int, one: Side, other: Side) -> Round:
        job = f"same-{number}"

        def add(side: Side, name: str) -> bool:
            return side.queue.add(name, {"of": name}, jobId=job) == job

        def look() -> tuple[int, bool]:
            fields = one.queue.redis.hash(job)
            return one.queue.redis.elements("wait").count(job), fields["name"] in fields["data"]

        return Round(lambda: add(one, "one"), lambda: add(other, "other"), look)

    race_often(client, oracle, stage, {(True, True, (1, True))})
    duplicates = client.redis().event_names().count("duplicated")
    equal(duplicates, ROUNDS, "in every round exactly one was told to be a duplicate")
