"""The model says what the oracle does, in random sequences and, step by step, in corners that these seldom reach.

Nothing is stated here but the way there: the bench compares results and everything in Redis after each step. More
random sequences: `bullmq-conformance fuzz --mode model`.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.driver.ops import Op, flow, job, lifecycle, queue, worker
from conformance.fuzz.campaign import Campaign, CampaignOptions
from conformance.fuzz.target import FuzzTarget
from conformance.model import order
from conformance.participants.clock import FROZEN_START_MS
from conformance.steps.shapes import ClockStep, FaultStep, opening
from conformance.steps.words import FlowWords, QueueWords, WorkerWords

from .bench import Bench, Disagreement

SEQUENCES, ROUNDS = 12, 8
"""Each round aims at what those before have not tried."""
Q, R, WQ, WR = QueueWords("q"), QueueWords("r"), WorkerWords("wq"), WorkerWords("wr")
NEXT_Q, NEXT_R = (WQ.claim(), WQ.complete()), (WR.claim(), WR.complete(value={"x": 1}))


@pytest.mark.slow
def test_random_sequences(target: FuzzTarget) -> None:
    campaign = Campaign(target, CampaignOptions(600.0, 11, sequences_per_round=SEQUENCES, most_rounds=ROUNDS))
    assert [str(finding.differences[0]) for finding in campaign.run()] == []


@pytest.fixture
def queues(bench: Bench) -> Bench:
    bench.open()
    return bench


def test_time_to_live_and_lost_locks(bench: Bench) -> None:
    bench.take(opening("q", "queue", "q"), opening("wq", "worker", "q", lockDuration=20_000), Q.add(), Q.add())
    bench.take(WQ.claim(), WQ.claim(), FaultStep("delete-lock", "q", "1"), FaultStep("script-flush"))
    bench.take(WQ.complete("1"), ClockStep(10_000))
    bench.do("wq", worker.ExtendLock(job="2", token=WQ.token, duration_ms=20_000))
    bench.take(ClockStep(10_000), WQ.complete("2"))


def test_a_wrong_model_is_found_out(queues: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: a model that lets new jobs overtake is caught by the next one that waits."""

    def at_the_wrong_end(items: list[str], job: str, _side: str) -> None:
        items.append(job)

    queues.take(Q.add())
    monkeypatch.setattr(order, "push", at_the_wrong_end)
    with pytest.raises(Disagreement, match="wrong-order"):
        queues.take(Q.add())


def test_a_wrong_answer_is_found_out(queues: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "is_paused", lambda _queue: False)
    queues.take(Q.pause())
    with pytest.raises(Disagreement):
        queues.take(Q.add())


def _flow(*children: tuple[str, dict[str, Any]], **parent_opts: Any) -> Any:
    """A parent `p` in `q` with children c0, c1, … in the queues given."""
    nodes = [
        {"name": "c", "queue": home, "opts": {"jobId": f"c{number}", **opts}}
        for number, (home, opts) in enumerate(children)
    ]
    return FlowWords("f").add({"name": "p", "queue": "q", "opts": {"jobId": "p", **parent_opts}, "children": nodes})


def _link(parent: str) -> dict[str, str]:
    return {"id": parent, "queue": "<prefix>:q"}


FLAGS = [
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
    "lifo",
]


@pytest.mark.parametrize("flag", FLAGS)
def test_a_child_fails_and_is_retried(queues: Bench, flag: str) -> None:
    queues.take(_flow(("r", {flag: True}), ("r", {})))
    child = queues.take(WR.claim())["job"]["id"]
    queues.take(WR.fail(), R.retry(child))
    queues.do("q", job.GetDependencies(job="p"))
    queues.take(*NEXT_R)
    queues.do("r", job.Retry(job=child, state="completed"))
    queues.do("f", flow.GetFlow(job="p", queue="q"))


