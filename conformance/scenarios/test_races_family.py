"""Two operations on a family at once: a parent is released exactly once, in every order of its children's ends."""

from __future__ import annotations

from typing import NamedTuple

from conformance.participants.expect import equal
from conformance.participants.handles import FlowHandle
from conformance.participants.marks import scenario, shared
from conformance.participants.participant import Participant
from conformance.scenarios.support.races import (
    ROUNDS,
    Contender,
    RaceRound,
    RacingClient,
    RoundOutcome,
    claimed_id,
    interleave,
    interleavings,
    place_of,
    race_repeatedly,
    waiting_events_of,
)
from conformance.scenarios.support.steps import children_of, node


@interleavings("one", "other")
@scenario("race.last-children")
def test_the_last_two_children_end_at_once(client: Participant, interleaving: str) -> None:
    """The second of them releases the parent, and both results are there."""
    flow, queue, one, other = client.flow(), client.queue(), client.worker(), client.worker()
    flow.add(node("family", node("c1"), node("c2")))
    one.claim_one("token-1")
    other.claim_one("token-2")
    race = interleave(
        client,
        interleaving,
        one=Contender("moveToFinished", lambda: one.complete("c1", 1, "token-1")),
        other=Contender("moveToFinished", lambda: other.complete("c2", 2, "token-2")),
    )
    equal(race.outcomes, {"one": None, "other": None}, "both children are completed")
    # Either order releases it: the second script finds `dependencies` empty.
    equal(queue.redis.state("family"), ["wait"], "the parent is released")
    equal(waiting_events_of(queue, "family"), 1, "it is released once")
    equal(children_of(queue, "family", "processed"), ["c1", "c2"], "both results are there")
    equal(queue.redis.type("family:dependencies"), "none", "the parent waits for no child")


@interleavings("removal", "claim")
@scenario("race.remove-child")
def test_a_removal_meets_the_claim_of_the_child(client: Participant, interleaving: str) -> None:
    """A child that is at work is not removed; one that is removed is not handed out, and its parent is."""
    flow, queue, worker = client.flow(), client.queue(), client.worker()
    flow.add(node("family", node("child")))
    removal, claim = (
        Contender("removeJob", lambda: queue.remove("child")),
        Contender("moveToActive", lambda: claimed_id(worker)),
    )
    race = interleave(client, interleaving, removal=removal, claim=claim)
    removed = race.first == "removal"
    outcomes = {"removal": 1, "claim": "family"} if removed else {"removal": 0, "claim": "child"}
    equal(race.outcomes, outcomes, "the child is removed or claimed")
    equal(queue.redis.exists("child"), not removed, "it is there as a whole, or not at all")
    equal(
        queue.redis.state("family"), ["active"] if removed else ["waiting-children"], "the parent waits for it or not"
    )


@interleavings("removal", "completion")
@scenario("race.remove-child")
def test_a_removal_meets_the_end_of_the_sibling(client: Participant, interleaving: str) -> None:
    """The last of both releases the parent."""
    flow, queue, worker = client.flow(), client.queue(), client.worker()
    flow.add(node("family", node("c1"), node("c2")))
    worker.claim_one()
    race = interleave(
        client,
        interleaving,
        removal=Contender("removeJob", lambda: queue.remove("c2")),
        completion=Contender("moveToFinished", lambda: worker.complete("c1", 1)),
    )
    equal(race.outcomes, {"removal": 1, "completion": None}, "both have their effect")
    equal(queue.redis.state("family"), ["wait"], "the parent is released")
    equal(waiting_events_of(queue, "family"), 1, "it is released once")
    equal(children_of(queue, "family", "processed"), ["c1"], "the result of the other child is there")


class ParentWithResults(NamedTuple):
    """The state of a parent, and how many results of children it has."""

    place: str
    results: int


class FamilyPlaces(NamedTuple):
    """The states of a child and its parent."""

    child: str
    parent: str


def _flow_producers(client: Participant, oracle: Participant) -> dict[Participant, FlowHandle]:
    """A flow producer for each of the two clients."""
    return {client: client.flow(), oracle: oracle.flow()}


