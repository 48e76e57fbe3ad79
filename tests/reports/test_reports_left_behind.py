"""The clients of the matrix at work on one Redis: `check` reports nothing about the queues that they leave."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.driver.errors import OperationFailed, OperationUnsupported
from conformance.driver.ops import REGISTRY, Op, flow, job, lifecycle, queue, worker
from conformance.driver.transports import ChildProcess
from conformance.environment.clients import Toolchain, client_folders, find_toolchain
from conformance.gate.known_failures import load_known
from conformance.ledger.loader import load_ledger
from conformance.options import DurationMs
from conformance.problems import EnvironmentProblem
from conformance.servers import RedisInstance, open_server
from conformance.servers.connection import wait_until
from reports.check.summary import CheckSummary
from reports.options import CheckConfig
from reports.verbs.checks import check_store

pytestmark = pytest.mark.long(20)

CALL_MS = 20_000
WORKED_OFF_S = 90.0
HOUR_MS = 3_600_000
JOBS_LEFT = 80
"""Each client leaves at least this many jobs; without jobs there would be nothing to check."""

CLIENTS = ("node", "node@6.7.0", "reference", *sorted(client_folders()))
CRATES = ("bullmq-rs", "rust-official")
"""They are compiled first, which takes one or two minutes of processor time each."""

NAMES = "worker-name-unreadable"
KNOWN: dict[str, dict[str, str]] = {
    "bullmq-rs": {
        NAMES: "interop.workers-seen",
        "parent-unreadable": "invariant.parent-fields",
        "job-in-two-containers": "race.close-and-fetch",
    },
    "python-official": {NAMES: "interop.workers-seen"},
}
"""Causes by client, with the requirement or place in its list of known failures that explains them."""


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return find_toolchain("", lambda _: None)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisInstance]:
    """A Redis of its own: `check` reads the connections and the memory of the whole server."""
    with open_server(None, announce=lambda _: None) as opened, opened.connect() as client:
        client.config_set("maxmemory-policy", "noeviction")
        yield opened


class User:
    """A program with one client, on one prefix."""

    def __init__(self, driver: ChildProcess, server: RedisInstance, prefix: str) -> None:
        self.driver = driver
        self.server = server
        self.prefix = prefix

    def open(self, role: lifecycle.Role, handle: str, name: str, **more: Any) -> None:
        fields = {"role": role, "queue": name, "prefix": self.prefix, "redis": msgspec.to_builtins(self.address)}
        self.call(handle, msgspec.convert({**fields, **more}, lifecycle.Open))

    @property
    def address(self) -> lifecycle.RedisAddress:
        return lifecycle.RedisAddress(mode="standalone", nodes=list(self.server.nodes))

    def call(self, handle: str | None, op: Op[Any]) -> Any:
        return self.driver.call(op, handle=handle, deadline_ms=CALL_MS)

    def may(self, handle: str, op: Op[Any]) -> Any:
        """Call what some clients do not have, or refuse."""
        name = next(name for name, known in REGISTRY.items() if isinstance(op, known))
        if name not in self.driver.ready.ops:
            return None
        try:
            return self.call(handle, op)
        except (OperationUnsupported, OperationFailed):
            return None


def steps(*listed: dict[str, Any]) -> str:
    return json.dumps({"steps": listed})


FAILS_ONCE = steps({"do": "fail", "message": "not yet", "until_attempt": 2}, {"do": "return", "value": 1})
FAILS = steps({"do": "fail", "message": "never", "until_attempt": 99})
USUAL = steps({"do": "progress", "value": 50}, {"do": "log", "row": "at work"}, {"do": "return", "value": {"a": 1}})
JOBS: tuple[tuple[str, dict[str, Any]], ...] = (
    (USUAL, {}),
    (USUAL, {"delay": 150}),
    (USUAL, {"priority": 3}),
    (USUAL, {"lifo": True}),
    (USUAL, {"jobId": "given"}),
    (USUAL, {"jobId": "with-logs", "keepLogs": 1}),
    (USUAL, {"removeOnComplete": True}),
    (USUAL, {"removeOnComplete": {"count": 2}}),
    (USUAL, {"removeOnComplete": {"age": 1000}}),
    (USUAL, {"deduplication": {"id": "simple"}}),
    (USUAL, {"deduplication": {"id": "simple"}}),
    (USUAL, {"deduplication": {"id": "throttle", "ttl": 2000}}),
    (USUAL, {"delay": 300, "deduplication": {"id": "debounce", "ttl": 500, "extend": True, "replace": True}}),
    (USUAL, {"delay": 300, "deduplication": {"id": "debounce", "ttl": 500, "extend": True, "replace": True}}),
    (FAILS_ONCE, {"attempts": 3}),
    (FAILS_ONCE, {"attempts": 3, "backoff": {"type": "fixed", "delay": 100}}),
    (FAILS_ONCE, {"attempts": 3, "priority": 2, "backoff": {"type": "exponential", "delay": 50}}),
    (FAILS, {"attempts": 2, "backoff": 50}),
    (FAILS, {"removeOnFail": True}),
    (FAILS, {"stackTraceLimit": 0}),
    (steps({"do": "unrecoverable", "message": "at once"}), {"attempts": 5}),
)


def tree(name: str, **failing: Any) -> flow.FlowJob:
    """A parent with two children in another queue, and a grandchild."""
    child = flow.FlowJob(name="child", queue="children", data_raw=USUAL)
    broken = flow.FlowJob(name="broken", queue="children", data_raw=FAILS, opts=failing)
    deep = flow.FlowJob(name="deep", queue="children", data_raw=USUAL, children=[child])
    second = broken if failing else child
    return flow.FlowJob(name=name, queue="parents", data_raw=USUAL, children=[deep, second])


def work(user: User) -> None:
    """Add jobs of every kind, with workers that work them off, and single calls in between."""
    settings = {"concurrency": 5, "lockDuration": 30_000, "stalledInterval": 1000}
    for name in ("mixed", "parents", "children", "ticks", "pausing"):
        user.open("queue", name, name)
        user.open("worker", f"w-{name}", name, processor="steps", options=settings)
    user.open("flow", "flow", "")
    for _ in range(5):
        user.call("mixed", queue.AddBulk(jobs=[queue.NewJob(name="b", data_raw=USUAL, opts={}) for _ in range(10)]))
        for data, opts in JOBS:
            user.may("mixed", queue.Add(name="job", data_raw=data, opts=opts))
    for failing in (
        {},
        {"failParentOnFailure": True},
        {"ignoreDependencyOnFailure": True},
        {"removeDependencyOnFailure": True},
        {"continueParentOnFailure": True},
    ):
        user.may("flow", flow.AddFlow(flow=tree("parent", **failing)))
    user.may("ticks", flow.UpsertJobScheduler(id="every", repeat={"every": 300}, name="t", data_raw=USUAL))
    user.may("ticks", flow.UpsertJobScheduler(id="gone", repeat={"every": 300}, name="t", data_raw=USUAL))
    user.may("ticks", flow.UpsertJobScheduler(id="cron", repeat={"pattern": "* * * * * *"}, name="t", data_raw=USUAL))
    for number in range(30):
        if number % 10 == 3:
            user.call("pausing", queue.Pause())
        user.call("pausing", queue.Add(name="job", data_raw=USUAL, opts={"priority": number % 2}))
        if number % 10 == 8:
            user.call("pausing", queue.Resume())
    user.may("ticks", flow.RemoveJobScheduler(id="gone"))


def by_hand(user: User) -> None:
    """Jobs that are claimed, moved and changed by single calls."""
    user.open("queue", "hand", "hand")
    names = [f"j{number}" for number in range(20)]
    for name in names:
        user.call("hand", queue.Add(name="job", data_raw="{}", opts={"jobId": name, "attempts": 2}))
    try:
        user.open("worker", "w-hand", "hand", processor="manual", options={"lockDuration": HOUR_MS})
    except OperationUnsupported:
        pass
    else:
        claim_by_hand(user)
        user.call("w-hand", lifecycle.Close(force=True))
    user.may("hand", job.ChangePriority(job="j10", priority=5))
    user.may("hand", job.UpdateData(job="j11", data_raw='{"new": 1}'))
    user.may("hand", job.Log(job="j11", row="a line"))
    user.may("hand", job.UpdateProgress(job="j11", value_raw="3"))
    user.may("hand", job.RemoveJob(job="j12"))
    user.may("hand", queue.Add(name="job", data_raw="{}", opts={"jobId": "later", "delay": HOUR_MS}))
    user.may("hand", queue.Add(name="job", data_raw="{}", opts={"jobId": "soon", "delay": HOUR_MS}))
    user.may("hand", job.ChangeDelay(job="later", delay_ms=2 * HOUR_MS))
    user.may("hand", job.Promote(job="soon"))
    user.may("hand", queue.SetGlobalConcurrency(concurrency=50))
    user.open("queue", "drained", "drained")
    for opts in ({}, {"priority": 2}, {"delay": HOUR_MS}):
        user.call("drained", queue.Add(name="job", data_raw="{}", opts=opts))
    user.may("drained", queue.Drain(delayed=True))
    user.open("queue", "obliterated", "obliterated")
    user.call("obliterated", queue.Add(name="job", data_raw="{}"))
    user.call("obliterated", queue.Pause())
    user.may("obliterated", queue.Obliterate(force=True))


def claim_by_hand(user: User) -> None:
    """Jobs that are claimed and moved by single calls; one stays active."""

    def claimed() -> str:
        found = user.call("w-hand", worker.GetNextJob(token="t")).job
        assert found is not None
        return str(found.id)

    user.call("w-hand", worker.MoveToCompleted(job=claimed(), token="t"))
    user.call("w-hand", worker.MoveToFailed(job=claimed(), token="t", message="no"))
    failed = claimed()
    user.call("w-hand", worker.MoveToFailed(job=failed, token="t", message="no", unrecoverable=True))
    user.may("hand", job.Retry(job=failed))
    user.may("w-hand", worker.MoveToDelayed(job=claimed(), token="t", timestamp=4_000_000_000_000))
    user.may("w-hand", worker.MoveToWait(job=claimed(), token="t"))
    user.may("w-hand", worker.ExtendLock(job=claimed(), token="t", duration_ms=HOUR_MS))


def is_worked_off(user: User) -> Callable[[], bool]:
    """Whether nothing is left to do but iterations of schedules."""

    def is_done() -> bool:
        with user.server.connect() as client:
            return all(
                client.llen(f"{user.prefix}:{name}:{kind}") == 0
                for name in ("mixed", "parents", "children", "pausing")
                for kind in ("wait", "active", "paused")
            ) and not any(
                client.zcard(f"{user.prefix}:{name}:{kind}")
                for name in ("mixed", "parents", "children", "pausing")
                for kind in ("delayed", "prioritized")
            )

    return is_done


def checked(user: User, out: Path) -> set[str]:
    """The causes that `check` reports about the queues of this user."""
    check_store(CheckConfig(settle_ms=DurationMs(2000), out=str(out)), f"{user.server.url}#{user.prefix}")
    summary = msgspec.json.decode((out / "check.json").read_bytes(), type=CheckSummary)
    assert summary.jobs >= JOBS_LEFT
    return {cause.cause for cause in summary.causes}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("node", "reference") else pytest.mark.slow) for name in CLIENTS],
)
def test_a_client_leaves_a_sound_store(name: str, toolchain: Toolchain, server: RedisInstance, tmp_path: Path) -> None:
    try:
        launch = toolchain.launch(name)
    except EnvironmentProblem as problem:
        pytest.skip(f"{name} is not installed: {problem}")
    known = set(KNOWN.get(name, {}))
    driver = ChildProcess.start(launch.command, seed=1, env=launch.environment)
    try:
        user = User(driver, server, f"p-{CLIENTS.index(name)}")
        work(user)
        by_hand(user)
        assert checked(user, tmp_path / "working") <= known
        assert wait_until(is_worked_off(user), deadline_s=WORKED_OFF_S), driver.log_tail()
        assert checked(user, tmp_path / "rest") <= known
        for handle in ("mixed", "parents", "children", "ticks", "pausing"):
            user.call(f"w-{handle}", lifecycle.Close())
        assert checked(user, tmp_path / "closed") <= known - {NAMES}
    finally:
        driver.close()


@pytest.mark.parametrize("name", KNOWN)
def test_each_broken_check_is_a_known_failure(name: str) -> None:
    known = load_known(client_folders()[name] / "known.toml", load_ledger())
    places = {place for entry in known for place in (entry.requirement, entry.where)}
    assert set(KNOWN[name].values()) <= places