@pytest.mark.parametrize("flag", FLAGS)
def test_a_child_fails_while_its_parent_is_delayed_or_active(queues: Bench, flag: str) -> None:
    queues.take(_flow(("r", {flag: True}), ("r", {}), delay=1_000, priority=2))
    queues.take(*NEXT_R, WR.claim(), WR.fail())
    queues.runner.clock.pass_ms(1_000)
    queues.take(WQ.claim(), WQ.complete("p"))


@pytest.mark.parametrize("flag", FLAGS)
def test_an_active_parent_of_failing_children(queues: Bench, flag: str) -> None:
    options: dict[str, Any] = {"parent": _link("1"), flag: True}
    child = R.add(**options)
    queues.take(Q.add(), WQ.claim(), child, child, WQ.complete("1"), WR.claim(), WR.fail())
    queues.take(WQ.wait_for_children(), *NEXT_R, Q.call(job.GetDependenciesCount(job="1")))
    queues.take(WQ.complete("1"), WQ.claim())


@pytest.mark.parametrize("option", [{"removeOnComplete": True}, {"removeOnFail": True}, {"removeOnComplete": 1}])
def test_children_that_do_not_stay(queues: Bench, option: dict[str, Any]) -> None:
    queues.take(_flow(("r", option), ("r", option)))
    queues.take(*NEXT_R)
    queues.take(WR.claim(), WR.fail())
    queues.do("q", job.GetChildrenValues(job="p"))


@pytest.mark.parametrize(
    "way",
    [
        queue.Drain(delayed=True),
        queue.Clean(grace_ms=0, limit=0, type="wait"),
        queue.Clean(grace_ms=0, limit=0, type="active"),
        queue.Obliterate(force=True),
        queue.Obliterate(force=False),
    ],
    ids=["drain", "clean-wait", "clean-active", "obliterate-force", "obliterate"],
)
@pytest.mark.parametrize("home", ["q", "r"])
def test_all_children_of_a_parent_are_swept_away(queues: Bench, home: str, way: Op[Any]) -> None:
    queues.take(_flow((home, {"deduplication": {"id": "d"}}), (home, {})))
    queues.take(WorkerWords(f"w{home}").claim(), FaultStep("delete-lock", home, "c0"))
    queues.do(home, way)
    queues.do(home, queue.Drain(delayed=False))
    queues.do("q", queue.GetJobCounts(types=[]))


def test_drain_cuts_the_wrong_end_of_a_list_with_an_iteration(queues: Bench) -> None:
    queues.take(Q.add())
    queues.do("q", flow.UpsertJobScheduler(id="s", repeat={"every": 1_000}))
    queues.take(Q.add())
    queues.do("q", queue.Drain(delayed=False))
    queues.take(WQ.claim())


def test_taken_slots_of_a_scheduler(queues: Bench) -> None:
    """The next slot is used where the first has a job, and an error is answered where both have."""
    for wait_ms in (0, 1_000):
        queues.do("q", flow.UpsertJobScheduler(id="s", repeat={"every": 1_000}))
        queues.runner.clock.pass_ms(wait_ms)
        queues.take(*NEXT_Q)
        queues.do("q", flow.RemoveJobScheduler(id="s"))
    queues.runner.clock.pass_ms(-1_000)
    assert queues.do("q", flow.UpsertJobScheduler(id="s", repeat={"every": 1_000})) is None


def test_a_taken_time_of_a_pattern(queues: Bench) -> None:
    repeat = {"pattern": "*/10 * * * * *", "immediately": True}
    for _ in range(3):
        queues.do("q", flow.UpsertJobScheduler(id="s", repeat=repeat))
        queues.take(WQ.claim())
        queues.do("q", flow.RemoveJobScheduler(id="s"))


