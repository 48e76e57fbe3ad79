"""Corners that random sequences seldom reach, each step by step on the model and on the oracle.

Nothing is stated here but the way there: the bench compares answers and everything in Redis after each step.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.driver.ops import Op, flow, job, queue, worker
from conformance.model import Call

from .bench import START_MS, Bench, DeleteLock, PassTime, TakeMarkers, opening


class Stage:
    """Two queues `q` and `r` with a worker each, and a flow producer."""

    def __init__(self, bench: Bench, **worker_options: Any) -> None:
        self.bench = bench
        for name in ("q", "r"):
            bench.do(Call(name, opening("queue", name)))
            bench.do(Call(f"w{name}", opening("worker", name, worker_options)))
        bench.do(Call("f", opening("flow", "")))

    def do(self, handle: str, op: Op[Any]) -> Any:
        return self.bench.do(Call(handle, op))

    def add(self, name: str = "q", **opts: Any) -> str:
        return str(self.do(name, queue.Add(name="n", opts=opts))["id"])

    def claim(self, name: str = "q") -> str:
        return str(self.do(f"w{name}", worker.GetNextJob(token="t"))["job"]["id"])

    def complete(self, job_id: str, name: str = "q", **more: Any) -> None:
        self.do(f"w{name}", worker.MoveToCompleted(job=job_id, token="t", value_raw='{"x":1}', **more))

    def fail(self, job_id: str, name: str = "q", **more: Any) -> None:
        self.do(f"w{name}", worker.MoveToFailed(job=job_id, token="t", message="boom", **more))

    def family(self, *children: tuple[str, dict[str, Any]], **parent_opts: Any) -> None:
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
def stage(bench: Bench) -> Stage:
    return Stage(bench)


FLAGS = [
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
    "lifo",
]


@pytest.mark.parametrize("flag", FLAGS)
def test_a_child_fails_and_is_retried(stage: Stage, flag: str) -> None:
    stage.family(("r", {flag: True}), ("r", {}))
    child = stage.claim("r")
    stage.fail(child, "r")
    stage.do("r", job.Retry(job=child, state="failed"))
    stage.do("q", job.GetDependencies(job="p"))
    stage.complete(stage.claim("r"), "r")
    stage.do("r", job.Retry(job=child, state="completed"))
    stage.do("f", flow.GetFlow(job="p", queue="q"))


@pytest.mark.parametrize("flag", FLAGS)
def test_a_child_fails_while_its_parent_is_delayed_or_active(stage: Stage, flag: str) -> None:
    stage.family(("r", {flag: True}), ("r", {}), delay=1_000, priority=2)
    stage.complete(stage.claim("r"), "r")
    stage.fail(stage.claim("r"), "r")
    stage.pass_ms(1_000)
    stage.do("wq", worker.GetNextJob(token="t"))
    stage.complete("p")


@pytest.mark.parametrize("flag", FLAGS)
def test_an_active_parent_of_failing_children(stage: Stage, flag: str) -> None:
    parent = stage.add()
    stage.claim()
    link = {"id": parent, "queue": "the-model:q"}
    for _ in range(2):
        stage.add("r", parent=link, **{flag: True})
    stage.complete(parent)
    stage.fail(stage.claim("r"), "r")
    stage.do("wq", worker.MoveToWaitingChildren(job=parent, token="t"))
    stage.complete(stage.claim("r"), "r")
    stage.do("q", job.GetDependenciesCount(job=parent))
    stage.complete(parent)
    stage.do("wq", worker.GetNextJob(token="t"))


@pytest.mark.parametrize("option", [{"removeOnComplete": True}, {"removeOnFail": True}, {"removeOnComplete": 1}])
def test_children_that_do_not_stay(stage: Stage, option: dict[str, Any]) -> None:
    stage.family(("r", option), ("r", option))
    stage.complete(stage.claim("r"), "r")
    stage.fail(stage.claim("r"), "r")
    stage.do("q", job.GetChildrenValues(job="p"))


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
def test_all_children_of_a_parent_are_swept_away(stage: Stage, home: str, way: Op[Any]) -> None:
    stage.family((home, {"deduplication": {"id": "d"}}), (home, {}))
    stage.claim(home)
    stage.bench.do(DeleteLock(home, "c0"))
    stage.do(home, way)
    stage.do(home, queue.Drain(delayed=False))
    stage.do("q", queue.GetJobCounts(types=[]))


def test_drain_cuts_the_wrong_end_of_a_list_with_an_iteration(stage: Stage) -> None:
    stage.add()
    stage.do("q", flow.UpsertJobScheduler(id="s", repeat={"every": 1_000}))
    stage.add()
    stage.do("q", queue.Drain(delayed=False))
    stage.do("wq", worker.GetNextJob(token="t"))


def test_taken_slots_of_a_scheduler(stage: Stage) -> None:
    """The next slot is used where the first has a job, and an error is answered where both have."""
    for wait_ms in (0, 1_000):
        stage.do("q", flow.UpsertJobScheduler(id="s", repeat={"every": 1_000}))
        stage.pass_ms(wait_ms)
        stage.complete(stage.claim())
        stage.do("q", flow.RemoveJobScheduler(id="s"))
    stage.bench.now_ms = START_MS
    assert stage.do("q", flow.UpsertJobScheduler(id="s", repeat={"every": 1_000})) is None


def test_a_taken_time_of_a_pattern(stage: Stage) -> None:
    repeat = {"pattern": "*/10 * * * * *", "immediately": True}
    for _ in range(3):
        stage.do("q", flow.UpsertJobScheduler(id="s", repeat=repeat))
        stage.do("wq", worker.GetNextJob(token="t"))
        stage.do("q", flow.RemoveJobScheduler(id="s"))


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
def test_a_scheduler_until_it_ends(stage: Stage, repeat: dict[str, Any]) -> None:
    op = flow.UpsertJobScheduler(id="s", repeat=repeat, name="tick", data_raw='{"a":1.0}', opts={"priority": 1})
    stage.do("q", op)
    for wait_ms in (0, 3_000, 5_000, 86_400_000):
        stage.pass_ms(wait_ms)
        stage.do("wq", worker.GetNextJob(token="t"))
        stage.do("q", flow.GetJobScheduler(id="s"))
    stage.do("q", queue.Clean(grace_ms=-1_000_000, limit=0, type="delayed"))


def test_a_changed_scheduler_keeps_the_time_of_its_job(stage: Stage) -> None:
    for repeat in ({"every": 5_000}, {"every": 9_000}, {"pattern": "* * * * *"}, {"every": 5_000}):
        stage.do("q", flow.UpsertJobScheduler(id="s", repeat=repeat, opts={"delay": 3, "attempts": 2}))
        stage.pass_ms(700)
    stage.complete(stage.claim(), fetch_next=True)
    stage.pass_ms(60_000)
    stage.do("q", flow.UpsertJobScheduler(id="s", repeat={"every": 5_000}))
    stage.do("q", flow.GetJobSchedulers())


@pytest.mark.parametrize("ttl", [0, 20_000])
@pytest.mark.parametrize("extend", [True, False])
@pytest.mark.parametrize("replace", [True, False])
def test_deduplication(stage: Stage, ttl: int, *, extend: bool, replace: bool) -> None:
    options = {"id": "d", "ttl": ttl, "extend": extend, "replace": replace}
    stage.add(delay=5, deduplication=options)
    stage.bench.do(PassTime(10_000))
    stage.add(delay=5, deduplication=options)
    stage.bench.do(PassTime(10_000))
    stage.add(delay=5, deduplication=options)
    stage.pass_ms(5)
    one = stage.claim()
    stage.add(deduplication=options)
    stage.complete(one)
    stage.add(deduplication=options)


def test_an_id_counter_that_begins_again(stage: Stage) -> None:
    """Obliterate leaves jobs that wait for children; a new job of the same id writes over the old hash."""
    parent = stage.add(attempts=3)
    stage.fail(stage.claim())
    stage.claim()
    stage.add("r", parent={"id": parent, "queue": "the-model:q"})
    stage.do("wq", worker.MoveToWaitingChildren(job=parent, token="t"))
    stage.do("q", queue.Obliterate())
    stage.add()
    stage.do("q", queue.GetJob(job=parent))
    stage.complete(stage.claim("r"), "r")


def test_a_job_that_exists_gets_a_parent(stage: Stage) -> None:
    first, second = stage.add(), stage.add()
    done = stage.add("r", jobId="done")
    stage.complete(stage.claim("r"), "r")
    for parent in (first, second, "nobody"):
        link = {"id": parent, "queue": "the-model:q"}
        for options in ({"jobId": done}, {"jobId": "open", "failParentOnFailure": True}):
            stage.do("r", queue.Add(name="n", opts={**options, "parent": link}))
    stage.do("r", job.RemoveChildDependency(job="open"))
    stage.do("r", job.RemoveChildDependency(job="open"))


def test_a_job_that_is_its_own_ancestor(stage: Stage) -> None:
    stage.family(("q", {}))
    stage.add(jobId="p", parent={"id": "c0", "queue": "the-model:q"})
    stage.do("q", queue.Remove(job="p"))
    stage.do("f", flow.GetFlow(job="p", queue="q", depth=4))
    stage.do("q", queue.Remove(job="p", remove_children=False))


def test_finished_jobs_that_are_each_others_children(stage: Stage) -> None:
    stage.family(("q", {}))
    stage.complete(stage.claim())
    stage.add(jobId="p", parent={"id": "c0", "queue": "the-model:q"})
    stage.complete(stage.claim())
    stage.do("q", job.GetDependencies(job="c0"))
    assert stage.do("q", queue.Remove(job="p")) is None


def test_stalled_too_often(bench: Bench) -> None:
    stage = Stage(bench, maxStalledCount=1, stalledInterval=10_000, lockDuration=10_000)
    stage.add(priority=3)
    for _ in range(3):
        stage.do("wq", worker.GetNextJob(token="t"))
        for _ in range(2):
            bench.do(PassTime(10_000))
            stage.do("wq", worker.CheckStalled())


def test_limits_from_both_sides(bench: Bench) -> None:
    stage = Stage(bench, limiter={"max": 1, "duration": 20_000})
    for _ in range(4):
        stage.add()
    stage.do("q", queue.SetGlobalRateLimit(max=2, duration_ms=50_000))
    for _ in range(3):
        stage.do("wq", worker.GetNextJob(token="t"))
        stage.do("q", queue.GetRateLimitTtl())
    bench.do(PassTime(20_000))
    stage.do("q", queue.RemoveGlobalRateLimit())
    stage.complete("1", fetch_next=True)
    stage.pass_ms(60_000)
    stage.do("wq", worker.GetNextJob(token="t"))
    stage.do("q", queue.SetGlobalConcurrency(concurrency=1))
    bench.do(TakeMarkers("q"))
    stage.add()
    stage.do("q", queue.IsMaxed())
    stage.complete("2", fetch_next=True)


@pytest.mark.parametrize(
    "rule", [True, False, 0, 1, {"age": 1}, {"age": 1, "count": 5}, {"count": 0, "age": 9}, {"count": 2}, {"limit": 3}]
)
@pytest.mark.parametrize("option", ["removeOnComplete", "removeOnFail"])
def test_what_is_kept(bench: Bench, option: str, rule: Any) -> None:
    as_worker_option = {option: rule} if isinstance(rule, dict) else {}
    stage = Stage(bench, **as_worker_option)
    for number in range(4):
        stage.add(**({option: rule} if not as_worker_option or number % 2 else {}))
        stage.pass_ms(600)
        one = stage.claim()
        stage.complete(one) if option == "removeOnComplete" else stage.fail(one)


def test_metrics_over_minutes(bench: Bench) -> None:
    stage = Stage(bench, metrics={"maxDataPoints": 3})
    for minute in (0, 0, 1, 1, 3, 12, 13):
        bench.now_ms = START_MS + minute * 60_000
        stage.add()
        stage.complete(stage.claim())
        stage.do("q", queue.GetMetrics(type="completed"))


def test_odd_values_of_options(stage: Stage) -> None:
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
        stage.do("q", queue.Add(name="n", data_raw='{"ü":1}', opts=options))
    stage.do("q", queue.GetJobs(types=[]))
    stage.do("q", queue.Clean(grace_ms=0, limit=0, type="prioritized"))
    stage.do("q", queue.Clean(grace_ms=0, limit=3, type="wait"))
