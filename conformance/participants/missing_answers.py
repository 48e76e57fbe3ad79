"""Substitutes for answers that a client does not give: its call does the work and returns nothing.

The kit reads from Redis what the scenario needs to continue. The rest of the answer becomes `MissingValue`, which
raises OperationUnanswered when the scenario uses it: such a scenario tests this answer, and is unsupported for the
client.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

import msgspec

from conformance.driver.errors import OperationUnanswered
from conformance.driver.ops import Op, queue, worker
from conformance.driver.ops.base import Ids, JobRef, JobView, MaybeJob
from conformance.participants.job_ids import JobIds
from conformance.participants.redis_view import RedisView

Answer = TypeVar("Answer")


class MissingValue:
    """A value that the client did not return. Any use of it raises OperationUnanswered."""

    def __init__(self, op: str) -> None:
        self._op = op

    def _use(self, *_: object) -> NoReturn:
        raise OperationUnanswered(self._op)

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __getitem__ = __add__ = __radd__ = _use
    __bool__ = __int__ = __float__ = __len__ = __iter__ = __hash__ = __str__ = _use

    def __getattr__(self, name: str) -> NoReturn:
        """Any attribute of the value."""
        raise OperationUnanswered(self._op)


def added_in_redis(op: Op[Answer], redis: RedisView, ids: JobIds) -> Answer | None:
    """The answer of an operation that adds jobs, read from Redis, in the client's names; None for other operations.

    Raises OperationUnanswered if the id of a new job cannot be found.
    """
    answer: Any = None
    match op:
        case queue.Add():
            answer = JobRef(id=_new_jobs(redis, ids, [op.opts])[0])
        case queue.AddBulk():
            answer = Ids(ids=_new_jobs(redis, ids, [job.opts for job in op.jobs]))
    return answer  # type: ignore[no-any-return]


def answer_from_redis(op: Op[Answer], redis: RedisView) -> Answer:
    """The answer of an operation as far as Redis shows it, in the scenario's names; the rest is `MissingValue`."""
    wanted, name = type(op).answer, type(op).op
    answer: Any = wanted(**{field.name: MissingValue(name) for field in msgspec.structs.fields(wanted)})
    if isinstance(op, worker.GetNextJob | worker.MoveToCompleted | worker.MoveToFailed):
        answer = MaybeJob(job=_held_job(redis, op.token, name))
    return answer  # type: ignore[no-any-return]


def _new_jobs(redis: RedisView, ids: JobIds, options: list[dict[str, Any]]) -> list[str]:
    """The ids of the jobs just added, in order: ids chosen by the user, owners of deduplication keys, or new ids."""
    named = [_named(redis, opts) for opts in options]
    wanted = named.count(None)
    # The last ones: earlier unknown jobs may be those of a partner or of a schedule.
    fresh = _unknown_jobs(redis, ids, named)[-wanted:] if wanted else []
    if len(fresh) < wanted:
        raise OperationUnanswered("queue.add")
    new_ids = iter(fresh)
    return [next(new_ids) if job is None else ids.to_client(job) for job in named]


def _named(redis: RedisView, opts: dict[str, Any]) -> str | None:
    if opts.get("jobId") is not None:
        return str(opts["jobId"])
    deduplication = opts.get("deduplication") or {}
    return redis.string(f"de:{deduplication['id']}") if deduplication.get("id") else None


def _unknown_jobs(redis: RedisView, ids: JobIds, named: list[str | None]) -> list[str]:
    """Jobs whose ids have appeared in no answer yet, in the order in which they were added."""
    added = [entry.get("jobId", "") for entry in redis.events() if entry.get("event") == "added"]
    # Reversed: LPUSH puts the newest job first.
    waiting = redis.elements("wait")[::-1]
    # Redis may have trimmed `added` entries off the stream; then the order of `wait` is complete.
    jobs = waiting if set(added) < set(waiting) else dict.fromkeys(added)
    return [job for job in jobs if job not in named and not ids.knows(ids.to_client(job))]


def _held_job(redis: RedisView, token: str, op: str) -> JobView | None:
    """The active job with this lock token. Only its id is known."""
    held = next((job for job in redis.elements("active") if redis.string(f"{job}:lock") == token), None)
    if held is None:
        return None
    missing = {field.name: MissingValue(op) for field in msgspec.structs.fields(JobView)}
    return JobView(**{**missing, "id": held})  # type: ignore[arg-type]  # the other fields are MissingValue
