"""What a client leaves missing: a call that is done, and no word of what came of it.

What the scenario needs to go on is taken from Redis; what only the client could have said is a value that nobody may
look at. A scenario that looks is about this very answer, and unsupported for such a client.
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
    """A value that the client has not told. Whoever looks at it raises OperationUnanswered."""

    def __init__(self, op: str) -> None:
        self._op = op

    def _look(self, *_: object) -> NoReturn:
        raise OperationUnanswered(self._op)

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __getitem__ = __add__ = __radd__ = _look
    __bool__ = __int__ = __float__ = __len__ = __iter__ = __hash__ = __str__ = _look

    def __getattr__(self, name: str) -> NoReturn:
        """Whatever one would ask of the value."""
        raise OperationUnanswered(self._op)


def added_in_redis(op: Op[Answer], redis: RedisView, ids: JobIds) -> Answer | None:
    """What an operation that adds jobs would have answered, in the client's names; None for any other.

    Raises OperationUnanswered where the id of a new job cannot be found.
    """
    answer: Any = None
    match op:
        case queue.Add():
            answer = JobRef(id=_new_jobs(redis, ids, [op.opts])[0])
        case queue.AddBulk():
            answer = Ids(ids=_new_jobs(redis, ids, [job.opts for job in op.jobs]))
    return answer  # type: ignore[no-any-return]


def answer_from_redis(op: Op[Answer], redis: RedisView) -> Answer:
    """What Redis can tell of an operation without answer, in the scenario's names, and `MissingValue` for the rest."""
    wanted, name = type(op).answer, type(op).op
    answer: Any = wanted(**{field.name: MissingValue(name) for field in msgspec.structs.fields(wanted)})
    if isinstance(op, worker.GetNextJob | worker.MoveToCompleted | worker.MoveToFailed):
        answer = MaybeJob(job=_held_job(redis, op.token, name))
    return answer  # type: ignore[no-any-return]


def _new_jobs(redis: RedisView, ids: JobIds, options: list[dict[str, Any]]) -> list[str]:
    """The ids of jobs that were just added, in order: the user's, the owners of their deduplication, or new ones."""
    named = [_named(redis, opts) for opts in options]
    wanted = named.count(None)
    fresh = _unheard_of(redis, ids, named)[-wanted:] if wanted else []
    if len(fresh) < wanted:
        raise OperationUnanswered("queue.add")
    found = iter(fresh)
    return [next(found) if job is None else ids.to_client(job) for job in named]


def _named(redis: RedisView, opts: dict[str, Any]) -> str | None:
    if opts.get("jobId") is not None:
        return str(opts["jobId"])
    deduplication = opts.get("deduplication") or {}
    return redis.string(f"de:{deduplication['id']}") if deduplication.get("id") else None


def _unheard_of(redis: RedisView, ids: JobIds, named: list[str | None]) -> list[str]:
    """Jobs that nobody has spoken of yet, in the order in which they were added.

    Where the event stream was trimmed meanwhile, `wait` tells the order of all that are there.
    """
    told = [entry.get("jobId", "") for entry in redis.events() if entry.get("event") == "added"]
    waiting = redis.elements("wait")[::-1]
    jobs = waiting if set(told) < set(waiting) else dict.fromkeys(told)
    return [job for job in jobs if job not in named and not ids.knows(ids.to_client(job))]


def _held_job(redis: RedisView, token: str, op: str) -> JobView | None:
    """The active job with this lock: its id is known then, and nothing else."""
    held = next((job for job in redis.elements("active") if redis.string(f"{job}:lock") == token), None)
    if held is None:
        return None
    missing = {field.name: MissingValue(op) for field in msgspec.structs.fields(JobView)}
    return JobView(**{**missing, "id": held})  # type: ignore[arg-type]  # nobody may look at the others
