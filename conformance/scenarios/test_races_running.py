"""The races again, two hundred times each, between the client and Node, without holding any call."""

from __future__ import annotations

from typing import Any

from conformance.participants.expect import equal
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import shared
from conformance.participants.participant import Participant
from conformance.scenarios.support.races import (
    ROUNDS,
    RaceRound,
    RacingClient,
    RoundOutcome,
    claimed_id,
    drain,
    obliterate,
    place_of,
    race_repeatedly,
)
from conformance.scenarios.support.steps import check_stalled_again


def _add_and_claim(racer: RacingClient, **opts: Any) -> str:
    """A job that this client's worker holds."""
    job = racer.queue.add("contended", {}, **opts)
    equal(claimed_id(racer.worker), job, "the new job is the only one to claim")
    return job


def _suspected(one: RacingClient, other: RacingClient) -> str:
    """A job of the one client that a stalled check of the other has marked, before the next check is due."""
    job = _add_and_claim(one)
    _check(other)
    return job


def _check(racer: RacingClient) -> int:
    """A stalled check that is due; how many jobs it puts back."""
    return len(check_stalled_again(racer.queue, racer.worker))


def _check_without_lock(racer: RacingClient, job: str) -> int:
    """The lock expires, and then a check is due."""
    racer.queue.redis.delete(f"{job}:lock")
    return _check(racer)


def _observe_and_clear(queue: QueueHandle, job: str) -> str:
    """The place of the job; a job that is not finished is removed."""
    place = place_of(queue, job)
    # A job left in `wait` or `active` would be claimed in the next round.
    if place in {"wait", "active"}:
        queue.remove(job)
    return place


@shared("stalled.race.one-outcome", tier="full", slow=True)
def test_completions_meet_checks(client: Participant, oracle: Participant) -> None:
    """The lock expires, a check is due, and the worker completes the job."""

    def prepare(_number: int, one: RacingClient, other: RacingClient) -> RaceRound:
        job = _suspected(one, other)
        return RaceRound(
            lambda: one.worker.complete(job, "done"),
            lambda: _check_without_lock(other, job),
            lambda: _observe_and_clear(one.queue, job),
        )

    completed = RoundOutcome(first=None, second=0, observed="completed")
    recovered = RoundOutcome(first="missing-lock", second=1, observed="wait")
    race_repeatedly(client, oracle, prepare, {completed, recovered})


@shared("race.next-owner", tier="full", slow=True)
def test_completions_meet_the_next_owners(client: Participant, oracle: Participant) -> None:
    """The lock expires, a check puts the job back, another worker claims it, and the first one completes it."""

    def prepare(_number: int, one: RacingClient, other: RacingClient) -> RaceRound:
        job = _suspected(one, other)

        def take_over() -> bool:
            _check_without_lock(other, job)
            return claimed_id(other.worker, "token-next") == job

        def observe() -> str:
            place = place_of(one.queue, job)
            if place == "active":
                other.worker.complete(job, "next", "token-next")
            return f"{place}, then {one.queue.redis.field(job, 'returnvalue')}"

        return RaceRound(lambda: one.worker.complete(job, "late"), take_over, observe)

    in_time = RoundOutcome(first=None, second=False, observed='completed, then "late"')
    # The lock is missing between the check and the next claim, and belongs to the new owner afterwards.
    too_late = {
        RoundOutcome(first=code, second=True, observed='active, then "next"')
        for code in ("missing-lock", "lock-mismatch")
    }
    race_repeatedly(client, oracle, prepare, {in_time, *too_late})


