"""Two things at once that concern a lock, in every order that Redis can see: it decides whose job it is."""

from __future__ import annotations

from conformance.participants.expect import equal
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.races import BEFORE_SEND, Contender, claimed_id, interleave, interleavings
from conformance.scenarios.support.steps import check_stalled_again


def _suspected(client: Participant) -> tuple[QueueHandle, WorkerHandle, WorkerHandle]:
    """An active job that a stalled check has marked; its worker, and the one that checks."""
    queue, worker, checker = client.queue(), client.worker(), client.worker()
    queue.add("suspected")
    worker.claim_one()
    # Marked before the race: only a job that an earlier check has seen is put back.
    checker.check_stalled()
    return queue, worker, checker


def _check_without_lock(queue: QueueHandle, checker: WorkerHandle) -> list[str]:
    """The lock expires, and then the next check is due."""
    # Within the contender: the lock expires and the check is due at the same moment.
    queue.redis.delete("1:lock")
    return check_stalled_again(queue, checker)


@interleavings("completion", "check")
@scenario("stalled.race.one-outcome")
def test_a_completion_meets_a_check_without_lock(client: Participant, interleaving: str) -> None:
    """Completed or put back: it is completed if it came before the lock was gone, and put back otherwise."""
    queue, worker, checker = _suspected(client)
    completion = Contender("moveToFinished", lambda: worker.complete("1", "done"))
    check = Contender("moveStalledJobsToWait", lambda: _check_without_lock(queue, checker))
    race = interleave(client, interleaving, completion=completion, check=check)
    # Held after its execution, the completion has already used the lock.
    in_time = interleaving == "completion-unheard"
    equal(race.outcomes["completion"], None if in_time else "missing-lock", "the completion needs the lock")
    equal(race.outcomes["check"], [] if in_time else ["1"], "exactly one of them has taken effect")
    equal(queue.redis.state("1"), ["completed" if in_time else "wait"], "the job is where that one has put it")


@interleavings("completion", "check")
@scenario("stalled.race.one-outcome")
def test_a_completion_meets_a_check_with_lock(client: Participant, interleaving: str) -> None:
    """As long as the lock lives, the completion wins in every order."""
    queue, worker, checker = _suspected(client)
    completion = Contender("moveToFinished", lambda: worker.complete("1", "done"))
    check = Contender("moveStalledJobsToWait", lambda: check_stalled_again(queue, checker))
    race = interleave(client, interleaving, completion=completion, check=check)
    equal(race.outcomes, {"completion": None, "check": []}, "the job is completed and not put back")
    equal(queue.redis.state("1"), ["completed"], "the job is completed")
    equal(queue.redis.set_members("stalled"), [], "no job is marked as stalled")


@interleavings("completion", "check")
@scenario("stalled.race.one-outcome")
def test_a_completion_meets_the_first_check(client: Participant, interleaving: str) -> None:
    """When the lock is gone and no check has seen the job before, neither has an effect, and a later check has."""
    queue, worker, checker = client.queue(), client.worker(), client.worker()
    queue.add("unsuspected")
    worker.claim_one()
    queue.redis.delete("1:lock")
    completion = Contender("moveToFinished", lambda: worker.complete("1", "done"))
    check = Contender("moveStalledJobsToWait", lambda: check_stalled_again(queue, checker))
    race = interleave(client, interleaving, completion=completion, check=check)
    equal(race.outcomes, {"completion": "missing-lock", "check": []}, "neither has an effect")
    equal(queue.redis.state("1"), ["active"], "the job is still active")
    # The check of the race only marked the job.
    equal(check_stalled_again(queue, checker), ["1"], "a later check puts it back")


