"""Clients that lack something, on real Redis and Node: the rest of a scenario is judged, nothing is said falsely."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from conformance.driver.messages import ClientInfo, Ready
from conformance.environment.clients import Launch, Toolchain, find_toolchain
from conformance.environment.drivers import RestartableDriver
from conformance.gate.bench import Bench
from conformance.gate.decidability import can_count_against, is_decided, why_never_decided, why_undecided
from conformance.gate.trial_result import TrialResult
from conformance.ledger.operations import WORKER_RUN
from conformance.mutants.matrix import all_cases
from conformance.participants.expect import between, equal
from conformance.participants.loop_worker import JobLoop, LoopWorker
from conformance.participants.marks import ASSIGNMENT, Scenario, handover, scenario
from conformance.participants.participant import Participant
from conformance.participants.roles import Assignment
from conformance.participants.stand_in import PerformedOperations
from conformance.servers import RedisInstance

from .limited_in_process import LimitedDriver
from .small_scenarios import tried

ADDS = ["--only", "queue.add", "--capabilities", "clock"]
WORKS = ["--only", "queue.add,queue.pause,resolve", "--capabilities", "clock,managed-worker"]
SILENT = ["--no-worker-events"]

PAUSE, COMPLETE, CLAIM = (
    "pause.meta",
    "lifecycle.complete.moves",
    "lifecycle.claim.oldest-first",
)

LimitedBench = Callable[..., Bench]


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    return find_toolchain("", lambda _line: None)


@pytest.fixture
def limited(server: RedisInstance, toolchain: Toolchain) -> Iterator[LimitedBench]:
    """A bench with Node, the reference with these limits, and another Node as the stand-in."""
    with ExitStack() as stack:

        def make(*limits: str) -> Bench:
            client = LimitedDriver(Launch("limited", []), seed=1, limits=limits)
            oracle, stand_in = RestartableDriver(toolchain.oracle, 1), RestartableDriver(toolchain.oracle, 1)
            bench = Bench(server, oracle, client, {}, stand_in)
            stack.callback(bench.close)
            return bench

        yield make


def made(*requirements: str, **settings: Any) -> Callable[[Callable[[Participant], None]], Scenario]:
    """The scenario itself, without what makes it a test of pytest's."""
    return lambda function: vars(scenario(*requirements, **settings)(function))["scenario"]


def said(evidence: TrialResult) -> tuple[list[str], str, frozenset[str]]:
    return [finding.message for finding in evidence.findings], evidence.error, evidence.undecided


@made("add.plain.waits", PAUSE)
def pauses(client: Participant) -> None:
    """A job that is added to a paused queue is parked."""
    queue = client.queue()
    queue.pause()
    queue.add("later")
    equal(queue.redis.state("1"), ["paused"], "the job is parked")


@made("add.plain.waits", COMPLETE)
def completes(client: Participant) -> None:
    """Two jobs are in hand at once; the second is finished first."""
    queue, worker = client.queue(), client.worker()
    queue.add("first")
    queue.add("second")
    queue.add("third")
    equal((worker.claim_one("token-a").id, worker.claim_one("token-b").id), ("1", "2"), "the oldest come first")
    equal(queue.redis.string("1:lock"), "token-a", "the lock has the scenario's token")
    worker.complete("2", {"n": 2}, "token-b")
    equal(queue.redis.elements("active"), ["1"], "nothing else is fetched")
    with client.refuses("missing-lock", "the lost lock is noticed"):
        queue.redis.delete("1:lock")
        worker.complete("1", None, "token-a")
    equal(queue.redis.elements("wait"), ["3"], "the third still waits")


@made(CLAIM)
def claims_nothing(client: Participant) -> None:
    """There is nothing to claim, and what is added afterwards waits."""
    queue, worker = client.queue(), client.worker()
    equal(worker.claim(), None, "there is no job")
    queue.add("later")
    equal(queue.redis.state("1"), ["wait"], "no worker takes it")


@made(CLAIM)
def asks_too_much(client: Participant) -> None:
    """No loop holds two jobs under one lock."""
    worker = client.worker()
    client.queue().add("work")
    worker.claim_one("token-a")
    equal(worker.handle, "worker-0", "this does not hold of any worker")


@made(CLAIM, clock="real")
def holds_the_claim(client: Participant) -> None:
    """The worker's claim is held."""
    client.queue().add("work")
    with client.tap.hold("moveToActive") as barrier:
        client.worker("noop")
        barrier.wait()


