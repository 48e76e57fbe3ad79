"""Two things at once, in every order that Redis can see: either may come first, and never half of both happens."""

from __future__ import annotations

import pytest

from conformance.participants.expect import equal
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.races import Contender, claimed_id, drain, interleave, interleavings, obliterate


@interleavings("fetch", "pause")
@scenario("race.pause-and-fetch")
def test_a_pause_meets_a_fetch(client: Participant, interleaving: str) -> None:
    """A job fetched before the pause stays with its worker; after it no job is fetched."""
    queue, worker = client.queue(), client.worker()
    queue.add("first")
    queue.add("second")
    fetch, pause = Contender("moveToActive", lambda: claimed_id(worker)), Contender("pause", queue.pause)
    race = interleave(client, interleaving, fetch=fetch, pause=pause)
    fetched = race.first == "fetch"
    equal(race.outcomes, {"fetch": "1" if fetched else None, "pause": None}, "only a fetch before the pause gets a job")
    # Both calls are over, so that this claim only shows what the race has left.
    equal(claimed_id(worker, "token-2"), None, "nothing more is handed out")
    equal(queue.redis.elements("active"), ["1"] if fetched else [], "the pause takes nothing away")
    equal(queue.redis.exists("1:lock"), fetched, "the fetched job is still locked")


@interleavings("retry", "removal")
@scenario("race.retry-and-remove")
def test_a_retry_meets_a_removal(client: Participant, interleaving: str) -> None:
    """In either order the job is gone afterwards, also from `wait`."""
    queue, other, worker = client.queue(), client.queue(), client.worker()
    queue.add("failed")
    worker.claim_one()
    worker.fail("1")
    retry = Contender("reprocessJob", lambda: queue.retry("1"))
    # Another handle, because a driver may answer the calls of one handle in turn.
    race = interleave(client, interleaving, retry=retry, removal=Contender("removeJob", lambda: other.remove("1")))
    refused = None if race.first == "retry" else "missing-job"
    equal(race.outcomes, {"retry": refused, "removal": 1}, "the removal removes; a retry after it is refused")
    equal((queue.redis.state("1"), queue.redis.exists("1")), ([], False), "nothing is left of the job")


@interleavings("promotion", "fetch")
@scenario("race.promote-and-due")
def test_a_promotion_meets_the_time(client: Participant, interleaving: str) -> None:
    """A fetch promotes what is due: then there is nothing left to promote by hand."""
    queue, worker = client.queue(), client.worker()
    queue.add("due", {}, delay=50)
    # Twice the delay: the job must be due for both contenders.
    client.pass_time(100)
    promotion, fetch = (
        Contender("promote", lambda: queue.promote("1")),
        Contender("moveToActive", lambda: claimed_id(worker)),
    )
    race = interleave(client, interleaving, promotion=promotion, fetch=fetch)
    refused = None if race.first == "promotion" else "wrong-state"
    equal(race.outcomes, {"promotion": refused, "fetch": "1"}, "the job is moved once, by the first")
    equal(queue.redis.state("1"), ["active"], "the job is in one place")
    equal(claimed_id(worker, "token-2"), None, "it is handed out once")


@interleavings("addition", "drain")
@scenario("race.add-and-drain")
def test_an_addition_meets_a_drain(client: Participant, interleaving: str) -> None:
    """The new job goes with the others, or stays as a whole."""
    queue, other = client.queue(), client.queue()
    queue.add("old")
    race = interleave(
        client,
        interleaving,
        addition=Contender("addStandardJob", lambda: queue.add("new")),
        drain=Contender("drain", lambda: drain(other)),
    )
    kept = race.first == "drain"
    equal(race.outcomes, {"addition": "2", "drain": None}, "both return their usual results")
    equal(queue.redis.elements("wait"), ["2"] if kept else [], "jobs added after the drain wait")
    equal((queue.redis.exists("1"), queue.redis.exists("2")), (False, kept), "no other hash is left")


@interleavings("addition", "obliteration")
@scenario("race.add-and-obliterate")
def test_an_addition_meets_an_obliteration(client: Participant, interleaving: str) -> None:
    """Before its last step the new job goes with the queue; after it, it is the first of a new one."""
    queue, other = client.queue(), client.queue()
    queue.add("old")
    race = interleave(
        client,
        interleaving,
        addition=Contender("addStandardJob", lambda: queue.add("new")),
        obliteration=Contender("obliterate", lambda: obliterate(other)),
    )
    kept = race.first == "obliteration"
    # `obliterate` deletes the counter of ids, so ids show which of the two came first.
    equal(race.outcomes["addition"], "1" if kept else "2", "the ids start again at 1 after the obliteration")
    equal(queue.redis.elements("wait"), ["1"] if kept else [], "what was added after it waits")
    equal(queue.redis.elements("paused"), [], "nothing is left behind")
    equal((queue.redis.exists("1"), queue.redis.exists("2")), (kept, False), "no other hash is left")


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "removed"])
@interleavings("progress", "completion")
@scenario("race.progress-and-finish")
def test_a_progress_meets_the_completion(client: Participant, interleaving: str, *, kept: bool) -> None:
    """It is stored in either order, and refused where the completion has removed the job."""
    queue, worker = client.queue(), client.worker()
    queue.add("work", {}, removeOnComplete=not kept)
    worker.claim_one()
    race = interleave(
        client,
        interleaving,
        progress=Contender("updateProgress", lambda: queue.progress("1", 50)),
        completion=Contender("moveToFinished", lambda: worker.complete("1")),
    )
    if not kept:
        equal(queue.redis.members("completed"), [], "the job is removed", where="row.lifecycle.remove-on-complete.all")
    too_late = race.first == "completion" and not kept
    equal(race.outcomes, {"progress": "missing-job" if too_late else None, "completion": None}, "nothing else happens")
    equal(queue.redis.exists("1"), kept, "a job that is gone is not created again")
    if kept:
        equal(queue.redis.json("1", "progress"), 50, "the progress is stored")


@interleavings("one", "other")
@scenario("race.same-id")
def test_two_producers_add_one_id(client: Participant, interleaving: str) -> None:
    """The job of the first producer is stored, and both adds return its id."""
    one, other = client.queue(), client.queue()
    race = interleave(
        client,
        interleaving,
        one=Contender("addStandardJob", lambda: one.add("one", {"of": "one"}, jobId="same")),
        other=Contender("addStandardJob", lambda: other.add("other", {"of": "other"}, jobId="same")),
    )
    equal(race.outcomes, {"one": "same", "other": "same"}, "both are answered the id")
    equal(one.redis.elements("wait"), ["same"], "there is one job")
    equal(one.redis.json("same", "data"), {"of": race.first}, "it is the first one's")
    equal(one.redis.event_names(), ["added", "waiting", "duplicated"], "the second add leaves `duplicated`")