@scenario("race.next-owner")
def test_a_completion_meets_the_next_owner(client: Participant) -> None:
    """While it is under way, the job is recovered and claimed by another worker."""
    queue, worker, checker = _suspected(client)
    with client.tap.hold("moveToFinished", phase=BEFORE_SEND) as barrier:
        completion = client.meanwhile(lambda: worker.complete("1", "late"))
        # The completion has to be under way: made after the take-over, it would be no race but a plain refusal.
        barrier.wait()
        # The second check, because `_suspected` made the first.
        equal(_check_without_lock(queue, checker), ["1"], "the check puts the job back")
        equal(checker.claim_one("token-2").id, "1", "another worker claims it")
        barrier.release()
        with client.refuses("lock-mismatch", "the completion comes too late"):
            # A loop in the place of a manual worker does not say that it was refused: several waits of the kit run out.
            completion.result(within_ms=30_000)
    equal(queue.redis.string("1:lock"), "token-2", "the lock still belongs to the next owner")
    checker.complete("1", "right", "token-2")
    equal(
        queue.redis.field("1", "returnvalue"),
        '"right"',
        "the result of the next owner is stored",
        where="job.returnvalue",
    )


@interleavings("renewal", "check")
@scenario("race.extend-and-stalled")
def test_a_renewal_meets_a_check_with_lock(client: Participant, interleaving: str) -> None:
    """As long as the lock lives, the worker keeps its job; only a check after the renewal suspects it again."""
    queue, worker, checker = _suspected(client)
    renewal = Contender("extendLock", lambda: worker.extend_lock("1", 60_000))
    check = Contender("moveStalledJobsToWait", lambda: check_stalled_again(queue, checker))
    race = interleave(client, interleaving, renewal=renewal, check=check)
    equal(race.outcomes, {"renewal": True, "check": []}, "the lock decides")
    equal(queue.redis.state("1"), ["active"], "the job stays with its worker")
    # The renewal clears the mark, and the check sets it again.
    suspects = ["1"] if race.first == "renewal" else []
    equal(queue.redis.set_members("stalled"), suspects, "the later of the two counts", where="membership.stalled")


@interleavings("renewal", "check")
@scenario("race.extend-and-stalled")
def test_a_renewal_meets_a_check_without_lock(client: Participant, interleaving: str) -> None:
    """A renewal that comes too late does not create the lock again, and the job is put back."""
    queue, worker, checker = _suspected(client)
    renewal = Contender("extendLock", lambda: worker.extend_lock("1", 60_000))
    check = Contender("moveStalledJobsToWait", lambda: _check_without_lock(queue, checker))
    race = interleave(client, interleaving, renewal=renewal, check=check)
    in_time = interleaving == "renewal-unheard"
    equal(race.outcomes["renewal"], in_time, "only a lock that lives is renewed")
    equal(race.outcomes["check"], [] if in_time else ["1"], "a job that was renewed must be marked again first")
    equal(queue.redis.state("1"), ["active" if in_time else "wait"], "the job is where the check has left it")
    equal(queue.redis.exists("1:lock"), False, "no lock was created again")


@interleavings("one", "other")
@scenario("race.one-token")
def test_two_workers_finish_under_one_token(client: Participant, interleaving: str) -> None:
    """Only the token identifies the owner: the first of two workers with it finishes the job."""
    queue, one, other = client.queue(), client.worker(), client.worker()
    queue.add("shared")
    one.claim_one("token-same")
    race = interleave(
        client,
        interleaving,
        one=Contender("moveToFinished", lambda: one.complete("1", "one", "token-same")),
        other=Contender("moveToFinished", lambda: other.fail("1", "other", "token-same")),
    )
    second = "other" if race.first == "one" else "one"
    equal(race.outcomes, {race.first: None, second: "missing-lock"}, "only the first finishes the job")
    equal(queue.redis.state("1"), ["completed" if race.first == "one" else "failed"], "the first one's end counts")
    equal(queue.redis.field("1", "atm"), "1", "one attempt was made", where="job.atm")


@scenario("race.one-token")
def test_two_workers_claim_under_one_token(client: Participant) -> None:
    """Each gets a job of its own, and each lock holds for both."""
    queue, one, other = client.queue(), client.worker(), client.worker()
    queue.add("first")
    queue.add("second")
    equal([claimed_id(one, "token-same"), claimed_id(other, "token-same")], ["1", "2"], "each worker gets another job")
    equal(one.extend_lock("2", 60_000, "token-same"), True, "the token extends the other's lock")
    other.complete("1", "other", "token-same")
    one.complete("2", "one", "token-same")
    equal([queue.redis.state(job) for job in "12"], [["completed"]] * 2, "the token finishes the other's job")
