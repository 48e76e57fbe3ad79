"""Sandboxed processors: a process for each slot, a crash is a failed attempt, and closing ends the processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import Any

import psutil
import pytest

from conformance.reference_impl import ErrorCategory, InvalidArgument, Policy, SandboxedError, Worker, classify
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.reference_impl.workers.sandbox import CHILD_MODULE, exit_text, result_of
from conformance.reference_impl.workers.sandbox_frames import frame
from tests.reference_impl.queue_under_test import QueueUnderTest, Until, WithQueue, run_with_queue

JOBS = "tests.reference_impl.sandboxed_jobs"
STARTING_S = 120
"""A process imports the library before it takes its first job, which takes long on a busy machine."""


@pytest.fixture
def with_queue(connection: dict[str, Any], prefix: str, scripts: ScriptTexts, wait_until: Until) -> WithQueue:
    def run(steps: Any) -> None:
        opts = {"connection": connection, "prefix": prefix}
        run_with_queue(opts, scripts, patiently(wait_until), steps, within_s=2 * STARTING_S)

    return run


def patiently(wait_until: Until) -> Until:
    return lambda condition, seen: wait_until(condition, seen, within_s=STARTING_S)


def sandboxes() -> list[psutil.Process]:
    """The processes of this one's sandboxes."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE and any("sandbox_child" in word for word in child.cmdline()):
                found.append(child)
    return found


def test_a_sandboxed_job_does_what_a_job_does(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        worker = tested.worker(f"{JOBS}:add_up")
        await tested.queue.add("a", [1, 2, 3])
        await tested.hear("completed", "1")
        job = await tested.job("1")
        assert (job.data, job.progress) == ([1, 2, 3, 4], 50)
        assert (await tested.queue.getJobLogs("1"))["logs"] == ["half of it"]
        value = job.returnvalue
        assert (value["sum"], value["children"]) == (10, {})
        assert value["token"].startswith(worker.id)
        assert value["pid"] in {process.pid for process in sandboxes()}
        await worker.close()
        assert sandboxes() == []

    with_queue(steps)


def test_a_process_is_used_again_and_slots_have_their_own(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        tested.worker(f"{JOBS}:own_pid", concurrency=2)
        await tested.queue.addBulk([{"name": "a", "data": number} for number in range(6)])
        for number in range(1, 7):
            await tested.hear("completed", str(number))
        pids = {(await tested.job(str(number))).returnvalue for number in range(1, 7)}
        assert 1 <= len(pids) <= 2
        assert pids <= {process.pid for process in sandboxes()}
        assert os.getpid() not in pids

    with_queue(steps)


REASONS = {
    "killed": "Unexpected exit code: null signal: SIGKILL",
    "exited": "Unexpected exit code: 3 signal: null",
    "plain": "no luck",
    "transient": "later",
    "http": "[Errno 28] No space left on device",
    "unrecoverable": "never",
    "nan": "Out of range float values are not JSON compliant: nan",
}
CATEGORIES = {"transient": "transient", "http": "transient"}


@pytest.mark.slow
def test_any_end_of_a_sandboxed_processor_is_a_failed_attempt(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        errors: dict[str, BaseException] = {}
        worker = tested.worker(f"{JOBS}:by_name", concurrency=2)
        worker.on("failed", lambda job, error: errors.update({job.name: error}))
        for name in REASONS:
            await tested.queue.add(name, 1, {"jobId": name, "attempts": 2})
        for name, reason in REASONS.items():
            await tested.hear("failed", name, times=1 if name == "unrecoverable" else 2)
            job = await tested.job(name)
            assert reason in (job.failedReason or ""), name
            assert job.attemptsMade == (1 if name == "unrecoverable" else 2)
            assert classify(errors[name]) == CATEGORIES.get(name, "permanent"), name
        assert "sandboxed_jobs.py" in (await tested.job("plain")).stacktrace[0]

    with_queue(steps)


@pytest.mark.parametrize("ending", ["timeout", "force"])
def test_a_processor_that_blocks_is_ended_with_its_process(with_queue: WithQueue, ending: str) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        limit = Policy(job_timeout_s=1) if ending == "timeout" else Policy()
        worker = tested.worker(f"{JOBS}:blocks", policy=limit)
        await tested.queue.add("a", 1)
        if ending == "timeout":
            await tested.hear("failed", "1")
            assert (await tested.job("1")).failedReason == "job 1 ran for more than 1 s"
        else:
            await tested.until(lambda: bool(sandboxes()), sandboxes)
            await worker.close(force=True)
            assert await tested.queue.getJobState("1") == "active"
        await tested.until(lambda: not sandboxes(), sandboxes)

    with_queue(steps)


def test_a_busy_process_ends_with_its_worker() -> None:
    command = [sys.executable, "-m", CHILD_MODULE]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        job = {"name": "a", "data": 1, "opts": {}}
        for message in ({"path": sys.path, "processor": f"{JOBS}:blocks"}, {"job": job, "token": "t"}):
            process.stdin.write(frame(message))
        process.stdin.flush()
        assert process.stderr.readline() == b"blocked\n", "what a processor prints goes to standard error"
        process.stdin.close()
        assert process.wait(STARTING_S) == 0


@pytest.mark.parametrize(
    ("processor", "reason"),
    [
        ("no.such.module:run", "No module named 'no'"),
        (f"{JOBS}:missing", f"module '{JOBS}' has no attribute 'missing'"),
        (f"{JOBS}:no_function", f"the processor {JOBS}:no_function cannot be called: 7"),
    ],
)
def test_a_processor_that_cannot_be_loaded_fails_its_jobs(processor: str, reason: str, with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        tested.worker(processor)
        await tested.queue.add("a", 1)
        await tested.hear("failed", "1")
        assert (await tested.job("1")).failedReason == reason

    with_queue(steps)


@pytest.mark.parametrize("processor", ["", "module", "module:", ":run", "a b:run", "__main__:run", "/path/to/file.py"])
def test_a_text_that_names_no_function_is_refused(processor: str) -> None:
    with pytest.raises(InvalidArgument, match="a sandboxed processor is 'module:function'"):
        Worker("q", processor, {"autorun": False})


def test_exit_codes_are_reported_as_in_node() -> None:
    assert exit_text(1) == "Unexpected exit code: 1 signal: null"
    assert exit_text(-15) == "Unexpected exit code: null signal: SIGTERM"


def test_an_error_of_a_process_keeps_its_category_and_stack() -> None:
    failure = {"kind": None, "message": "gone", "stack": "OSError: gone\n    at there", "category": "transient"}
    with pytest.raises(SandboxedError, match="gone") as caught:
        result_of({"failed": failure})
    assert (caught.value.remote_stack, caught.value.category) == (failure["stack"], ErrorCategory.TRANSIENT)
    assert result_of({"completed": None}) is None