@pytest.mark.parametrize(
    "repeat",
    [
        {"every": 1_000, "limit": 2},
        {"every": 1_000, "endDate": FROZEN_START_MS + 1_500},
        {"every": 7_000, "startDate": FROZEN_START_MS + 3_000},
        {"pattern": "*/5 * * * * *", "limit": 2},
        {"pattern": "0 */3 * * *", "startDate": FROZEN_START_MS + 86_400_000},
        {"pattern": "*/5 * * * * *", "endDate": FROZEN_START_MS + 7_000},
    ],
)
def test_a_scheduler_until_it_ends(queues: Bench, repeat: dict[str, Any]) -> None:
    op = flow.UpsertJobScheduler(id="s", repeat=repeat, name="tick", data_raw='{"a":1.0}', opts={"priority": 1})
    queues.do("q", op)
    for wait_ms in (0, 3_000, 5_000, 86_400_000):
        queues.runner.clock.pass_ms(wait_ms)
        queues.take(WQ.claim())
        queues.do("q", flow.GetJobScheduler(id="s"))
    queues.do("q", queue.Clean(grace_ms=-1_000_000, limit=0, type="delayed"))


def test_a_changed_scheduler_keeps_the_time_of_its_job(queues: Bench) -> None:
    for repeat in ({"every": 5_000}, {"every": 9_000}, {"pattern": "* * * * *"}, {"every": 5_000}):
        queues.do("q", flow.UpsertJobScheduler(id="s", repeat=repeat, opts={"delay": 3, "attempts": 2}))
        queues.runner.clock.pass_ms(700)
    queues.take(WQ.claim(), WQ.complete(fetch_next=True))
    queues.runner.clock.pass_ms(60_000)
    queues.do("q", flow.UpsertJobScheduler(id="s", repeat={"every": 5_000}))
    queues.do("q", flow.GetJobSchedulers())


@pytest.mark.parametrize("ttl", [0, 20_000])
@pytest.mark.parametrize("extend", [True, False])
@pytest.mark.parametrize("replace", [True, False])
def test_deduplication(queues: Bench, ttl: int, *, extend: bool, replace: bool) -> None:
    options = {"id": "d", "ttl": ttl, "extend": extend, "replace": replace}
    added, postponed = Q.add(deduplication=options), Q.add(delay=5, deduplication=options)
    queues.take(postponed, ClockStep(10_000), postponed, ClockStep(10_000), postponed)
    queues.runner.clock.pass_ms(5)
    queues.take(WQ.claim(), added, WQ.complete(), added)


def test_an_id_counter_that_restarts(queues: Bench) -> None:
    """Obliterate leaves jobs that wait for children; a new job of the same id writes over the old hash."""
    queues.take(Q.add(attempts=3), WQ.claim(), WQ.fail(), WQ.claim(), R.add(parent=_link("1")))
    queues.take(WQ.wait_for_children(), Q.call(queue.Obliterate()), Q.add(), Q.call(queue.GetJob(job="1")), *NEXT_R)


def test_a_job_that_exists_gets_a_parent(queues: Bench) -> None:
    queues.take(Q.add(), Q.add(), R.add(jobId="done"), *NEXT_R)
    for parent in ("1", "2", "nobody"):
        queues.take(R.add(jobId="done", parent=_link(parent)))
        queues.take(R.add(jobId="open", failParentOnFailure=True, parent=_link(parent)))
    queues.do("r", job.RemoveChildDependency(job="open"))
    queues.do("r", job.RemoveChildDependency(job="open"))


def test_a_job_that_is_its_own_ancestor(queues: Bench) -> None:
    queues.take(_flow(("q", {})), Q.add(jobId="p", parent=_link("c0")))
    queues.do("q", queue.Remove(job="p"))
    queues.do("f", flow.GetFlow(job="p", queue="q", depth=4))
    queues.do("q", queue.Remove(job="p", remove_children=False))


def test_finished_jobs_that_are_each_others_children(queues: Bench) -> None:
    queues.take(_flow(("q", {})), *NEXT_Q, Q.add(jobId="p", parent=_link("c0")), *NEXT_Q)
    queues.do("q", job.GetDependencies(job="c0"))
    assert queues.do("q", queue.Remove(job="p")) is None


