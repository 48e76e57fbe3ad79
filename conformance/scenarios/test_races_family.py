"""Parents and children, two things at once: a parent is released exactly once, whatever happens to its children."""

from __future__ import annotations

from conformance.participants.expect import equal
from conformance.participants.handles import FlowHandle
from conformance.participants.marks import scenario, shared
from conformance.participants.participant import Participant
from conformance.scenarios.flow_steps import children_of, node
from conformance.scenarios.free_running import ROUNDS, Round, Side, place_of, race_often
from conformance.scenarios.race_steps import Act, claimed, meet, orders, waits_of


@orders("one", "other")
@scenario("race.last-children")
def test_the_last_two_children_end_at_once(client: Participant, order: str) -> None:
    """The second of them releases the parent, and both results are there."""
    flow, queue, one, other = client.flow(), client.queue(), client.worker(), client.worker()
    flow.add(node("family", node("c1"), node("c2")))
    one.claim_one("token-1")
    other.claim_one("token-2")
    race = meet(
        client,
        order,
        one=Act("moveToFinished", lambda: one.complete("c1", 1, "token-1")),
        other=Act("moveToFinished", lambda: other.complete("c2", 2, "token-2")),
    )
    equal(race.outcomes, {"one": None, "other": None}, "both children are completed")
    equal(queue.redis.state("family"), ["wait"], "the parent is released")
    equal(waits_of(queue, "family"), 1, "it is released once")
    equal(children_of(queue, "family", "processed"), ["c1", "c2"], "both results are there")
    equal(queue.redis.type("family:dependencies"), "none", "nothing is waited for any more")


@orders("removal", "claim")
@scenario("race.remove-child")
def test_a_removal_meets_the_claim_of_the_child(client: Participant, order: str) -> None:
    """A child that is at work is not removed; one that is removed is not handed out, and its parent is."""
    flow, queue, worker = client.flow(), client.queue(), client.worker()
    flow.add(node("family", node("child")))
    removal, claim = Act("removeJob", lambda: queue.remove("child")), Act("moveToActive", lambda: claimed(worker))
    race = meet(client, order, removal=removal, claim=claim)
    removed = race.first == "removal"
    answers = {"removal": 1, "claim": "family"} if removed else {"removal": 0, "claim": "child"}
    equal(race.outcomes, answers, "the child is removed or claimed")
    equal(queue.redis.exists("child"), not removed, "it is there as a whole, or not at all")
    equal(
        queue.redis.state("family"), ["active"] if removed else ["waiting-children"], "the parent waits for it or not"
    )


@orders("removal", "completion")
@scenario("race.remove-child")
def test_a_removal_meets_the_end_of_the_sibling(client: Participant, order: str) -> None:
    """The last of both releases the parent."""
    flow, queue, worker = client.flow(), client.queue(), client.worker()
    flow.add(node("family", node("c1"), node("c2")))
    worker.claim_one()
    race = meet(
        client,
        order,
        removal=Act("removeJob", lambda: queue.remove("c2")),
        completion=Act("moveToFinished", lambda: worker.complete("c1", 1)),
    )
    equal(race.outcomes, {"removal": 1, "completion": None}, "both have their effect")
    equal(queue.redis.state("family"), ["wait"], "the parent is released")
    equal(waits_of(queue, "family"), 1, "it is released once")
    equal(children_of(queue, "family", "processed"), ["c1"], "the result of the other child is there")


def _families(client: Participant, oracle: Participant) -> dict[Participant, FlowHandle]:
    """A flow producer for each side."""
    return {client: client.flow(), oracle: oracle.flow()}


def _finish(side: Side, job: str) -> None:
    """Claim a job that must be the next one, and complete it."""
    equal(claimed(side.worker), job, "it is the next to run")
    side.worker.complete(job)


def _all_released_once(client: Participant) -> None:
    """Over all rounds: every parent came to `wait` exactly once."""
    released = [entry["jobId"] for entry in client.redis().events() if entry.get("prev") == "waiting-children"]
    equal(sorted(released), sorted(f"family-{number}" for number in range(1, ROUNDS + 1)), "each is released once")


@shared("race.last-children", tier="full", slow=True)
def test_last_children_end_at_once(client: Participant, oracle: Participant) -> None:
    """Each side completes one of the last two children."""
    producers = _families(client, oracle)

    def stage(number: int, one: Side, other: Side) -> Round:
        family, first, second = f"family-{number}", f"first-{number}", f"second-{number}"
        producers[one.participant].add(node(family, node(first), node(second)))
        equal([claimed(one.worker), claimed(other.worker)], [first, second], "each side has one of the children")

        def look() -> tuple[str, int]:
            place, results = place_of(one.queue, family), len(children_of(one.queue, family, "processed"))
            _finish(other, family)
            return place, results

        return Round(lambda: one.worker.complete(first, 1), lambda: other.worker.complete(second, 2), look)

    race_often(client, oracle, stage, {(None, None, ("wait", 2))})
    _all_released_once(client)


@shared("race.remove-child", tier="full", slow=True)
def test_removals_meet_claims_of_the_child(client: Participant, oracle: Participant) -> None:
    """One side removes the only child, and the other claims the next job: the child, or its parent."""
    producers = _families(client, oracle)

    def stage(number: int, one: Side, other: Side) -> Round:
        family, child = f"family-{number}", f"child-{number}"
        producers[one.participant].add(node(family, node(child)))
        handed: list[str | None] = []

        def claim() -> str:
            handed.append(claimed(other.worker))
            return {child: "child", family: "family", None: "nothing"}[handed[0]]

        def look() -> tuple[str, str]:
            places = place_of(one.queue, child), place_of(one.queue, family)
            other.worker.complete(handed[0] or "")
            if handed[0] == child:
                _finish(other, family)
            return places

        return Round(lambda: one.queue.remove(child), claim, look)

    kept, removed = (0, "child", ("active", "waiting-children")), (1, "family", ("gone", "active"))
    race_often(client, oracle, stage, {kept, removed})
    _all_released_once(client)


@shared("race.remove-child", tier="full", slow=True)
def test_removals_meet_ends_of_the_sibling(client: Participant, oracle: Participant) -> None:
    """One side removes a child, and the other completes the only other one."""
    producers = _families(client, oracle)

    def stage(number: int, one: Side, other: Side) -> Round:
        family, first, second = f"family-{number}", f"first-{number}", f"second-{number}"
        producers[one.participant].add(node(family, node(first), node(second)))
        equal(claimed(other.worker), first, "the other side has one of the children")

        def look() -> tuple[str, str]:
            places = place_of(one.queue, second), place_of(one.queue, family)
            _finish(other, family)
            return places

        return Round(lambda: one.queue.remove(second), lambda: other.worker.complete(first, 1), look)

    race_often(client, oracle, stage, {(1, None, ("gone", "wait"))})
    _all_released_once(client)