def _finish(racer: RacingClient, job: str) -> None:
    """Claim a job that must be the next one, and complete it."""
    equal(claimed_id(racer.worker), job, "it is the next to run")
    racer.worker.complete(job)


def _all_released_once(client: Participant) -> None:
    """Over all rounds: every parent came to `wait` exactly once."""
    released = [entry["jobId"] for entry in client.redis().events() if entry.get("prev") == "waiting-children"]
    equal(sorted(released), sorted(f"family-{number}" for number in range(1, ROUNDS + 1)), "each is released once")


@shared("race.last-children", tier="full", slow=True)
def test_last_children_end_at_once(client: Participant, oracle: Participant) -> None:
    """Each side completes one of the last two children."""
    producers = _flow_producers(client, oracle)

    def prepare(number: int, one: RacingClient, other: RacingClient) -> RaceRound:
        family, first, second = f"family-{number}", f"first-{number}", f"second-{number}"
        producers[one.participant].add(node(family, node(first), node(second)))
        # Both claims before the race: claiming is not part of it.
        equal([claimed_id(one.worker), claimed_id(other.worker)], [first, second], "each side has one of the children")

        def observe() -> ParentWithResults:
            # The state is read first, because finishing the parent changes it.
            place, results = place_of(one.queue, family), children_of(one.queue, family, "processed")
            # Finished and out of the way, so that the next round claims only its own jobs.
            _finish(other, family)
            return ParentWithResults(place, len(results))

        return RaceRound(lambda: one.worker.complete(first, 1), lambda: other.worker.complete(second, 2), observe)

    released = RoundOutcome(first=None, second=None, observed=ParentWithResults("wait", results=2))
    # Only one outcome is allowed: the order of the two children must not matter.
    race_repeatedly(client, oracle, prepare, {released})
    _all_released_once(client)


@shared("race.remove-child", tier="full", slow=True)
def test_removals_meet_claims_of_the_child(client: Participant, oracle: Participant) -> None:
    """One side removes the only child, and the other claims the next job: the child, or its parent."""
    producers = _flow_producers(client, oracle)

    def prepare(number: int, one: RacingClient, other: RacingClient) -> RaceRound:
        family, child = f"family-{number}", f"child-{number}"
        producers[one.participant].add(node(family, node(child)))
        claimed: list[str | None] = []

        def claim() -> str:
            claimed.append(claimed_id(other.worker))
            return {child: "child", family: "family", None: "nothing"}[claimed[0]]

        def observe() -> FamilyPlaces:
            places = FamilyPlaces(child=place_of(one.queue, child), parent=place_of(one.queue, family))
            other.worker.complete(claimed[0] or "")
            if claimed[0] == child:
                _finish(other, family)
            return places

        return RaceRound(lambda: one.queue.remove(child), claim, observe)

    kept = RoundOutcome(first=0, second="child", observed=FamilyPlaces(child="active", parent="waiting-children"))
    removed = RoundOutcome(first=1, second="family", observed=FamilyPlaces(child="gone", parent="active"))
    race_repeatedly(client, oracle, prepare, {kept, removed})
    _all_released_once(client)


@shared("race.remove-child", tier="full", slow=True)
def test_removals_meet_ends_of_the_sibling(client: Participant, oracle: Participant) -> None:
    """One side removes a child, and the other completes the only other one."""
    producers = _flow_producers(client, oracle)

    def prepare(number: int, one: RacingClient, other: RacingClient) -> RaceRound:
        family, first, second = f"family-{number}", f"first-{number}", f"second-{number}"
        producers[one.participant].add(node(family, node(first), node(second)))
        equal(claimed_id(other.worker), first, "the other side has one of the children")

        def observe() -> FamilyPlaces:
            places = FamilyPlaces(child=place_of(one.queue, second), parent=place_of(one.queue, family))
            _finish(other, family)
            return places

        return RaceRound(lambda: one.queue.remove(second), lambda: other.worker.complete(first, 1), observe)

    released = RoundOutcome(first=1, second=None, observed=FamilyPlaces(child="gone", parent="wait"))
    race_repeatedly(client, oracle, prepare, {released})
    _all_released_once(client)