def test_stalled_too_often(bench: Bench) -> None:
    bench.open(maxStalledCount=1, stalledInterval=10_000, lockDuration=10_000)
    bench.take(Q.add(priority=3))
    for _ in range(3):
        bench.take(WQ.claim())
        bench.take(*(ClockStep(10_000), WQ.check_stalled()) * 2)
    bench.take(FaultStep("delete-stalled-check", "q"), WQ.check_stalled())


def test_limits_from_both_sides(bench: Bench) -> None:
    bench.open(limiter={"max": 1, "duration": 20_000})
    for _ in range(4):
        bench.take(Q.add())
    bench.do("q", queue.SetGlobalRateLimit(max=2, duration_ms=50_000))
    for _ in range(3):
        bench.take(WQ.claim())
        bench.do("q", queue.GetRateLimitTtl())
    bench.take(ClockStep(20_000))
    bench.do("q", queue.RemoveGlobalRateLimit())
    bench.take(WQ.complete("1", fetch_next=True))
    bench.runner.clock.pass_ms(60_000)
    bench.take(WQ.claim())
    bench.do("q", queue.SetGlobalConcurrency(concurrency=1))
    bench.take(FaultStep("wake", "q"), Q.add(), Q.call(queue.IsMaxed()))
    bench.take(WQ.complete("2", fetch_next=True))


@pytest.mark.parametrize(
    "rule", [True, False, 0, 1, {"age": 1}, {"age": 1, "count": 5}, {"count": 0, "age": 9}, {"count": 2}, {"limit": 3}]
)
@pytest.mark.parametrize("option", ["removeOnComplete", "removeOnFail"])
def test_finished_jobs_are_kept_by_the_same_rule(bench: Bench, option: str, rule: Any) -> None:
    as_worker_option = {option: rule} if isinstance(rule, dict) else {}
    bench.open(**as_worker_option)
    for number in range(4):
        bench.take(Q.add(**({option: rule} if not as_worker_option or number % 2 else {})))
        bench.runner.clock.pass_ms(600)
        bench.take(WQ.claim(), WQ.complete() if option == "removeOnComplete" else WQ.fail())


def test_metrics_over_minutes(bench: Bench) -> None:
    bench.open(metrics={"maxDataPoints": 3})
    for minutes in (0, 0, 1, 0, 2, 9, 1):
        bench.runner.clock.pass_ms(minutes * 60_000)
        bench.take(Q.add(), *NEXT_Q, Q.call(queue.GetMetrics(type="completed")))


def test_workers_are_listed_paused_and_closed(queues: Bench) -> None:
    queues.take(Q.add(), Q.add(), Q.call(queue.GetWorkers()), Q.call(queue.GetWorkersCount()))
    states = [WQ.call(op) for op in (worker.IsWorkerPaused(), worker.IsWorkerRunning())]
    for change in (worker.PauseWorker(do_not_wait_active=True), worker.ResumeWorker(), worker.PauseWorker()):
        queues.take(WQ.call(change), *states, *NEXT_Q)
    queues.take(WQ.call(lifecycle.Close(force=True)), WQ.claim())


def test_odd_values_of_options(queues: Bench) -> None:
    for options in (
        {"lifo": 0},
        {"delay": "5"},
        {"delay": 0.1},
        {"timestamp": 5, "delay": 3},
        {"backoff": 0},
        {"attempts": None, "removeOnComplete": None},
        {"x": [None, 1], "y": {"z": []}, "n": 1e300, "e": "é/\u007f"},
        {"x": [1, *[None] * 20, 2]},
        {"deduplication": {"id": 5}},
        {"debounce": {"id": "old"}},
        {"telemetry": {"metadata": "m", "omitContext": False}},
        {"priority": -2},
        {"jobId": ""},
        {"jobId": "x:y:z", "priority": 0},
        {"sizeLimit": 1},
    ):
        queues.do("q", queue.Add(name="n", data_raw='{"ü":1}', opts=options))
    queues.do("q", queue.GetJobs(types=[]))
    queues.do("q", queue.Clean(grace_ms=0, limit=0, type="prioritized"))
    queues.do("q", queue.Clean(grace_ms=0, limit=3, type="wait"))