@shared("race.extend-and-stalled", tier="full", slow=True)
def test_renewals_meet_checks(client: Participant, oracle: Participant) -> None:
    """The lock expires, a check is due, and the worker renews the lock."""

    def prepare(_number: int, one: RacingClient, other: RacingClient) -> RaceRound:
        job = _suspected(one, other)

        def observe() -> str:
            locked = one.queue.redis.exists(f"{job}:lock")
            return _observe_and_clear(one.queue, job) + (" with lock" if locked else "")

        return RaceRound(lambda: one.worker.extend_lock(job, 60_000), lambda: _check_without_lock(other, job), observe)

    renewed = RoundOutcome(first=True, second=0, observed="active")
    recovered = RoundOutcome(first=False, second=1, observed="wait")
    race_repeatedly(client, oracle, prepare, {renewed, recovered})


@shared("race.one-token", tier="full", slow=True)
def test_two_workers_with_one_token(client: Participant, oracle: Participant) -> None:
    """One completes the job and the other fails it, under the same token."""

    def prepare(_number: int, one: RacingClient, other: RacingClient) -> RaceRound:
        job = _add_and_claim(one)
        return RaceRound(
            lambda: one.worker.complete(job),
            lambda: other.worker.fail(job),
            lambda: (place_of(one.queue, job), one.queue.redis.field(job, "atm")),
        )

    completed = RoundOutcome(first=None, second="missing-lock", observed=("completed", "1"))
    failed = RoundOutcome(first="missing-lock", second=None, observed=("failed", "1"))
    race_repeatedly(client, oracle, prepare, {completed, failed})


def _race_a_pause_with_a_fetch(client: Participant, oracle: Participant, *, parked_in: str) -> None:
    """`parked_in`: where a job is that was not claimed before the pause."""

    def prepare(_number: int, one: RacingClient, other: RacingClient) -> RaceRound:
        # The stream of this round only, so that its events can be compared as a whole.
        one.queue.redis.delete("events")
        job = one.queue.add("contended")

        def observe() -> tuple[str, str]:
            # The first two entries are those of the addition.
            place, events = place_of(one.queue, job), one.queue.redis.event_names()[2:]
            # Resumed after reading, because the resume moves the job again.
            one.queue.resume()
            if place == "active":
                other.worker.complete(job)
            drain(one.queue)
            return place, " ".join(events)

        return RaceRound(one.queue.pause, lambda: claimed_id(other.worker) == job, observe)

    claimed = RoundOutcome(first=None, second=True, observed=("active", "active paused"))
    parked = RoundOutcome(first=None, second=False, observed=(parked_in, "paused"))
    race_repeatedly(client, oracle, prepare, {claimed, parked})


@shared("race.pause-and-fetch", tier="full", slow=True, bullmq="<6")
def test_pauses_meet_fetches(client: Participant, oracle: Participant) -> None:
    """One pauses the queue, and the other claims a job."""
    _race_a_pause_with_a_fetch(client, oracle, parked_in="paused")


@shared("race.pause-and-fetch", tier="full", slow=True, bullmq=">=6")
def test_pauses_that_move_nothing_meet_fetches(client: Participant, oracle: Participant) -> None:
    """One pauses the queue, and the other claims a job."""
    _race_a_pause_with_a_fetch(client, oracle, parked_in="wait")


@shared("race.retry-and-remove", tier="full", slow=True)
def test_retries_meet_removals(client: Participant, oracle: Participant) -> None:
    """One retries a failed job, and the other removes it."""

    def prepare(_number: int, one: RacingClient, other: RacingClient) -> RaceRound:
        job = _add_and_claim(one)
        one.worker.fail(job)
        return RaceRound(
            lambda: one.queue.retry(job), lambda: other.queue.remove(job), lambda: _observe_and_clear(one.queue, job)
        )

    retried = RoundOutcome(first=None, second=1, observed="gone")
    too_late = RoundOutcome(first="missing-job", second=1, observed="gone")
    race_repeatedly(client, oracle, prepare, {retried, too_late})


