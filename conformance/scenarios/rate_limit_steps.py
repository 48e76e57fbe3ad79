"""Steps that several scenarios about rate limits share."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import holds
from conformance.participants.handles import QueueHandle
from conformance.participants.participant import Participant
from conformance.participants.redis_view import RedisView

MINUTE_MS = 60_000
EVERYTHING = "9007199254740991"
"""What `rateLimit()` stores: the largest integer that JavaScript counts exactly, so that every limit is reached."""


def limit(queue: QueueHandle, most: int, duration_ms: int = MINUTE_MS) -> None:
    """Limit the queue as a whole, in `meta`."""
    queue.call(queue_ops.SetGlobalRateLimit(max=most, duration_ms=duration_ms))


def limit_of(whose: str, queue: QueueHandle, most: int, duration_ms: int = MINUTE_MS) -> dict[str, Any]:
    """Limit the queue as a whole (`queue`), or answer the options that limit a worker (`worker`)."""
    if whose == "worker":
        return {"limiter": {"max": most, "duration": duration_ms}}
    limit(queue, most, duration_ms)
    return {}


def fill(queue: QueueHandle, jobs: int) -> None:
    """Add plain jobs; their ids count from 1."""
    for number in range(1, jobs + 1):
        queue.add(f"job {number}")


def let_window_end(redis: RedisView, client: Participant) -> None:
    """The key has expired, and so much time has passed on the client's clock too."""
    redis.delete("limiter")
    client.pass_time(MINUTE_MS)


def all_completed(client: Participant, jobs: int) -> None:
    """Wait until so many jobs are completed."""
    client.eventually(
        lambda: len(client.redis().members("completed")),
        lambda completed: completed == jobs,
        f"all {jobs} jobs are completed",
        within_ms=15_000,
    )


def started_in_windows(redis: RedisView, *, most: int, duration_ms: int) -> None:
    """While jobs wait, every window is used up: its first start and that of the next are `duration_ms` apart.

    A window begins with the script that starts its first job. `processedOn` is from before that script, the event's
    stamp from within it: from the one to the other no gap looks shorter than it was. Both clocks must be real. Without
    `processedOn` a gap counts as 0 ms, and nothing is shown by no gap at all: either fails.
    """
    starts = [(stamp, entry["jobId"]) for stamp, entry in redis.stamped_events() if entry["event"] == "active"]
    gaps = [
        stamp - int(redis.field(first, "processedOn") or stamp) for (_, first), (stamp, _) in pairwise(starts[::most])
    ]
    holds(
        gaps and all(gap >= duration_ms for gap in gaps),
        f"at most {most} jobs are started per {duration_ms} ms",
        seen=f"ms between the windows: {gaps}",
    )
    redis.delete("limiter")  # it is about to expire: whether it has is not for a comparison to say
