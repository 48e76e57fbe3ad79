"""Telemetry: the numbers that a worker gives to the meter of its user (`telemetry.meter`)."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.participants.expect import equal, holds
from conformance.participants.handles import WorkerHandle
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant

WORK_MS = 250

ENDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "completed": ({}, {}),
    "failed": ({}, {"outcome": "fail", "message": "boom"}),
    "retried": ({"attempts": 2}, {"outcome": "fail", "message": "boom"}),
    "delayed": ({"attempts": 2, "backoff": 600_000}, {"outcome": "fail", "message": "boom"}),
    "delayed-by-itself": ({}, {"outcome": "delay", "ms": 600_000}),
}
"""By counted status: the options with which a job is added, and how it ends."""


_FORMER = "bullmq.job.status"
"""An attribute with the state that 5.x has as well."""


def _measurement(worker: WorkerHandle) -> dict[str, Any]:
    """The next number that the meter gets."""
    found = worker.wait_local("measured").args
    attributes = {name: value for name, value in found["attributes"].items() if name != _FORMER}
    return {**found, "attributes": attributes}


def _attributes(state: str) -> dict[str, Any]:
    return {"bullmq.queue.name": "q", "bullmq.job.name": "named", "bullmq.job.state": state}


@pytest.mark.parametrize("end", ENDS)
@scenario("telemetry.counters", "telemetry.durations", bullmq=">=5.69")
def test_a_meter_gets_each_end_of_a_job(client: Participant, end: str) -> None:
    """One measurement by the counter of the state, and one of the time that the job took."""
    options, outcome = ENDS[end]
    state = end.partition("-")[0]
    queue, worker = client.queue(), client.worker("ask", meter=True)
    queue.add("named", {}, **options)
    worker.next_job()
    client.pass_time(WORK_MS)
    worker.resolve("1", **outcome)
    counted = _measurement(worker)
    expected = {"kind": "counter", "name": f"bullmq.jobs.{state}", "value": 1}
    equal(counted, {**expected, "attributes": _attributes(state)}, "the job is counted", where="measured.counter")
    measured = _measurement(worker)
    expected = {"kind": "histogram", "name": "bullmq.job.duration", "attributes": _attributes(state)}
    took_ms = measured.pop("value")
    equal(measured, expected, "its time is measured", where="measured.histogram")
    holds(took_ms >= WORK_MS, "the time is that since its start, in ms", seen=took_ms, where="measured.histogram")
