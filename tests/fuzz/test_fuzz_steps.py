"""Steps, and how they are written down."""

from __future__ import annotations

import pytest

from conformance.driver.ops import flow, queue, worker
from conformance.fuzz.steps import (
    CallStep,
    ClockStep,
    FaultStep,
    Step,
    as_record,
    calls_of,
    from_record,
    opening,
    told,
)

CHILD = flow.FlowJob(name="c", queue="r", opts={"jobId": "f1-1"})
STEPS: list[Step] = [
    opening("queue-1", "queue", "q", skipMetasUpdate=True),
    opening("worker-1", "worker", "q", name="w"),
    CallStep("queue-1", queue.Add(name="é🎉", data_raw='"\\ud800"', opts={"delay": 5, "de": {"id": "x"}})),
    CallStep("queue-1", queue.AddBulk(jobs=[queue.NewJob(name="a", opts={"lifo": True})]), by="oracle"),
    CallStep("flow", flow.AddFlow(flow=flow.FlowJob(name="p", queue="q", children=[CHILD]))),
    CallStep("worker-1", worker.MoveToFailed(job="1", token="t", message="", unrecoverable=True)),
    CallStep("queue-1", queue.Pause()),
    CallStep("queue-1", queue.Resume(), cut="mid-reply"),
    ClockStep(20_000),
    FaultStep("delete-lock", "q", "1"),
    FaultStep("wake", "r"),
    FaultStep("script-flush"),
    FaultStep("disconnect"),
]


@pytest.mark.parametrize("step", STEPS, ids=told)
def test_a_step_survives_being_written_down(step: Step) -> None:
    assert from_record(as_record(step)) == step


def test_a_record_leaves_out_what_is_at_its_default() -> None:
    assert as_record(STEPS[0]) == {
        "call": "open",
        "on": "queue-1",
        "args": {"role": "queue", "queue": "q", "options": {"skipMetasUpdate": True}},
    }
    assert as_record(STEPS[6]) == {"call": "queue.pause", "on": "queue-1", "args": {}}
    assert as_record(STEPS[11]) == {"fault": "script-flush"}


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"call": "queue.fly", "on": "queue-1"},
        {"call": "queue.add", "on": "queue-1", "args": {}},
        {"call": "queue.add", "on": 5, "args": {"name": "n"}},
        {"call": "queue.pause", "on": "queue-1", "by": "somebody"},
        {"call": "queue.pause", "on": "queue-1", "cut": "sometime"},
        {"clock_ms": "soon"},
        {"fault": "earthquake"},
    ],
    ids=str,
)
def test_what_is_no_step_is_refused(record: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        from_record(record)


def test_client_objects_do_not_count_as_calls() -> None:
    assert calls_of(STEPS) == 6


def test_a_step_is_told_in_one_line() -> None:
    assert told(STEPS[3]) == ('queue-1 (Node): queue.addBulk(jobs=[{"name":"a","data_raw":"{}","opts":{"lifo":true}}])')
    assert told(STEPS[7]) == "queue-1: queue.resume(), cut mid-reply"
    assert told(ClockStep(5)) == "5 ms pass"
    assert told(FaultStep("delete-lock", "q", "1")) == "delete-lock q 1"
