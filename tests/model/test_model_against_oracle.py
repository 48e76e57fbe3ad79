"""The model says what the oracle does, in random sequences and, step by step, in corners that these seldom reach.

Nothing is stated here but the way there: the bench compares results and everything in Redis after each step. More
random sequences: `python -m tests.model.soak FIRST_SEED COUNT`.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.driver.ops import Op, flow, job, queue, worker
from conformance.driver.transports import ChildProcess
from conformance.model import order
from conformance.servers import RedisInstance
from conformance.steps.shapes import CallStep, ClockStep, FaultStep, opening

from .bench import START_MS, Bench, Disagreement
from .soak import run_sequence

SEEDS = range(100)
SEEDS_PER_TEST = 10


@pytest.mark.parametrize("first", SEEDS[::SEEDS_PER_TEST])
@pytest.mark.slow
def test_random_sequences(server: RedisInstance, oracle: ChildProcess, first: int) -> None:
    with server.connect() as redis:
        for seed in range(first, first + SEEDS_PER_TEST):
            bench = Bench(oracle, server, redis)
            try:
                run_sequence(bench, seed)
            finally:
                bench.leave()


@pytest.fixture
def opened(bench: Bench) -> Bench:
    bench.do(opening("q", "queue", "q"))
    bench.do(opening("w", "worker", "q", lockDuration=20_000))
    return bench


def test_time_to_live_and_lost_locks(opened: Bench) -> None:
    opened.do(CallStep("q", queue.AddBulk(jobs=[queue.NewJob(name="n")] * 2)))
    for token in ("a", "b"):
        opened.do(CallStep("w", worker.GetNextJob(token=token)))
    opened.do(FaultStep("delete-lock", "q", "1"))
    opened.do(FaultStep("script-flush"))
    opened.do(CallStep("w", worker.MoveToCompleted(job="1", token="a")))
    opened.do(ClockStep(10_000))
    opened.do(CallStep("w", worker.ExtendLock(job="2", token="b", duration_ms=20_000)))
    opened.do(ClockStep(10_000))
    opened.do(CallStep("w", worker.MoveToCompleted(job="2", token="b")))


def test_a_wrong_model_is_found_out(opened: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: a model that lets new jobs overtake is caught by the next one that waits."""

    def at_the_wrong_end(items: list[str], job: str, _side: str) -> None:
        items.append(job)

    opened.do(CallStep("q", queue.Add(name="n")))
    monkeypatch.setattr(order, "push", at_the_wrong_end)
    with pytest.raises(Disagreement, match="wrong-order"):
        opened.do(CallStep("q", queue.Add(name="n")))


def test_a_wrong_answer_is_found_out(opened: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "is_paused", lambda _queue: False)
    opened.do(CallStep("q", queue.Pause()))
    with pytest.raises(Disagreement):
        opened.do(CallStep("q", queue.Add(name="n")))


class TwoQueues:
    """Two queues `q` and `r` with a worker each, and a flow producer."""

    def __init__(self, bench: Bench, **worker_options: Any) -> None:
        self.bench = bench
        for name in ("q", "r"):
            bench.do(opening(name, "queue", name))
            bench.do(opening(f"w{name}", "worker", name, **worker_options))
        bench.do(opening("f", "flow", ""))

    def do(self, handle: str, op: Op[Any]) -> Any:
        return self.bench.do(CallStep(handle, op))

    def add(self, name: str = "q", **opts: Any) -> str:
        return str(self.do(name, queue.Add(name="n", opts=opts))["id"])

    def claim(self, name: str = "q") -> str:
        return str(self.do(f"w{name}", worker.GetNextJob(token="t"))["job"]["id"])

    def complete(self, job_id: str, name: str = "q", **more: Any) -> None:
        self.do(f"w{name}", worker.MoveToCompleted(job=job_id, token="t", value_raw='{"x":1}', **more))

    def fail(self, job_id: str, name: str = "q", **more: Any) -> None:
        self.do(f"w{name}", worker.MoveToFailed(job=job_id, token="t", message="boom", **more))

    def flow(self, *children: tuple[str, dict[str, Any]], **parent_opts: Any) -> None:
        """A parent `p` in `q` with children c0, c1, … in the queues given."""
        nodes = [
            flow.FlowJob(name="c", queue=home, opts={"jobId": f"c{number}", **opts})
            for number, (home, opts) in enumerate(children)
        ]
        root = flow.FlowJob(name="p", queue="q", opts={"jobId": "p", **parent_opts}, children=nodes)
        self.do("f", flow.AddFlow(flow=root))

    def pass_ms(self, duration_ms: int) -> None:
        self.bench.now_ms += duration_ms