@made(CLAIM, clock="real")
def looks_at_the_claim(client: Participant) -> None:
    """The worker's claim is seen, by looking again and again."""
    client.queue().add("work")
    with client.tap.hold("moveToActive") as barrier:
        client.opening("worker", "noop")
        client.eventually(lambda: barrier.commands, bool, "the worker claims", within_ms=60_000)


@made("add.plain.waits", clock="real")
def holds_the_read(client: Participant) -> None:
    """The read of a reader of events is held."""
    with client.tap.hold("XREAD") as barrier:
        client.events()
        client.queue().add("read")
        barrier.wait()


@made(CLAIM, clock="real")
def waits_for_the_worker(client: Participant) -> None:
    """The worker's own event says that the job has ended."""
    queue, worker = client.queue(), client.worker("noop")
    worker.wait_local("completed", queue.add("work"))
    worker.wait_local("completed", queue.add("gone", removeOnComplete=True))


@made(CLAIM, clock="real")
def waits_for_an_error(client: Participant) -> None:
    """Only the worker itself knows of an error."""
    client.worker("noop").wait_local("paused", within_ms=60_000)


@made(COMPLETE, clock="real")
def ends_a_job_during_a_wait(client: Participant) -> None:
    """The end of any job is progress, also of a wait for something else."""
    queue = client.queue()
    client.worker("noop")
    with client.waiting("something else happens", 5000) as wait:
        queue.add("work")
        client.eventually(lambda: queue.redis.state("1"), lambda state: state == ["completed"], "the job ends")
        equal(
            (wait.progress_ms, wait.is_awake()), (0.0, False), "it was not looked for before, and is no hopeless wait"
        )
        between(wait.progress_ms, 1, wait.spent_ms, "it is progress")
        seen = wait.progress_ms
        wait.is_awake()
        equal(wait.progress_ms, seen, "once")


@handover("interop.plain")
def hands_over_to_a_loop(adder: Participant, worker: Participant) -> None:
    """One client breaks what loops can run."""
    adder.queue().add("work")
    by_hand = worker.worker()
    by_hand.complete(by_hand.claim_one("token").id, "done", "token")
    equal(worker.driver.ready.client.name, "bullmq", "the client that works is right")


@handover("interop.plain")
def hands_over_beyond_loops(adder: Participant, worker: Participant) -> None:
    """No loop holds two jobs under one lock."""
    adder.queue().add("work")
    by_hand = worker.worker()
    by_hand.claim_one("token")
    equal(by_hand.handle, "worker-0", "this does not hold of any worker")


@handover("interop.events")
def is_watched(adder: Participant, listener: Participant) -> None:
    """The one listens to what the other adds."""
    reader = listener.events()
    reader.wait_for("waiting", adder.queue().add("watched"))


# Who does what.


def test_the_oracle_performs_unsupported_operations_on_the_client_s_keys(limited: LimitedBench) -> None:
    evidence = tried(pauses, limited(*ADDS))
    assert said(evidence) == ([], "", frozenset({PAUSE}))
    assert evidence.reached_end
    assert not evidence.unsupported


def test_an_answer_unsupported_is_replaced_as_well(limited: LimitedBench) -> None:
    evidence = tried(pauses, limited("--without", "queue.pause"))
    assert said(evidence) == ([], "", frozenset({PAUSE}))


def test_a_client_without_worker_is_worked_for(limited: LimitedBench) -> None:
    evidence = tried(completes, limited(*ADDS))
    assert said(evidence) == ([], "", frozenset({COMPLETE}))


def test_a_scenario_in_which_the_client_did_nothing_is_unsupported(limited: LimitedBench) -> None:
    evidence = tried(pauses, limited("--only", "queue.count", "--capabilities", "clock"))
    assert evidence.undecided == {"add.plain.waits", PAUSE}
    assert evidence.unsupported.startswith("the driver declares none of the operations that it is about: queue.add, ")


def test_a_client_with_everything_is_not_replaced(limited: LimitedBench) -> None:
    bench = limited()
    evidence = tried(completes, bench)
    assert said(evidence) == ([], "", frozenset())
    assert bench.stand_in is not None
    assert bench.stand_in.connection is None
    assert not bench.uses_loop_workers()