@shared("race.promote-and-due", tier="full", slow=True)
def test_promotions_meet_the_time(client: Participant, oracle: Participant) -> None:
    """One promotes a job that is due, and the other claims the next job."""

    def prepare(_number: int, one: RacingClient, other: RacingClient) -> RaceRound:
        job = one.queue.add("due", {}, delay=1)
        # More than the delay of 1 ms, so that the job is due for both calls.
        one.participant.pass_time(3)

        def observe() -> str:
            place = place_of(one.queue, job)
            other.worker.complete(job)
            return place

        return RaceRound(lambda: one.queue.promote(job), lambda: claimed_id(other.worker) == job, observe)

    promoted = RoundOutcome(first=None, second=True, observed="active")
    too_late = RoundOutcome(first="wrong-state", second=True, observed="active")
    race_repeatedly(client, oracle, prepare, {promoted, too_late})


@shared("race.add-and-drain", tier="full", slow=True)
def test_additions_meet_drains(client: Participant, oracle: Participant) -> None:
    """One adds a job, and the other drains the queue."""

    def prepare(number: int, one: RacingClient, other: RacingClient) -> RaceRound:
        one.queue.add("old")
        job = f"new-{number}"
        return RaceRound(
            lambda: one.queue.add("new", {}, jobId=job) == job,
            lambda: drain(other.queue),
            lambda: _observe_and_clear(one.queue, job),
        )

    kept = RoundOutcome(first=True, second=None, observed="wait")
    drained = RoundOutcome(first=True, second=None, observed="gone")
    race_repeatedly(client, oracle, prepare, {kept, drained})


@shared("race.add-and-obliterate", tier="full", slow=True)
def test_additions_meet_obliterations(client: Participant, oracle: Participant) -> None:
    """One adds a job, and the other obliterates the queue."""

    def prepare(number: int, one: RacingClient, other: RacingClient) -> RaceRound:
        one.queue.add("old")
        job = f"new-{number}"
        return RaceRound(
            lambda: one.queue.add("new", {}, jobId=job) == job,
            lambda: obliterate(other.queue),
            lambda: (_observe_and_clear(one.queue, job), one.queue.redis.exists("paused")),
        )

    kept = RoundOutcome(first=True, second=None, observed=("wait", False))
    obliterated = RoundOutcome(first=True, second=None, observed=("gone", False))
    race_repeatedly(client, oracle, prepare, {kept, obliterated})


@shared("race.progress-and-finish", tier="full", slow=True)
def test_progress_meets_completions(client: Participant, oracle: Participant) -> None:
    """One completes a job, which removes it, and the other sets its progress."""

    def prepare(_number: int, one: RacingClient, other: RacingClient) -> RaceRound:
        job = _add_and_claim(one, removeOnComplete=True)
        return RaceRound(
            lambda: one.worker.complete(job), lambda: other.queue.progress(job, 50), lambda: place_of(one.queue, job)
        )

    stored = RoundOutcome(first=None, second=None, observed="gone")
    too_late = RoundOutcome(first=None, second="missing-job", observed="gone")
    race_repeatedly(client, oracle, prepare, {stored, too_late})


@shared("race.same-id", tier="full", slow=True)
def test_producers_add_the_same_ids(client: Participant, oracle: Participant) -> None:
    """Both add a job under one id."""

    def prepare(number: int, one: RacingClient, other: RacingClient) -> RaceRound:
        job = f"same-{number}"

        def add(racer: RacingClient, name: str) -> bool:
            return racer.queue.add(name, {"of": name}, jobId=job) == job

        def observe() -> tuple[int, bool]:
            fields = one.queue.redis.hash(job)
            # Both fields must be of one producer: a mixture of two adds would be a torn write.
            return one.queue.redis.elements("wait").count(job), fields["name"] in fields["data"]

        return RaceRound(lambda: add(one, "one"), lambda: add(other, "other"), observe)

    one_job = RoundOutcome(first=True, second=True, observed=(1, True))
    race_repeatedly(client, oracle, prepare, {one_job})
    # A duplicate in every round shows that both adds reached Redis each time.
    duplicates = client.redis().event_names().count("duplicated")
    equal(duplicates, ROUNDS, "in every round exactly one add was a duplicate")