@pytest.fixture
def queues(bench: Bench) -> TwoQueues:
    return TwoQueues(bench)


FLAGS = [
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
    "lifo",
]


@pytest.mark.parametrize("flag", FLAGS)
def test_a_child_fails_and_is_retried(queues: TwoQueues, flag: str) -> None:
    queues.flow(("r", {flag: True}), ("r", {}))
    child = queues.claim("r")
    queues.fail(child, "r")
    queues.do("r", job.Retry(job=child, state="failed"))
    queues.do("q", job.GetDependencies(job="p"))
    queues.complete(queues.claim("r"), "r")
    queues.do("r", job.Retry(job=child, state="completed"))
    queues.do("f", flow.GetFlow(job="p", queue="q"))


@pytest.mark.parametrize("flag", FLAGS)
def test_a_child_fails_while_its_parent_is_delayed_or_active(queues: TwoQueues, flag: str) -> None:
    queues.flow(("r", {flag: True}), ("r", {}), delay=1_000, priority=2)
    queues.complete(queues.claim("r"), "r")
    queues.fail(queues.claim("r"), "r")
    queues.pass_ms(1_000)
    queues.do("wq", worker.GetNextJob(token="t"))
    queues.complete("p")


@pytest.mark.parametrize("flag", FLAGS)
def test_an_active_parent_of_failing_children(queues: TwoQueues, flag: str) -> None:
    parent = queues.add()
    queues.claim()
    link = {"id": parent, "queue": "the-model:q"}
    for _ in range(2):
        queues.add("r", parent=link, **{flag: True})
    queues.complete(parent)
    queues.fail(queues.claim("r"), "r")
    queues.do("wq", worker.MoveToWaitingChildren(job=parent, token="t"))
    queues.complete(queues.claim("r"), "r")
    queues.do("q", job.GetDependenciesCount(job=parent))
    queues.complete(parent)
    queues.do("wq", worker.GetNextJob(token="t"))


@pytest.mark.parametrize("option", [{"removeOnComplete": True}, {"removeOnFail": True}, {"removeOnComplete": 1}])
def test_children_that_do_not_stay(queues: TwoQueues, option: dict[str, Any]) -> None:
    queues.flow(("r", option), ("r", option))
    queues.complete(queues.claim("r"), "r")
    queues.fail(queues.claim("r"), "r")
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
def test_all_children_of_a_parent_are_swept_away(queues: TwoQueues, home: str, way: Op[Any]) -> None:
    queues.flow((home, {"deduplication": {"id": "d"}}), (home, {}))
    queues.claim(home)
    queues.bench.do(FaultStep("delete-lock", home, "c0"))
    queues.do(home, way)
    queues.do(home, queue.Drain(delayed=False))
    queues.do("q", queue.GetJobCounts(types=[]))


def test_drain_cuts_the_wrong_end_of_a_list_with_an_iteration(queues: TwoQueues) -> None:
    queues.add()
    queues.do("q", flow.UpsertJobScheduler(id="s", repeat={"every": 1_000}))
    queues.add()
    queues.do("q", queue.Drain(delayed=False))
    queues.do("wq", worker.GetNextJob(token="t"))


