"""Two acts that meet: which of them Redis runs first is up to the scenario, and what comes of it is what it checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from conformance.driver.connection import OperationFailed
from conformance.driver.ops import queue as queue_ops
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.participant import Participant

Moment = Literal["before-send", "after-execute"]

LATE: Moment = "before-send"
UNHEARD: Moment = "after-execute"


@dataclass(frozen=True)
class Act:
    """One side of a race: a call of the client, and the script in which it takes effect."""

    script: str
    call: Callable[[], Any]


@dataclass(frozen=True)
class Race:
    """How a race went. `first`: the act that Redis ran first. `outcomes`: what each was answered, or its error code."""

    first: str
    outcomes: dict[str, Any]


def orders(one: str, other: str) -> pytest.MarkDecorator:
    """Every way in which two acts can meet, as the scenario's argument `order`.

    `X-late`: X has been prepared, and the other act is over before Redis sees it. `X-unheard`: Redis has run X, and the
    other act is over before X is answered.
    """
    return pytest.mark.parametrize("order", [f"{act}-{when}" for act in (one, other) for when in ("late", "unheard")])


def meet(client: Participant, order: str, **acts: Act) -> Race:
    """Let two acts, called by their names, meet in one of the `orders`. They must use different handles."""
    held, _, when = order.rpartition("-")
    [other] = [name for name in acts if name != held]
    phase = LATE if when == "late" else UNHEARD
    with client.tap.hold(acts[held].script, phase=phase) as barrier:
        pending = client.meanwhile(lambda: outcome(acts[held].call))
        barrier.wait()
        quick = outcome(acts[other].call)
        barrier.release()
        slow = pending.result()
    return Race(first=other if when == "late" else held, outcomes={held: slow, other: quick})


def outcome(call: Callable[[], Any]) -> Any:
    """What a call was answered, or the code of its error."""
    try:
        return call()
    except OperationFailed as failure:
        return failure.error.code


def claimed(worker: WorkerHandle, token: str = "token-1") -> str | None:
    """Claim a job; its id, or None."""
    job = worker.claim(token)
    return job.id if job else None


def drain(queue: QueueHandle) -> None:
    """Queue.drain."""
    queue.call(queue_ops.Drain())


def obliterate(queue: QueueHandle) -> None:
    """Queue.obliterate."""
    queue.call(queue_ops.Obliterate())


def waits_of(queue: QueueHandle, job: str) -> int:
    """How many events say that the job came to `wait`."""
    return sum(entry["event"] == "waiting" and entry["jobId"] == job for entry in queue.redis.events())


def let_arrive(queue: QueueHandle) -> None:
    """Let a call that was begun just now arrive at the driver: calls that are made after it are answered.

    Nothing says so for certain. A client that does as the scenario says does so as well if the call arrives later.
    """
    for _ in range(3):
        queue.is_paused()