@pytest.mark.parametrize(
    ("holds_or_looks", "roles"),
    [(holds_the_claim, "queue,worker"), (looks_at_the_claim, "queue,worker"), (holds_the_read, "queue")],
)
def test_a_command_of_a_loop_of_the_oracle_is_not_waited_for(
    holds_or_looks: Scenario, roles: str, limited: LimitedBench
) -> None:
    less = ("--only", "queue.add,resolve", "--roles", roles, "--capabilities", "clock")
    evidence = tried(holds_or_looks, limited(*less))
    assert said(evidence)[:2] == ([], "")
    assert "the oracle, as the client's stand-in" in evidence.unsupported, "a wait that times out reports what was seen"
    assert tried(holds_or_looks, limited()).reached_end


def test_a_job_that_a_client_ends_makes_its_waits_longer(limited: LimitedBench) -> None:
    assert said(tried(ends_a_job_during_a_wait, limited())) == ([], "", frozenset())


# Loops that take the role of a manual worker.

WORKS_FOR_THE_OTHER = {ASSIGNMENT: Assignment(client=("worker",), partner=("adder",))}


def test_a_step_that_the_oracle_can_do_by_loops_is_the_clients_failure(limited: LimitedBench) -> None:
    evidence = tried(vars(hands_over_to_a_loop)["scenario"], limited(*WORKS), **WORKS_FOR_THE_OTHER)
    assert said(evidence)[0] == ["the client that works is right"]
    assert not evidence.unsupported


def test_a_step_that_the_oracle_cannot_do_by_loops_is_not_a_failure(limited: LimitedBench) -> None:
    bench = limited(*WORKS)
    there_before = set(bench.redis.keys())
    evidence = tried(vars(hands_over_beyond_loops)["scenario"], bench, **WORKS_FOR_THE_OTHER)
    assert said(evidence)[:2] == ([], "")
    assert "cannot run without a manual worker: this does not hold of any worker" in evidence.unsupported
    assert set(bench.redis.keys()) <= there_before, "the control leaves nothing"


def test_a_loop_replaces_the_manual_worker(limited: LimitedBench) -> None:
    evidence = tried(completes, limited(*WORKS))
    assert said(evidence) == ([], "", frozenset())
    assert evidence.reached_end
    assert not evidence.unsupported


def test_a_loop_that_found_nothing_takes_nothing_later(limited: LimitedBench) -> None:
    evidence = tried(claims_nothing, limited(*WORKS))
    assert said(evidence) == ([], "", frozenset())
    assert evidence.reached_end


def test_a_step_that_the_oracles_loop_cannot_do_is_unsupported(limited: LimitedBench) -> None:
    evidence = tried(asks_too_much, limited(*WORKS))
    assert said(evidence)[:2] == ([], "")
    assert "cannot run without a manual worker: this does not hold of any worker" in evidence.unsupported
    assert "this does not hold" in tried(asks_too_much, limited()).error, "with a manual worker it is the kit's error"


def test_a_loop_that_does_wrong_fails(limited: LimitedBench) -> None:
    evidence = tried(completes, limited(*WORKS, "--hang", "resolve"))
    assert evidence.findings
    assert not evidence.error


@made(COMPLETE)
def retries(client: Participant) -> None:
    """A job is tried again while others wait, and then two of them end."""
    queue, worker = client.queue(), client.worker()
    queue.add("shaky", attempts=2)
    queue.add("next")
    queue.add("last", delay=60_000)
    worker.claim_one("token-a")
    worker.fail("1", token="token-a")
    equal(queue.redis.elements("wait"), ["1", "2"], "it waits again, and no other was taken")
    for token in ("token-b", "token-c"):
        worker.complete(worker.claim_one(token).id, None, token)
    equal(worker.claim("token-d"), None, "nothing else is due")
    queue.add("later")
    equal(queue.redis.elements("wait"), ["4"], "no worker takes it")


@made(COMPLETE)
def completes_of_two(client: Participant) -> None:
    """One job ends while another waits."""
    queue, worker = client.queue(), client.worker()
    queue.add("first")
    queue.add("second")
    worker.complete(worker.claim_one().id)
    equal(queue.redis.elements("wait"), ["2"], "the other one waits")


