"""The driver of the official Python client: its own loop, its local events and its event reader."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from conformance.driver.errors import OperationFailed
from conformance.driver.ops import job, lifecycle, queue, worker

from .conftest import Bench, eventually


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
def test_an_asked_job_ends_as_the_kit_says(
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
    return [str(one["cmd"]).lower() for one in connections]


def test_a_worker_is_paused_resumed_and_closed(bench: Bench) -> None:
    bench.open("worker", "w", processor="noop")
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