def test_taken_slots_of_a_scheduler(queues: TwoQueues) -> None:
    """The next slot is used where the first has a job, and an error is answered where both have."""
    for wait_ms in (0, 1_000):
        queues.do("q", flow.UpsertJobScheduler(id="s", repeat={"every": 1_000}))
        queues.pass_ms(wait_ms)
        queues.complete(queues.claim())
        queues.do("q", flow.RemoveJobScheduler(id="s"))
    queues.bench.now_ms = START_MS
    assert queues.do("q", flow.UpsertJobScheduler(id="s", repeat={"every": 1_000})) is None


def test_a_taken_time_of_a_pattern(queues: TwoQueues) -> None:
    repeat = {"pattern": "*/10 * * * * *", "immediately": True}
    for _ in range(3):
        queues.do("q", flow.UpsertJobScheduler(id="s", repeat=repeat))
        queues.do("wq", worker.GetNextJob(token="t"))
        queues.do("q", flow.RemoveJobScheduler(id="s"))


@pytest.mark.parametrize(
    "repeat",
    [
        {"every": 1_000, "limit": 2},
        {"every": 1_000, "endDate": START_MS + 1_500},
        {"every": 7_000, "startDate": START_MS + 3_000},
        {"pattern": "*/5 * * * * *", "limit": 2},
        {"pattern": "0 */3 * * *", "startDate": START_MS + 86_400_000},
        {"pattern": "*/5 * * * * *", "endDate": START_MS + 7_000},
    ],
)
def test_a_scheduler_until_it_ends(queues: TwoQueues, repeat: dict[str, Any]) -> None:
    op = flow.UpsertJobScheduler(id="s", repeat=repeat, name="tick", data_raw='{"a":1.0}', opts={"priority": 1})
    queues.do("q", op)
    for wait_ms in (0, 3_000, 5_000, 86_400_000):
        queues.pass_ms(wait_ms)
        queues.do("wq", worker.GetNextJob(token="t"))
        queues.do("q", flow.GetJobScheduler(id="s"))
    queues.do("q", queue.Clean(grace_ms=-1_000_000, limit=0, type="delayed"))


def test_a_changed_scheduler_keeps_the_time_of_its_job(queues: TwoQueues) -> None:
    for repeat in ({"every": 5_000}, {"every": 9_000}, {"pattern": "* * * * *"}, {"every": 5_000}):
        queues.do("q", flow.UpsertJobScheduler(id="s", repeat=repeat, opts={"delay": 3, "attempts": 2}))
        queues.pass_ms(700)
    queues.complete(queues.claim(), fetch_next=True)
    queues.pass_ms(60_000)
    queues.do("q", flow.UpsertJobScheduler(id="s", repeat={"every": 5_000}))
    queues.do("q", flow.GetJobSchedulers())


@pytest.mark.parametrize("ttl", [0, 20_000])
@pytest.mark.parametrize("extend", [True, False])
@pytest.mark.parametrize("replace", [True, False])
def test_deduplication(queues: TwoQueues, ttl: int, *, extend: bool, replace: bool) -> None:
    options = {"id": "d", "ttl": ttl, "extend": extend, "replace": replace}
    queues.add(delay=5, deduplication=options)
    queues.bench.do(ClockStep(10_000))
    queues.add(delay=5, deduplication=options)
    queues.bench.do(ClockStep(10_000))
    queues.add(delay=5, deduplication=options)
    queues.pass_ms(5)
    job_id = queues.claim()
    queues.add(deduplication=options)
    queues.complete(job_id)
    queues.add(deduplication=options)


def test_an_id_counter_that_restarts(queues: TwoQueues) -> None:
    """Obliterate leaves jobs that wait for children; a new job of the same id writes over the old hash."""
    parent = queues.add(attempts=3)
    queues.fail(queues.claim())
    queues.claim()
    queues.add("r", parent={"id": parent, "queue": "the-model:q"})
    queues.do("wq", worker.MoveToWaitingChildren(job=parent, token="t"))
    queues.do("q", queue.Obliterate())
    queues.add()
    queues.do("q", queue.GetJob(job=parent))
    queues.complete(queues.claim("r"), "r")


