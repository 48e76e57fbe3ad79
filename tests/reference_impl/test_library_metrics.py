"""Metrics: their names are a contract, and without them there is no cost."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import urllib.request
from importlib import resources
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, start_http_server

from conformance.reference_impl.errors import BullMQError
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.metrics import PrometheusCollector, measure_lengths
from conformance.reference_impl.policy import Policy, ReconnectPolicy
from conformance.reference_impl.scripts.runner import ScriptTexts
from tests.reference_impl.queue_under_test import QueueUnderTest, Until, mortal_redis, run_with_queue

SPECIFIED_METRICS = {
    "bullmq_jobs_processed_total": {"queue", "status"},
    "bullmq_jobs_failed_total": {"queue", "reason"},
    "bullmq_job_duration_seconds": {"queue"},
    "bullmq_queue_length": {"queue", "state"},
    "bullmq_stalled_jobs_total": {"queue"},
    "bullmq_heartbeat_success_total": {"queue"},
    "bullmq_heartbeat_failure_total": {"queue"},
    "bullmq_lock_extend_duration_seconds": {"queue"},
    "bullmq_stalled_checker_skipped_total": {"queue"},
    "bullmq_active_workers": {"queue", "worker_id"},
    "bullmq_redis_connection_status": {"status"},
    "bullmq_redis_reconnect_attempts_total": set[str](),
}


@pytest.fixture
def opts(connection: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {"connection": connection, "prefix": prefix, "workerId": "w-1"}


def scraped(registry: CollectorRegistry) -> str:
    """The page that Prometheus reads over HTTP."""
    server, thread = start_http_server(0, "127.0.0.1", registry=registry)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_metrics_are_scraped_under_the_names_of_the_specification(
    opts: dict[str, Any], scripts: ScriptTexts, wait_until: Until
) -> None:
    registry = CollectorRegistry()
    collector = PrometheusCollector(registry)
    pages: list[str] = []

    async def steps(tested: QueueUnderTest) -> None:
        gate = asyncio.Event()

        async def process(job: Job, _token: str) -> None:
            if job.name != "slow":
                raise {"bad": ValueError, "shaky": TimeoutError}[job.name]("no luck")
            await gate.wait()

        dead = tested.worker(None, lockDuration=1, workerId="dead")
        await tested.queue.add("slow", 1)
        assert await dead.getNextJob("token", {"block": False})
        await tested.queue.add("bad", 2)
        await tested.queue.add("shaky", 3, {"attempts": 2})
        worker = tested.worker(
            process,
            stalledInterval=20,
            maxStalledCount=1000,
            lockRenewTime=40,
            concurrency=3,
            metricsCollector=collector,
            metricsInterval=10,
        )
        await tested.hear("failed", "2")
        await tested.hear("failed", "3", times=2)
        await tested.hear("heartbeat", "['1']")
        # Without the lock the next renewal fails; the job continues and loses its lock permanently.
        await tested.queue.connection.command("DEL", tested.queue.keys.of_job("1", "lock"))
        await tested.hear("heartbeatFailed", "1")
        worker.emit("stalledCheckSkipped")
        await tested.until(
            lambda: registry.get_sample_value("bullmq_queue_length", {"queue": "q", "state": "failed"}) == 2,
            lambda: registry.get_sample_value("bullmq_queue_length", {"queue": "q", "state": "failed"}),
        )
        pages.append(scraped(registry))
        assert _families(registry) == SPECIFIED_METRICS
        await worker.pause(doNotWaitActive=True)
        assert registry.get_sample_value("bullmq_active_workers", {"queue": "q", "worker_id": "w-1"}) == 0
        gate.set()

    run_with_queue(opts, scripts, wait_until, steps)
    values = {name: float(text) for name, text in re.findall(r"^(bullmq_\S+) (\S+)$", pages[0], re.MULTILINE)}
    exact = {
        'bullmq_jobs_processed_total{queue="q",status="failed"}': 2,
        'bullmq_jobs_processed_total{queue="q",status="retried"}': 1,
        'bullmq_jobs_failed_total{queue="q",reason="permanent"}': 1,
        'bullmq_jobs_failed_total{queue="q",reason="transient_exhausted"}': 1,
        'bullmq_job_duration_seconds_count{queue="q"}': 3,
        'bullmq_queue_length{queue="q",state="failed"}': 2,
        'bullmq_active_workers{queue="q",worker_id="w-1"}': 1,
        'bullmq_redis_connection_status{status="connected"}': 1,
        'bullmq_redis_connection_status{status="disconnected"}': 0,
        "bullmq_redis_reconnect_attempts_total": 0,
    }
    assert {name: values[name] for name in exact} == exact
    for name in (
        'bullmq_stalled_jobs_total{queue="q"}',
        'bullmq_heartbeat_success_total{queue="q"}',
        'bullmq_heartbeat_failure_total{queue="q"}',
        'bullmq_lock_extend_duration_seconds_count{queue="q"}',
        'bullmq_stalled_checker_skipped_total{queue="q"}',
    ):
        assert values[name] >= 1, name
    assert 'worker_id="w-1"' not in scraped(registry), "a worker that is gone leaves no series"


def _families(registry: CollectorRegistry) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for family in registry.collect():
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                name = re.sub("_(bucket|count|sum)$", "", sample.name)
                found.setdefault(name, set()).update(set(sample.labels) - {"le"})
    return found


def test_completed_jobs_are_counted(opts: dict[str, Any], scripts: ScriptTexts, wait_until: Until) -> None:
    registry = CollectorRegistry()

    async def steps(tested: QueueUnderTest) -> None:
        worker = tested.worker(lambda _job, _token: None, metricsCollector=PrometheusCollector(registry))
        await tested.queue.add("a", 1)
        await tested.hear("completed", "1")
        await worker.pause()
        worker.resume()
        assert registry.get_sample_value("bullmq_active_workers", {"queue": "q", "worker_id": "w-1"}) == 1
        labels = {"queue": "q", "status": "completed"}
        assert registry.get_sample_value("bullmq_jobs_processed_total", labels) == 1
        assert registry.get_sample_value("bullmq_job_duration_seconds_count", {"queue": "q"}) == 1

    run_with_queue(opts, scripts, wait_until, steps)


def test_jobs_that_fail_unseen_have_no_duration(opts: dict[str, Any], scripts: ScriptTexts, wait_until: Until) -> None:
    registry = CollectorRegistry()

    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.add("a", 1)
        await tested.queue.connection.command("HSET", tested.queue.toKey("1"), "ats", 2)
        tested.worker(lambda _job, _token: None, metricsCollector=PrometheusCollector(registry), maxStartedAttempts=1)
        await tested.hear("failed", "1")
        assert registry.get_sample_value("bullmq_job_duration_seconds_count", {"queue": "q"}) is None

    run_with_queue(opts, scripts, wait_until, steps)


def test_an_outage_shows_in_the_metrics(scripts: ScriptTexts, wait_until: Until) -> None:
    registry = CollectorRegistry()
    collector = PrometheusCollector(registry)

    def status() -> list[float | None]:
        names = ("connected", "disconnected")
        return [registry.get_sample_value("bullmq_redis_connection_status", {"status": name}) for name in names]

    async def steps(tested: QueueUnderTest) -> None:
        tested.worker(lambda _job, _token: None, metricsCollector=collector, metricsInterval=10)
        await tested.queue.add("a", 1)
        await tested.hear("completed", "1")
        mortal.kill()
        await tested.until(lambda: status() == [0, 1], status)
        await tested.hear("reconnecting", times=2)
        mortal.start()
        await tested.hear("reconnected")
        await tested.until(lambda: status() == [1, 0], status)
        assert (registry.get_sample_value("bullmq_redis_reconnect_attempts_total") or 0) >= 2
        assert not tested.count("error")

    with mortal_redis() as mortal:
        policy = Policy(reconnect=ReconnectPolicy(first_s=0.02, longest_s=0.05))
        run_with_queue({"connection": {"port": mortal.port}, "policy": policy}, scripts, wait_until, steps)


def test_a_client_closed_while_cut_off_does_not_count_as_cut_off() -> None:
    registry = CollectorRegistry()
    collector = PrometheusCollector(registry)
    collector.connection_status("w-1", connected=False)
    collector.connection_status("w-2", connected=False)
    collector.connection_status("w-1", connected=True)
    assert registry.get_sample_value("bullmq_redis_connection_status", {"status": "disconnected"}) == 1
    collector.connection_status("w-2", connected=True)
    assert registry.get_sample_value("bullmq_redis_connection_status", {"status": "disconnected"}) == 0


def test_lengths_of_a_queue_without_a_worker(opts: dict[str, Any], scripts: ScriptTexts, wait_until: Until) -> None:
    registry = CollectorRegistry()

    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.addBulk([{"name": "a", "data": 1}, {"name": "b", "data": 2, "opts": {"delay": 60_000}}])
        await measure_lengths(tested.queue, PrometheusCollector(registry))
        lengths = {
            state: registry.get_sample_value("bullmq_queue_length", {"queue": "q", "state": state})
            for state in ("wait", "delayed", "active", "completed", "failed")
        }
        assert lengths == {"wait": 1, "delayed": 1, "active": 0, "completed": 0, "failed": 0}

    run_with_queue(opts, scripts, wait_until, steps)


def test_a_failing_measurement_is_reported(opts: dict[str, Any], scripts: ScriptTexts, wait_until: Until) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.connection.command("SET", tested.queue.toKey("completed"), "no zset")
        collector = PrometheusCollector(CollectorRegistry())
        tested.worker(lambda _job, _token: None, metricsCollector=collector, metricsInterval=10)
        await tested.until(lambda: any("WRONGTYPE" in about for _, about in tested.heard), lambda: tested.heard)

    run_with_queue(opts, scripts, wait_until, steps)


def test_prometheus_is_not_imported_by_those_who_do_not_measure() -> None:
    program = (
        "import sys; import conformance.reference_impl.workers.worker; "
        "import conformance.reference_impl.metrics; "
        "sys.exit('prometheus_client' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_without_the_package_the_collector_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(BullMQError, match="pip install prometheus-client"):
        PrometheusCollector()


def test_the_dashboard_shows_metrics_that_exist() -> None:
    text = resources.files("conformance.reference_impl").joinpath("dashboards/bullmq.json").read_text("utf-8")
    dashboard = json.loads(text)
    titles = [panel["title"] for panel in dashboard["panels"]]
    assert titles[:6] == [
        *("Job throughput", "Error rate", "Job duration"),
        *("Queue length", "Active workers", "Heartbeat failure rate"),
    ]
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            names = set(re.findall(r"bullmq_\w+", target["expr"]))
            known = {re.sub("_(bucket|count|sum)$", "", name) for name in names}
            assert known, panel["title"]
            assert known <= set(SPECIFIED_METRICS), panel["title"]
            for label in re.findall(r"(\w+)=~?\"", target["expr"]):
                assert all(label in SPECIFIED_METRICS[name] for name in known), (panel["title"], label)