@made(COMPLETE)
def drains(client: Participant) -> None:
    """The last job of a queue leaves `drained`, failed permanently after a retry, or as the child of another queue."""
    queue, worker, above = client.queue(), client.worker(), client.queue("above")
    queue.add("shaky", attempts=2)
    for token in ("token-a", "token-b"):
        worker.claim_one(token)
        worker.fail("1", token=token)
    equal(queue.redis.event_names()[-2:], ["retries-exhausted", "drained"], "a failed job leaves an empty queue")
    queue.add("good", parent={"id": above.add("parent"), "queue": above.redis.base[:-1]})
    worker.claim_one("token-c")
    worker.complete("2", None, "token-c")
    equal(queue.redis.event_names()[-2:], ["completed", "drained"], "a completed job leaves an empty queue")


@pytest.fixture
def hasty(server: RedisInstance, toolchain: Toolchain) -> Iterator[LimitedBench]:
    """A bench with Node, and as client Node behind a driver that answers `close` at once and forgets the handle."""
    with ExitStack() as stack:

        def make(*arguments: str) -> Bench:
            command = [sys.executable, "-m", "tests.gate.hasty_node", *arguments]
            oracle, client, stand_in = (
                RestartableDriver(launch, 1)
                for launch in (toolchain.oracle, Launch("hasty", command), toolchain.oracle)
            )
            bench = Bench(server, oracle, client, {}, stand_in)
            stack.callback(bench.close)
            return bench

        yield make


@pytest.mark.parametrize("lacks", [[], ["--without", "worker.pause"]], ids=["pauses", "cannot-pause"])
def test_a_loop_needs_no_close_that_waits(lacks: list[str], hasty: LimitedBench) -> None:
    bench = hasty(*lacks)
    for steps in (completes, retries, drains):
        evidence = tried(steps, bench)
        assert said(evidence) == ([], "", frozenset())
        assert evidence.reached_end, (evidence.unsupported, evidence.given_up)


def why_given_up(steps: Scenario, limited: LimitedBench) -> str:
    """Why the steps decide nothing for a client whose worker ignores its pause."""
    ignores = ("--only", "queue.add,resolve,worker.pause", *WORKS[2:], "--ignore", "worker.pause")
    evidence = tried(steps, limited(*ignores))
    assert said(evidence) == ([], "", frozenset())
    return evidence.given_up


def test_a_loop_that_cannot_be_held_back_decides_nothing(limited: LimitedBench) -> None:
    assert "took another job while the kit held it back" in why_given_up(retries, limited)