def test_a_job_that_exists_gets_a_parent(queues: TwoQueues) -> None:
    first, second = queues.add(), queues.add()
    done = queues.add("r", jobId="done")
    queues.complete(queues.claim("r"), "r")
    for parent in (first, second, "nobody"):
        link = {"id": parent, "queue": "the-model:q"}
        for options in ({"jobId": done}, {"jobId": "open", "failParentOnFailure": True}):
            queues.do("r", queue.Add(name="n", opts={**options, "parent": link}))
    queues.do("r", job.RemoveChildDependency(job="open"))
    queues.do("r", job.RemoveChildDependency(job="open"))


def test_a_job_that_is_its_own_ancestor(queues: TwoQueues) -> None:
    queues.flow(("q", {}))
    queues.add(jobId="p", parent={"id": "c0", "queue": "the-model:q"})
    queues.do("q", queue.Remove(job="p"))
    queues.do("f", flow.GetFlow(job="p", queue="q", depth=4))
    queues.do("q", queue.Remove(job="p", remove_children=False))


def test_finished_jobs_that_are_each_others_children(queues: TwoQueues) -> None:
    queues.flow(("q", {}))
    queues.complete(queues.claim())
    queues.add(jobId="p", parent={"id": "c0", "queue": "the-model:q"})
    queues.complete(queues.claim())
    queues.do("q", job.GetDependencies(job="c0"))
    assert queues.do("q", queue.Remove(job="p")) is None


def test_stalled_too_often(bench: Bench) -> None:
    queues = TwoQueues(bench, maxStalledCount=1, stalledInterval=10_000, lockDuration=10_000)
    queues.add(priority=3)
    for _ in range(3):
        queues.do("wq", worker.GetNextJob(token="t"))
        for _ in range(2):
            bench.do(ClockStep(10_000))
            queues.do("wq", worker.CheckStalled())


def test_limits_from_both_sides(bench: Bench) -> None:
    queues = TwoQueues(bench, limiter={"max": 1, "duration": 20_000})
    for _ in range(4):
        queues.add()
    queues.do("q", queue.SetGlobalRateLimit(max=2, duration_ms=50_000))
    for _ in range(3):
        queues.do("wq", worker.GetNextJob(token="t"))
        queues.do("q", queue.GetRateLimitTtl())
    bench.do(ClockStep(20_000))
    queues.do("q", queue.RemoveGlobalRateLimit())
    queues.complete("1", fetch_next=True)
    queues.pass_ms(60_000)
    queues.do("wq", worker.GetNextJob(token="t"))
    queues.do("q", queue.SetGlobalConcurrency(concurrency=1))
    bench.do(FaultStep("wake", "q"))
    queues.add()
    queues.do("q", queue.IsMaxed())
    queues.complete("2", fetch_next=True)


@pytest.mark.parametrize(
    "rule", [True, False, 0, 1, {"age": 1}, {"age": 1, "count": 5}, {"count": 0, "age": 9}, {"count": 2}, {"limit": 3}]
)
@pytest.mark.parametrize("option", ["removeOnComplete", "removeOnFail"])
def test_what_is_kept(bench: Bench, option: str, rule: Any) -> None:
    as_worker_option = {option: rule} if isinstance(rule, dict) else {}
    queues = TwoQueues(bench, **as_worker_option)
    for number in range(4):
        queues.add(**({option: rule} if not as_worker_option or number % 2 else {}))
        queues.pass_ms(600)
        job_id = queues.claim()
        queues.complete(job_id) if option == "removeOnComplete" else queues.fail(job_id)


def test_metrics_over_minutes(bench: Bench) -> None:
    queues = TwoQueues(bench, metrics={"maxDataPoints": 3})
    for minute in (0, 0, 1, 1, 3, 12, 13):
        bench.now_ms = START_MS + minute * 60_000
        queues.add()
        queues.complete(queues.claim())
        queues.do("q", queue.GetMetrics(type="completed"))


def test_odd_values_of_options(queues: TwoQueues) -> None:
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
