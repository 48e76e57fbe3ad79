"""The driver of the official Python client: what it declares, does, answers and reports."""

from __future__ import annotations

import re
import time
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.driver.check import check_driver
from conformance.driver.errors import OperationFailed, OperationIndeterminate, OperationUnsupported
from conformance.driver.messages import RedisAddress
from conformance.driver.ops import REGISTRY, Op, lifecycle, queue, worker
from conformance.driver.process import ChildProcess
from conformance.environment.clients import ClientFile, client_folders
from conformance.servers import Server

from .conftest import FOLDER, Bench, eventually

MISSING = {
    "flow.getFlow",
    "job.changeDelay",
    "job.clearLogs",
    "job.getDependencies",
    "job.getDependenciesCount",
    "job.getIgnoredChildrenFailures",
    "job.removeChildDependency",
    "job.removeDeduplicationKey",
    "job.removeUnprocessedChildren",
    "job.waitUntilFinished",
    "queue.count",
    "queue.getMetrics",
    "queue.getVersion",
    "queue.isMaxed",
    "queue.removeDeduplicationKey",
    "worker.moveToWait",
    "worker.rateLimit",
}
"""Operations for which bullmq 3.4.4 has no method."""


# What ships


def test_the_folder_is_a_client_with_pinned_and_hashed_requirements() -> None:
    assert client_folders()["python-official"] == FOLDER
    described = msgspec.convert(tomllib.loads((FOLDER / "client.toml").read_text("utf-8")), ClientFile)
    text = (FOLDER / str(described.requirements)).read_text("utf-8")
    assert unhashed(text) == []
    assert "bullmq==" in text
    assert "http" not in text


def test_a_requirement_without_hash_would_be_noticed() -> None:
    listed = "a==1 \\\n    --hash=sha256:00\nb==2\n    # via a\nc>=3 \\\n    --hash=sha256:00\n"
    assert unhashed(listed) == ["b==2", "c>=3"]


def unhashed(requirements: str) -> list[str]:
    """Requirements that are not pinned to one version, or to no hash."""
    joined = requirements.replace("\\\n", " ")
    lines = [line.strip() for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return [line.split(" ")[0] for line in lines if not re.search(r"^[\w-]+==\S+ .*--hash=sha256:\w+", line)]


# Declaration


def test_declares_every_operation_that_the_client_has_and_no_other(driver: ChildProcess) -> None:
    assert set(driver.ready.ops) == set(REGISTRY) - MISSING
    assert driver.ready.client.language == "python"
    assert driver.ready.client.version == "3.4.4"
    assert set(driver.ready.capabilities) == {"manual-worker", "managed-worker", "cluster"}


def test_passes_the_kits_own_check_of_drivers(command: list[str], server: Server) -> None:
    address = RedisAddress(mode="standalone", nodes=list(server.nodes))
    with server.connect() as client:
        steps = check_driver(
            lambda: ChildProcess.start(command, seed=1), address=address, redis=client, prefix="check", seed=7
        )
    assert [(step.name, step.detail) for step in steps if step.tried and not step.ok] == []


@pytest.mark.parametrize(
    ("op", "handle", "reason"),
    [
        (queue.Obliterate(count=5), "q", "takes no count"),
        (queue.GetRateLimitTtl(max_jobs=3), "q", "takes no number of jobs"),
        (worker.Resolve(job="1", outcome="wait"), "w", "no Job.moveToWait"),
        (worker.Resolve(job="1", outcome="rate-limit"), "w", "no Worker.rateLimit"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_says_which_arguments_the_client_does_not_have(bench: Bench, op: Op[Any], handle: str, reason: str) -> None:
    bench.open("worker", "w", processor="manual")
    with pytest.raises(OperationUnsupported, match=reason):
        bench.call(op, handle)


# Life and death


def test_reset_forgets_handles_jobs_and_connections(bench: Bench) -> None:
    before = connections(bench.server)
    bench.open("worker", "w", processor="ask")
    bench.open("events", "e")
    bench.open("flow", "f")
    bench.call(queue.Add(name="n"))
    bench.event("w", "job")
    assert connections(bench.server) > before
    bench.call(lifecycle.Reset(), None)
    eventually(lambda: connections(bench.server) < before, expected=True)
    bench.open("queue", "q")
    with pytest.raises(OperationFailed, match="already open"):
        bench.open("queue", "q")


def test_a_redis_that_is_not_there_is_a_lost_connection(bench: Bench) -> None:
    with pytest.raises(OperationIndeterminate) as failure:
        bench.open("queue", "gone", redis=RedisAddress(mode="standalone", nodes=["127.0.0.1:1"]), deadline_ms=800)
    assert failure.value.error.code == "connection-lost"


def test_what_the_client_does_not_finish_is_undecided_in_time(bench: Bench) -> None:
    """A worker that is closed waits for its job: the kit is told so instead of having to kill the driver."""
    bench.open("worker", "w", processor="ask")
    added = bench.call(queue.Add(name="n")).id
    bench.event("w", "job")
    with pytest.raises(OperationIndeterminate, match="did not end within") as failure:
        bench.call(lifecycle.Close(), "w", deadline_ms=500)
    assert failure.value.error.code == "timeout"
    bench.call(worker.Resolve(job=added, outcome="complete"), "w")
    assert bench.event("w", "completed") == {"job": added}


def test_the_driver_leaves_when_its_stdin_ends_although_a_job_runs(command: list[str], server: Server) -> None:
    bench = Bench(ChildProcess.start(command, seed=2), server)
    bench.open("queue", "q")
    bench.open("worker", "w", processor="sleep", processor_args={"ms": 600_000})
    bench.call(queue.Add(name="n"))
    bench.event("w", "active")
    started = time.monotonic()
    bench.driver.close()
    assert not bench.driver.alive
    assert time.monotonic() - started < 1.9, "it had to be killed"


def test_the_driver_needs_nothing_of_the_kit_but_one_file(command: list[str], tmp_path: Path) -> None:
    """Two folders copied elsewhere still answer: no other import of the kit is hidden in it."""
    target = tmp_path / "conformance"
    (target / "clients" / "python_official").mkdir(parents=True)
    (target / "driver").mkdir()
    for file in FOLDER.glob("*.py"):
        (target / "clients" / "python_official" / file.name).write_bytes(file.read_bytes())
    serve = FOLDER.parents[1] / "driver" / "serve.py"
    (target / "driver" / "serve.py").write_bytes(serve.read_bytes())
    copied = ChildProcess.start([command[0], str(target / "clients/python_official/driver.py")], seed=1, cwd=tmp_path)
    assert copied.ready.client.name == "bullmq"
    copied.close()


def connections(server: Server) -> int:
    """How many connections Redis has, besides the one that asks."""
    with server.connect() as client:
        return len(client.client_list()) - 1
