"""Log lines: their names and values are a contract, and without them there is no cost."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from conformance.reference_impl.errors import BullMQError, InvalidArgument
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.journal import (
    Journal,
    JsonFormatter,
    KeywordLogSink,
    StandardLogSink,
    shown,
    sink_of,
    text_in_full,
)
from conformance.reference_impl.scripts.runner import ScriptTexts
from tests.reference_impl.queue_under_test import QueueUnderTest, Until, run_with_queue


class RecordingSink:
    def __init__(self) -> None:
        self.written: list[tuple[str, str, dict[str, Any]]] = []

    def write(self, level: int, message: str, values: Any) -> None:
        self.written.append((logging.getLevelName(level), message, dict(values)))

    def of(self, message: str) -> list[tuple[str, dict[str, Any]]]:
        return [(level, values) for level, each, values in self.written if each == message]


@pytest.fixture
def opts(connection: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {"connection": connection, "prefix": prefix, "workerId": "w-1"}


def test_the_life_of_jobs_is_logged(opts: dict[str, Any], scripts: ScriptTexts, wait_until: Until) -> None:
    lines = RecordingSink()

    async def steps(tested: QueueUnderTest) -> None:
        def process(job: Job, _token: str) -> Any:
            if job.name == "bad":
                raise ValueError("no luck")
            return {"sum": 3}

        await tested.queue.add("good", 1)
        await tested.queue.add("bad", 2, {"attempts": 2, "backoff": 1})
        tested.worker(process, logger=lines)
        await tested.hear("completed", "1")
        await tested.hear("failed", "2", times=2)

    run_with_queue(opts, scripts, wait_until, steps)
    picked_up = lines.of("Job picked up")
    assert [(level, values["jobId"]) for level, values in picked_up] == [("INFO", "1"), ("INFO", "2"), ("INFO", "2")]
    ((level, completed),) = lines.of("Job completed")
    assert (level, completed["result"]) == ("INFO", "{'sum': 3}")
    assert 0 <= completed["duration"] < 5
    ((level, retried),) = lines.of("Job retried")
    assert (level, retried["attemptsMade"], retried["delay"], retried["category"]) == ("WARNING", 1, 1, "permanent")
    ((level, failed),) = lines.of("Job failed")
    assert (level, failed["attemptsMade"], failed["category"]) == ("ERROR", 2, "permanent")
    assert str(failed["error"]) == "no luck"
    assert all((values["worker_id"], values["queue"]) == ("w-1", "q") for _, _, values in lines.written)


def test_single_jobs_are_logged_only_on_request(
    opts: dict[str, Any], scripts: ScriptTexts, wait_until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "bullmq")

    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.add("a", 1)
        tested.worker(lambda _job, _token: None)
        await tested.hear("completed", "1")
        assert (await tested.job("1")).processing_s is None

    run_with_queue(opts, scripts, wait_until, steps)
    assert caplog.records == []


def test_stalled_jobs_and_renewals_are_logged(opts: dict[str, Any], scripts: ScriptTexts, wait_until: Until) -> None:
    lines = RecordingSink()

    async def steps(tested: QueueUnderTest) -> None:
        gate = asyncio.Event()

        async def process(_job: Job, _token: str) -> None:
            await gate.wait()

        dead = tested.worker(None, lockDuration=1)
        await tested.queue.add("a", 1)
        assert await dead.getNextJob("token", {"block": False})
        tested.worker(process, stalledInterval=20, lockRenewTime=40, logger=lines)
        await tested.hear("stalled", "1")
        await tested.hear("heartbeat", "['1']")
        gate.set()
        await tested.hear("completed", "1")

    run_with_queue(opts, scripts, wait_until, steps)
    assert lines.of("Job stalled") == [
        ("WARNING", {"worker_id": "w-1", "queue": "q", "jobId": "1", "lockExpired": True})
    ]
    level, values = lines.of("Locks renewed")[0]
    assert (level, values["jobIds"]) == ("DEBUG", ["1"])


def test_lines_go_to_standard_loggers_with_their_values(caplog: pytest.LogCaptureFixture) -> None:
    mine = logging.getLogger("mine")
    caplog.set_level(logging.INFO, "mine")
    journal = Journal(sink_of(mine), "q", "w-1")
    journal.debug("not of interest")
    journal.info("Job completed", jobId="7")
    journal.error("Redis disconnected", error=ConnectionError("gone"))
    journal.error("Job failed", jobId="8", error=ValueError("bad\nluck"))
    assert [record.getMessage() for record in caplog.records] == [
        "Job completed (queue q, job 7)",
        "Redis disconnected (queue q): ConnectionError: gone",
        "Job failed (queue q, job 8): ValueError: bad luck",
    ]
    assert [bool(record.exc_info) for record in caplog.records] == [False, False, True]
    assert vars(caplog.records[0])["jobId"] == "7"


@pytest.mark.parametrize(
    ("message", "values", "text"),
    [
        ("Locks renewed", {"queue": "q", "jobIds": ["1", "2"]}, "Locks renewed (queue q, jobs 1, 2)"),
        ("Locks renewed", {"jobIds": []}, "Locks renewed"),
        ("no luck", {"queue": "q", "error": OSError("no luck")}, "no luck (queue q)"),
        ("100 % of it", {"jobId": 7}, "100 % of it (job 7)"),
        ("Job failed", {"jobId": "1", "error": "x" * 2000}, f"Job failed (job 1): {'x' * 1000}... (2000 characters)"),
    ],
)
def test_the_text_of_a_line_says_what_it_is_about(message: str, values: dict[str, Any], text: str) -> None:
    assert text_in_full(message, values) == text


def test_lines_go_to_loggers_that_take_keywords() -> None:
    calls: list[tuple[str, str, dict[str, Any]]] = []

    class Structured:
        def __getattr__(self, level: str) -> Any:
            if level == "write":
                raise AttributeError(level)
            return lambda message, **values: calls.append((level, message, values))

    journal = Journal(sink_of(Structured()), "q", "w-1")
    journal.warning("Heartbeat failed", error=OSError("cut"))
    journal.debug("hm")
    common = {"worker_id": "w-1", "queue": "q"}
    assert calls == [
        ("warning", "Heartbeat failed", {**common, "error": "OSError: cut"}),
        ("debug", "hm", common),
    ]


def test_valid_and_invalid_loggers() -> None:
    assert sink_of(None) == sink_of(True) == StandardLogSink(logging.getLogger("bullmq"))
    sink = RecordingSink()
    assert sink_of(sink) is sink
    assert isinstance(sink_of(_FourLevels()), KeywordLogSink)
    with pytest.raises(InvalidArgument, match="logger must have debug, info, warning and error"):
        sink_of("stdout")


class _FourLevels:
    debug = info = warning = error = print


def test_results_are_shown_short() -> None:
    assert [shown(value) for value in (None, True, 7, 1.5, "text", [1])] == [None, True, 7, 1.5, "text", "[1]"]
    assert shown("x" * 5000) == "x" * 1000 + "... (5000 characters)"


def test_lines_as_json() -> None:
    formatter = JsonFormatter()
    record = logging.makeLogRecord(
        {"name": "bullmq", "levelname": "INFO", "msg": "Job %s", "args": ("failed",), "created": 1_700_000_000.5}
        | {"worker_id": "w-1", "error": ValueError("ü\n"), "queue": "q"}
    )
    line = formatter.format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.500Z",
        "level": "INFO",
        "logger": "bullmq",
        "message": "Job failed",
        "worker_id": "w-1",
        "error": "ValueError: ü\n",
        "queue": "q",
    }


def test_lines_as_json_with_a_traceback_and_strange_values() -> None:
    with pytest.raises(BullMQError) as caught:
        sink_of("no logger")
    record = logging.makeLogRecord({"exc_info": (caught.type, caught.value, caught.tb), "jobIds": {1}})
    line = json.loads(JsonFormatter().format(record))
    assert line["traceback"].endswith("logger must have debug, info, warning and error")
    assert line["jobIds"] == "{1}"
