"""Node as the possible victim: its event reader and its getters, pointed at what the client left in Redis."""

from __future__ import annotations

from conformance.driver.connection import OperationFailed
from conformance.driver.ops import lifecycle, queue
from conformance.gate.expect import Mismatch
from conformance.gate.participants.participant import Participant
from conformance.gate.run.records import Finding

JOB_TYPES = ["waiting", "paused", "active", "prioritized", "delayed", "completed", "failed", "waiting-children"]


def oracle_health(oracle: Participant, queues: list[str], requirement: str) -> list[Finding]:
    """Read every queue with Node's QueueEvents from the beginning and with its getters.

    `oracle` must be a participant on the client's prefix, with the real clock. A finding says what Node cannot read.
    """
    return [
        finding
        for name in queues
        for finding in (*_getters(oracle, name, requirement), *_events(oracle, name, requirement))
    ]


def _getters(oracle: Participant, name: str, requirement: str) -> list[Finding]:
    try:
        handle = oracle.queue(name, skipMetasUpdate=True)
        handle.call(queue.GetJobCounts(types=JOB_TYPES))
        jobs = handle.call(queue.GetJobs(types=JOB_TYPES)).jobs
        handle.close()
    except OperationFailed as failure:
        return [_finding(requirement, "getters", name, failure.error.message)]
    holes = sum(1 for job in jobs if job is None)
    return [_finding(requirement, "getters", name, f"getJobs returned {holes} jobs without a hash")] if holes else []


def _events(oracle: Participant, name: str, requirement: str) -> list[Finding]:
    stream = oracle.redis(name).events()
    if not stream:
        return []
    reader = oracle.events(name, lastEventId="0-0")
    try:
        for _ in stream:
            reader.next_delivery()
        error = next((event for event in oracle.driver.take_events(reader.handle) if event.name == "error"), None)
    except Mismatch as mismatch:
        return [_finding(requirement, "queue-events", name, str(mismatch))]
    finally:
        oracle.call(lifecycle.Close(), handle=reader.handle)
    return [_finding(requirement, "queue-events", name, str(error.args.get("message")))] if error else []


def _finding(requirement: str, part: str, name: str, seen: str) -> Finding:
    return Finding(
        requirement=requirement,
        source="oracle-health",
        kind=f"oracle-{part}",
        severity="breaks-others",
        where=f"oracle.{part}",
        key=name,
        expected=f"Node's {part} read the queue without error",
        actual=seen,
        message=f"Node's {part} cannot read what the client left in queue {name!r}: {seen}",
    )