def test_nor_does_one_that_takes_its_job_at_the_moment_of_the_close(
    limited: LimitedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the claim comes after the last look for it, and the close then waits for the job."""
    look = LoopWorker._check_held_back
    closed: list[JobLoop] = []

    def too_early(worker: LoopWorker, loop: JobLoop, *, within_ms: int) -> None:
        if loop in closed:
            look(worker, loop, within_ms=within_ms)
        closed.append(loop)

    monkeypatch.setattr(LoopWorker, "_check_held_back", too_early)
    # It depends on the moment whether the loop has passed the job on when the close hangs.
    assert "took another job" in why_given_up(retries, limited)


def test_nor_does_one_that_takes_a_job_and_does_not_pass_it_on(
    limited: LimitedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoopWorker, "_check_held_back", lambda *_, **__: None)
    assert "did not pass it on" in why_given_up(completes_of_two, limited)


def test_a_loop_whose_job_was_put_back_is_refused(hasty: LimitedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """That its job has left `active` shows nothing about a call that is still under way."""
    # As for a client that never blocks.
    monkeypatch.setattr(LoopWorker, "_wait_for_rest", lambda *_: None)
    overtaken = next(case for case in all_cases() if case.id == "races-locks/a_completion_meets_the_next_owner")
    evidence = tried(overtaken.scenario, hasty("--without", "worker.pause"), **overtaken.arguments)
    assert said(evidence) == ([], "", frozenset())
    assert evidence.reached_end, evidence.unsupported


@made(COMPLETE)
def waits_for_a_failure(client: Participant) -> None:
    """A worker reports that its job has failed, and no error."""
    client.queue().add("doomed")
    worker = client.worker("throw", processor_args={"message": "boom"})
    worker.wait_for_error("failed")
    worker.close()


def test_a_failure_is_as_good_as_an_error_where_the_scenario_says_so(limited: LimitedBench) -> None:
    assert said(tried(waits_for_a_failure, limited())) == ([], "", frozenset())


# Workers that report nothing.


def test_without_worker_events_the_state_in_redis_is_used(limited: LimitedBench) -> None:
    evidence = tried(waits_for_the_worker, limited(*SILENT))
    assert said(evidence) == ([], "", frozenset())
    assert evidence.reached_end


def test_a_fact_that_redis_does_not_hold_is_unsupported_at_once(limited: LimitedBench) -> None:
    evidence = tried(waits_for_an_error, limited(*SILENT))
    assert "event paused is unsupported" in evidence.unsupported
    assert evidence.timings_ms["total"] < 30_000


# Decided requirements.


@pytest.mark.parametrize(
    ("own", "stand_in", "about", "decided"),
    [
        ({"open"}, set(), set(), True),
        ({"queue.add"}, set(), {"worker.moveToCompleted"}, False),  # in a hand-over, the other side did that
        ({"queue.add"}, {"queue.pause"}, {"queue.add", "queue.pause"}, True),
        ({"queue.add"}, {"queue.pause"}, {"queue.pause"}, False),
        ({"queue.add"}, {"queue.pause"}, set(), True),
        ({"open"}, {"queue.pause"}, set(), False),
        ({"open"}, {"queue.pause"}, {"open"}, True),
        ({"open"}, {"open"}, {"open"}, False),
    ],
)
def test_a_row_is_decided_by_what_the_client_did_itself(
    own: set[str], stand_in: set[str], about: set[str], decided: bool
) -> None:
    assert is_decided("a.row", PerformedOperations(own, stand_in), lambda _row: frozenset(about)) is decided


def test_a_finding_counts_if_the_oracle_did_not_help() -> None:
    assert can_count_against(
        "a.row", PerformedOperations({"queue.add"}, set()), lambda _row: frozenset({"queue.pause"})
    )
    assert not can_count_against(
        "a.row", PerformedOperations({"queue.add"}, {"queue.pause"}), lambda _row: frozenset({"queue.pause"})
    )


def test_the_reason_names_who_did_it() -> None:
    assert why_undecided(PerformedOperations({"queue.add"}, set())).startswith("the client performs none")
    assert why_undecided(PerformedOperations(set(), {"open", "queue.pause"})).endswith("place: queue.pause")
    assert why_undecided(PerformedOperations(set(), {"open"})).endswith("place: open")


@made(PAUSE)
def never_run(client: Participant) -> None:
    """Nothing."""


CLIENT = ClientInfo(name="c", language="go", version="1")


@pytest.mark.parametrize(
    ("ops", "capabilities", "about", "never"),
    [
        ([], [], {"queue.add"}, True),
        (["queue.pause"], [], {"queue.add"}, True),
        (["queue.add"], [], {"queue.add"}, False),
        ([], [], set(), True),
        (["queue.pause"], [], set(), False),
        ([], ["managed-worker"], {WORKER_RUN}, False),
        ([], ["managed-worker"], {"worker.moveToCompleted"}, True),
        (["resolve"], ["managed-worker"], {"worker.moveToCompleted"}, False),
    ],
)
def test_a_scenario_that_can_decide_nothing_is_not_started(
    ops: list[str], capabilities: list[str], about: set[str], never: bool
) -> None:
    ready = Ready(protocol=1, client=CLIENT, ops=["open", "close", "reset", *ops], capabilities=capabilities)
    assert bool(why_never_decided(never_run, ready, lambda _row: frozenset(about))) is never


@pytest.mark.parametrize(("role", "undecided"), [("adder", {"interop.events"}), ("listener", set())])
def test_a_row_about_reading_is_decided_by_the_reader(role: str, undecided: set[str], limited: LimitedBench) -> None:
    other = "listener" if role == "adder" else "adder"
    assignment = {ASSIGNMENT: Assignment(client=(role,), partner=(other,))}
    evidence = tried(vars(is_watched)["scenario"], limited(), **assignment)
    assert said(evidence) == ([], "", frozenset(undecided))


def test_work_of_a_loop_of_the_oracle_shows_nothing_about_the_client(limited: LimitedBench) -> None:
    """The client has loops, and refuses the options with which the kit holds one back."""
    assert said(tried(completes, limited(*WORKS))) == ([], "", frozenset())
    replaced = tried(completes, limited(*WORKS, "--no-options", "skipStalledCheck"))
    assert said(replaced) == ([], "", frozenset({COMPLETE}))
