"""The driver of the official Python client: what it declares, does, answers and reports."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.driver import transports
from conformance.driver.authoring import check_driver
from conformance.driver.errors import OperationFailed, OperationIndeterminate, OperationUnsupported
from conformance.driver.ops import REGISTRY, Op, flow, job, lifecycle, queue, worker
from conformance.driver.ops.library import LIBRARY_OPERATIONS
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.driver.transports import ChildProcess
from conformance.environment.clients import ClientFile, client_folders
from conformance.environment.python_environments import PythonPackages, ensure_python_environment
from conformance.servers import RedisInstance

from .conftest import FOLDER, Bench, eventually

# Packaging


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


def test_declares_every_operation_but_those_that_its_page_says_the_client_lacks(driver: ChildProcess) -> None:
    assert set(driver.ready.ops) == set(REGISTRY) - LIBRARY_OPERATIONS - operations_without_a_method()
    assert driver.ready.client.language == "python"
    assert driver.ready.client.version == "3.4.4"
    assert set(driver.ready.capabilities) == {"manual-worker", "managed-worker", "cluster", "url"}


@pytest.mark.slow
def test_an_older_version_declares_what_it_has_and_runs_a_job(server: RedisInstance) -> None:
    driver = ChildProcess.start(older("2.16.1"), seed=1)
    try:
        bench = Bench(driver, server)
        bench.open("queue", "q")
        bench.open("worker", "w", processor="manual")
        assert bench.call(queue.Add(name="job", data_raw="{}", opts={"priority": 2})).id == "1"
        claimed = bench.call(worker.GetNextJob(token="t"), "w").job
        assert claimed is not None
        assert (claimed.id, claimed.priority) == ("1", 2)
        bench.call(worker.MoveToCompleted(job="1", token="t", value_raw="5"), "w")
        assert "finishedOn" in bench.hash("1")
        assert driver.ready.client.version == "2.16.1"
        assert {"queue.getDeduplicationJobId", "worker.extendLocks"} & set(driver.ready.ops) == set()
    finally:
        driver.close()


def older(version: str) -> list[str]:
    """The command of the driver in an environment with this version of the client."""
    packages = PythonPackages.resolved([f"bullmq=={version}"])
    return [str(ensure_python_environment("python-official", packages, announce=print)), str(FOLDER / "driver.py")]


def operations_without_a_method() -> set[str]:
    """The table of `README.md`, which has a row for each role of a handle."""
    table = (FOLDER / "README.md").read_text("utf-8").partition("has no method:")[2].partition("Declared, but")[0]
    rows = re.findall(r"^\| (queue|job|worker|flow|relay) \| (.*) \|$", table, re.MULTILINE)
    assert [role for role, _ in rows] == ["queue", "job", "worker", "flow", "relay"]
    return {f"{role}.{name}" for role, names in rows for name in re.findall(r"`(\w+)`", names)}


def test_passes_the_kits_own_check_of_drivers(command: list[str], server: RedisInstance) -> None:
    address = RedisAddress(mode="standalone", nodes=list(server.nodes))
    with server.connect() as client:
        steps = check_driver(
            lambda: ChildProcess.start(command, seed=1), address=address, redis=client, prefix="check-python", seed=7
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


def test_an_unfinished_call_is_undecided_in_time(bench: Bench) -> None:
    """A closing worker waits for its job: the driver answers so, and the kit does not have to kill it."""
    bench.open("worker", "w", processor="ask")
    added = bench.call(queue.Add(name="n")).id
    bench.event("w", "job")
    with pytest.raises(OperationIndeterminate, match="did not end within") as failure:
        bench.call(lifecycle.Close(), "w", deadline_ms=3000)
    assert failure.value.error.code == "timeout"
    bench.call(worker.Resolve(job=added, outcome="complete"), "w")
    assert bench.event("w", "completed") == {"job": added}


def test_the_driver_leaves_when_its_stdin_ends_although_a_job_runs(
    command: list[str], server: RedisInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transports, "CLOSE_SECONDS", 60.0)
    bench = Bench(ChildProcess.start(command, seed=2), server)
    bench.open("queue", "q")
    bench.open("worker", "w", processor="sleep", processor_args={"ms": 600_000})
    bench.call(queue.Add(name="n"))
    bench.event("w", "active")
    assert bench.driver.close(), "it had to be killed"
    assert not bench.driver.alive


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


def connections(server: RedisInstance) -> int:
    """How many connections Redis has, besides the one that asks."""
    with server.connect() as client:
        return len(client.client_list()) - 1


EXCLUSIVE = {"failParentOnFailure": True, "removeDependencyOnFailure": True}
"""Options that the client refuses together."""


# Queue and jobs


def test_an_added_job_is_in_redis_and_is_read_back(bench: Bench) -> None:
    data = {"text": "é\ud800", "list": [1, None]}
    added = bench.call(queue.Add(name="n", data_raw=json.dumps(data), opts={"priority": 3, "attempts": 2})).id
    assert json.loads(bench.hash(added)["data"]) == data
    view = bench.call(queue.GetJob(job=added)).job
    assert view is not None
    assert (view.name, view.priority, view.opts["attempts"]) == ("n", 3, 2)
    assert json.loads(view.data_raw) == data
    assert bench.call(queue.GetJob(job="missing")).job is None


def test_bulk_counts_and_pages(bench: Bench) -> None:
    ids = bench.call(queue.AddBulk(jobs=[queue.NewJob(name="a"), queue.NewJob(name="b", opts={"delay": 60_000})])).ids
    assert bench.call(queue.GetJobCounts(types=["waiting", "delayed"])).counts == {"waiting": 1, "delayed": 1}
    found = bench.call(queue.GetJobs(types=["delayed"])).jobs
    assert [view.id for view in found if view] == [ids[1]]


def test_changes_of_a_job_reach_redis(bench: Bench) -> None:
    added = bench.call(queue.Add(name="n", opts={"delay": 60_000})).id
    bench.call(job.UpdateData(job=added, data_raw='{"new":1}'))
    bench.call(job.UpdateProgress(job=added, value_raw="50"))
    assert bench.call(job.Log(job=added, row="a row")).count == 1
    bench.call(job.Promote(job=added))
    bench.call(job.ChangePriority(job=added, priority=4))
    stored = bench.hash(added)
    assert (stored["data"], stored["progress"], stored["priority"], stored["delay"]) == ('{"new":1}', "50", "4", "0")
    assert bench.call(queue.GetJobLogs(job=added)).logs == ["a row"]
    assert bench.call(job.GetState(job=added)).state == "prioritized"


def test_a_flow_and_a_scheduler_are_shown_as_the_client_shows_them(bench: Bench) -> None:
    bench.open("flow", "f")
    child = flow.FlowJob(name="c", queue="q", opts={"jobId": "child"})
    tree = bench.call(flow.AddFlow(flow=flow.FlowJob(name="p", queue="q", children=[child])), "f")
    assert [node.id for node in tree.children] == ["child"]
    assert bench.call(job.GetState(job=tree.id)).state == "waiting-children"
    bench.call(flow.UpsertJobScheduler(id="s", repeat={"every": 60_000}, name="n", data_raw='{"a":1}'))
    shown = bench.call(flow.GetJobScheduler(id="s")).scheduler
    assert shown is not None
    assert (shown.key, shown.every, shown.template_data_raw) == ("s", 60_000, '{"a":1}')
    assert bench.call(flow.RemoveJobScheduler(id="s")).value is True
    assert bench.call(flow.RemoveJobScheduler(id="s")).value is False


# Workers, one step at a time


def test_a_manual_worker_claims_finishes_and_fetches(bench: Bench) -> None:
    bench.open("worker", "w", processor="manual")
    assert bench.call(worker.GetNextJob(token="t"), "w").job is None
    assert bench.call(worker.GetNextJob(token="t"), "w").job is None  # at once, although the queue was seen empty
    first, second = (bench.call(queue.Add(name="n", opts={"attempts": 2})).id for _ in range(2))
    claimed = bench.call(worker.GetNextJob(token="t"), "w").job
    assert claimed is not None
    assert claimed.id == first
    done = bench.call(worker.MoveToCompleted(job=first, token="t", value_raw='{"ok":true}', fetch_next=True), "w")
    assert done.job is not None
    assert done.job.id == second
    bench.call(worker.MoveToFailed(job=second, token="t", message="again"), "w")
    assert bench.call(job.GetState(job=second)).state == "waiting"
    stored = bench.hash(second)
    assert stored["failedReason"] == "again"
    assert "again" in json.loads(stored["stacktrace"])[0]
    assert bench.hash(first)["returnvalue"] == '{"ok":true}'


def test_locks_and_the_stalled_check(bench: Bench) -> None:
    bench.open("worker", "w", processor="manual")
    held = bench.call(queue.Add(name="n")).id
    bench.call(worker.GetNextJob(token="t"), "w")
    assert bench.call(worker.ExtendLock(job=held, token="other", duration_ms=9000), "w").value is False
    assert bench.call(worker.ExtendLock(job=held, token="t", duration_ms=9000), "w").value is True
    extend = worker.ExtendLocks(jobs=[held, "missing"], tokens=["t", "t"], duration_ms=9000)
    assert bench.call(extend, "w").ids == ["missing"]
    assert bench.call(worker.CheckStalled(), "w").ids == []
    with bench.server.connect() as client:
        client.delete(f"{bench.prefix}:q:{held}:lock", f"{bench.prefix}:q:stalled-check")
    assert bench.call(worker.CheckStalled(), "w").ids == [held]


@pytest.mark.parametrize(
    ("op", "handle", "code"),
    [
        (job.UpdateProgress(job="missing", value_raw="1"), "q", "missing-job"),
        (job.Promote(job="JOB"), "q", "wrong-state"),
        (job.RemoveJob(job="JOB"), "q", "lock-mismatch"),
        (worker.MoveToCompleted(job="JOB", token="other"), "w", "lock-mismatch"),
        (worker.MoveToCompleted(job="1", token="t"), "w", "missing-job"),
        (queue.Add(name="n", opts=EXCLUSIVE), "q", "invalid-argument"),
        (queue.Add(name="n", data_raw="no json"), "q", "invalid-argument"),
        (queue.Add(name="n", data_raw="NaN"), "q", "invalid-argument"),
        (queue.Add(name="n", opts={"parent": {"id": "x", "queue": "none:q"}}), "q", "missing-parent"),
        (flow.UpsertJobScheduler(id="s", repeat={}), "q", "invalid-argument"),
        (flow.UpsertJobScheduler(id="s", repeat={"pattern": "* * * * *", "tz": "No/Where"}), "q", "invalid-argument"),
        (queue.Pause(), "nobody", "invalid-argument"),
        (queue.Pause(), "w", "invalid-argument"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_errors_of_the_client_become_errors_of_the_protocol(bench: Bench, op: Op[Any], handle: str, code: str) -> None:
    bench.open("worker", "w", processor="manual")
    held = bench.call(queue.Add(name="n", opts={"jobId": "held"})).id
    bench.call(worker.GetNextJob(token="t"), "w")
    fields = {name: held if value == "JOB" else value for name, value in msgspec.to_builtins(op).items()}
    with pytest.raises(OperationFailed) as failure:
        bench.call(msgspec.convert(fields, type(op)), handle)
    assert (failure.value.error.code, failure.value.error.definite) == (code, True), failure.value


def test_a_refusal_by_redis_is_not_an_argument_error(bench: Bench) -> None:
    with bench.server.connect() as client:
        client.set(f"{bench.prefix}:q:wait", "not a list")
    with pytest.raises(OperationFailed, match="WRONGTYPE") as failure:
        bench.call(queue.Add(name="n"))
    assert failure.value.error.code == "other"


def test_a_claimed_job_that_the_client_cannot_read_leaves_the_outcome_open(bench: Bench) -> None:
    bench.open("worker", "w", processor="manual")
    added = bench.call(queue.Add(name="n")).id
    with bench.server.connect() as client:
        client.hset(f"{bench.prefix}:q:{added}", "data", "{broken")
    with pytest.raises(OperationFailed) as reading:
        bench.call(queue.GetJob(job=added))
    assert reading.value.error.code == "other"
    with pytest.raises(OperationIndeterminate):
        bench.call(worker.GetNextJob(token="t"), "w")


@pytest.mark.parametrize(
    ("answer", "state", "stored"),
    [
        ({"outcome": "complete", "value_raw": '{"v":[1]}'}, "completed", ("returnvalue", '{"v":[1]}')),
        ({"outcome": "fail", "message": "no"}, "waiting", ("failedReason", "no")),
        ({"outcome": "unrecoverable", "message": "never"}, "failed", ("failedReason", "never")),
        ({"outcome": "delay", "ms": 60_000}, "delayed", ("ats", "1")),
        ({"outcome": "waiting-children", "value_raw": "7"}, "completed", ("returnvalue", "7")),
    ],
    ids=lambda value: str(value.get("outcome")) if isinstance(value, dict) else "",
)
def test_a_job_of_processor_ask_ends_as_the_kit_says(
    bench: Bench, answer: dict[str, Any], state: str, stored: tuple[str, str]
) -> None:
    bench.open("worker", "w", processor="ask", options={"name": "w1"})
    added = bench.call(queue.Add(name="n", data_raw='{"x":1}', opts={"attempts": 2, "backoff": 0})).id
    asked = bench.event("w", "job")
    assert (asked["job"]["id"], asked["job"]["data_raw"]) == (added, '{"x":1}')
    assert asked["token"]
    if state == "waiting":  # the only free hand takes the job again at once: hold it where it has to be seen
        bench.call(queue.Pause())
    bench.call(msgspec.convert({"job": added, **answer}, worker.Resolve), "w")
    eventually(lambda: bench.call(job.GetState(job=added)).state, state)
    assert stored in bench.hash(added).items()


@dataclass(frozen=True)
class Preset:
    """A processor with its settings, the data of a job, and what must come of it."""

    processor: str
    data: str
    stored_field: str
    value: str
    event: str = "completed"
    settings: dict[str, Any] = field(default_factory=dict)


PRESETS = [
    Preset("noop", "1", "returnvalue", "null"),
    Preset("echo", '{"e":1}', "returnvalue", '{"e":1}'),
    Preset("sleep", "1", "returnvalue", "null", settings={"ms": 5}),
    Preset("fail", "1", "failedReason", "once", settings={"times": 1, "message": "once"}),
    Preset("throw", "1", "failedReason", "always", event="failed", settings={"message": "always"}),
    Preset("progress", "1", "progress", '{"p":2}', settings={"values": [10, {"p": 2}]}),
    Preset("steps", '{"steps":[{"do":"progress","value":3},{"do":"return","value":[4]}]}', "returnvalue", "[4]"),
    Preset("steps", '{"steps":[{"do":"unrecoverable","message":"bad"}]}', "failedReason", "bad", event="failed"),
    Preset("steps", '{"steps":[{"do":"dance"}]}', "failedReason", "unknown step: dance", event="failed"),
]


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: f"{preset.processor}-{preset.value}")
def test_preset_processors(bench: Bench, preset: Preset) -> None:
    bench.open("worker", "w", processor=preset.processor, processor_args=preset.settings)
    attempts = 2 if preset.processor == "fail" else 1
    added = bench.call(queue.Add(name="n", data_raw=preset.data, opts={"attempts": attempts})).id
    assert bench.event("w", preset.event) == {"job": added}
    assert bench.hash(added)[preset.stored_field] == preset.value


def test_the_steps_log_sleep_and_fail_until_an_attempt(bench: Bench) -> None:
    bench.open("worker", "w", processor="steps")
    steps = [{"do": "log", "row": "r"}, {"do": "sleep", "ms": 1}, {"do": "fail", "message": "x", "until_attempt": 1}]
    added = bench.call(queue.Add(name="n", data_raw=json.dumps({"steps": steps}), opts={"attempts": 2})).id
    assert bench.event("w", "failed") == {"job": added}
    assert bench.event("w", "completed") == {"job": added}
    assert bench.call(queue.GetJobLogs(job=added)).logs == ["r", "r"]


def last_commands(bench: Bench) -> list[str]:
    """The last command of every connection to the server."""
    with bench.server.connect() as client:
        connections: Any = client.client_list()
    return [str(connection["cmd"]).lower() for connection in connections]


def test_a_worker_is_paused_resumed_and_closed(bench: Bench) -> None:
    bench.open("worker", "w", processor="noop", options={"drainDelay": 1})
    eventually(lambda: bench.call(worker.IsWorkerRunning(), "w").value, expected=True)
    # The client does not interrupt a worker that is about to wait: a pause at that moment takes as long as the wait.
    eventually(lambda: "bzpopmin" in last_commands(bench), expected=True)
    bench.call(worker.PauseWorker(), "w")
    assert bench.event("w", "paused") == {}
    assert bench.call(worker.IsWorkerPaused(), "w").value is True
    bench.call(worker.ResumeWorker(), "w")
    bench.call(queue.Add(name="n"))
    assert bench.event("w", "completed")
    bench.call(lifecycle.Close(), "w")
    assert bench.event("w", "closed") == {}
    with pytest.raises(OperationFailed, match="no handle"):
        bench.call(worker.IsWorkerRunning(), "w")


def test_event_readers_deliver_everything_from_the_moment_of_opening(bench: Bench) -> None:
    bench.call(queue.Add(name="before"))
    bench.open("events", "e")
    added = bench.call(queue.Add(name="after")).id
    seen = [bench.event("e", "queue-event") for _ in range(2)]
    assert [(event["name"], event["fields"]["jobId"]) for event in seen] == [("added", added), ("waiting", added)]
    assert all(re.fullmatch(r"\d+-\d+", event["event_id"]) for event in seen)


def test_event_readers_start_where_the_options_say_and_keep_unknown_names(bench: Bench) -> None:
    with bench.server.connect() as client:
        client.xadd(f"{bench.prefix}:q:events", {"event": "brand-new", "jobId": "7"})
        client.xadd(f"{bench.prefix}:q:events", {"event": "drained"})
    bench.open("events", "e", options={"lastEventId": "0-0"})
    seen = [bench.event("e", "queue-event") for _ in range(2)]
    assert [(event["name"], event["fields"]) for event in seen] == [("brand-new", {"jobId": "7"}), ("drained", {})]
