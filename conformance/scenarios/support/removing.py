"""Ways in which a job is removed, alone or with its relatives: by hand, with all of its kind, or to make room."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from conformance.driver.ops import queue as queue_ops
from conformance.scenarios.support.prepared_queue import PreparedQueue, Step

GONE = "gone"
"""Id of the job that is removed."""
LATER_MS = 60_000
AN_AGE_MS = 5000

AddJob: TypeAlias = Callable[[dict[str, Any]], object]
"""Adds the job that is to be removed, with these options in addition to its own."""

CleanedState: TypeAlias = Literal["completed", "wait", "active", "paused", "prioritized", "delayed", "failed"]


@dataclass(frozen=True)
class WayToRemove:
    """One way to remove a job that is in `state`; `opts` are options that the job needs for it.

    `hard`: a parent that waits for nothing else goes with the job, if it is in the same queue. `frees`: a deduplication
    id with a time of its own goes with it, too.
    """

    state: str
    act: Step
    hard: bool = True
    frees: bool = True
    opts: Mapping[str, Any] | None = None


_OPTIONS: dict[str, dict[str, Any]] = {"delayed": {"delay": LATER_MS}, "prioritized": {"priority": 3}}


def bring(prepared: PreparedQueue, way: WayToRemove, add: AddJob) -> None:
    """Add the job and bring it into the first state of the way. No other job may wait in the queue."""
    if way.state == "paused":
        prepared.queue.pause()
    # The pause comes first, because only then does the new job go to `paused`.
    add({**_OPTIONS.get(way.state, {}), **(way.opts or {})})
    if way.state in ("active", "completed", "failed"):
        prepared.worker.claim_one()
    if way.state == "completed":
        prepared.worker.complete(GONE, {"done": True})
    if way.state == "failed":
        prepared.worker.fail(GONE)


def _remove(prepared: PreparedQueue) -> None:
    prepared.queue.remove(GONE)


def _drain(prepared: PreparedQueue) -> None:
    prepared.queue.call(queue_ops.Drain(delayed=True))


def _clean(state: CleanedState) -> Step:
    def clean(prepared: PreparedQueue) -> None:
        # Some ms have to pass: `clean` compares with now minus the grace.
        prepared.client.pass_time(20)
        prepared.queue.call(queue_ops.Clean(grace_ms=0, limit=10, type=state))

    return clean


def _clean_without_limit(prepared: PreparedQueue) -> None:
    prepared.client.pass_time(20)
    prepared.queue.call(queue_ops.Clean(grace_ms=0, limit=0, type="failed"))


def _clean_unlocked(prepared: PreparedQueue) -> None:
    # `clean` leaves locked jobs alone.
    prepared.queue.redis.delete(f"{GONE}:lock")
    _clean("active")(prepared)


def _obliterate(prepared: PreparedQueue) -> None:
    # `obliterate` refuses a queue that is not paused.
    prepared.queue.pause()
    prepared.queue.call(queue_ops.Obliterate(force=True))


def _finish_another(**keep: Any) -> Step:
    """Finish a job that comes later and keeps only what it says."""

    def finish(prepared: PreparedQueue) -> None:
        prepared.client.pass_time(AN_AGE_MS)
        # It is the next to run, also before a parent that was released.
        prepared.queue.add("later", {}, jobId="later", lifo=True, **keep)
        prepared.worker.claim_one()
        if "removeOnFail" in keep:
            prepared.worker.fail("later")
        else:
            prepared.worker.complete("later")

    return finish


def _complete(prepared: PreparedQueue) -> None:
    prepared.worker.complete(GONE)


def _fail(prepared: PreparedQueue) -> None:
    prepared.worker.fail(GONE)


WAYS_TO_REMOVE: dict[str, WayToRemove] = {
    **{
        f"removed-{state}": WayToRemove(state, _remove, hard=False)
        for state in ("wait", "paused", "delayed", "prioritized", "completed", "failed")
    },
    **{f"drained-{state}": WayToRemove(state, _drain) for state in ("wait", "paused", "delayed", "prioritized")},
    "cleaned-wait": WayToRemove("wait", _clean("wait")),
    "cleaned-paused": WayToRemove("paused", _clean("paused")),
    "cleaned-delayed": WayToRemove("delayed", _clean("delayed")),
    "cleaned-prioritized": WayToRemove("prioritized", _clean("prioritized")),
    "cleaned-completed": WayToRemove("completed", _clean("completed")),
    "cleaned-failed": WayToRemove("failed", _clean("failed")),
    "cleaned-failed-without-limit": WayToRemove("failed", _clean_without_limit),
    "cleaned-active": WayToRemove("active", _clean_unlocked),
    **{
        f"obliterated-{state}": WayToRemove(state, _obliterate)
        for state in ("wait", "delayed", "prioritized", "active", "completed", "failed")
    },
    "outnumbered-completed": WayToRemove("completed", _finish_another(removeOnComplete=1), hard=False, frees=False),
    "outlived-completed": WayToRemove(
        "completed", _finish_another(removeOnComplete={"age": 1}), hard=False, frees=False
    ),
    "outnumbered-failed": WayToRemove("failed", _finish_another(removeOnFail=1), hard=False, frees=False),
    "outlived-failed": WayToRemove("failed", _finish_another(removeOnFail={"age": 1}), hard=False, frees=False),
    "gone-with-its-completion": WayToRemove(
        "active", _complete, hard=False, frees=False, opts={"removeOnComplete": True}
    ),
    "gone-with-its-failure": WayToRemove("active", _fail, hard=False, frees=False, opts={"removeOnFail": True}),
}
"""Every way in which a job is removed, by name."""
