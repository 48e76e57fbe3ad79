"""A job before it is in a queue: what the client makes of what its user gave, and the hash that is written from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.model.calls import NotModelled
from conformance.model.events import emit
from conformance.model.options import JobOptions, check_modelled, check_options, is_number, of_job_object
from conformance.model.state import Queue, World
from conformance.model.texts import argument, cjson, lua_true, normalised_json
from conformance.protocol.options import PARENT_FLAG_OPTIONS

PARENT_FLAGS = {
    "failParentOnFailure": "fpof",
    "removeDependencyOnFailure": "rdof",
    "ignoreDependencyOnFailure": "idof",
    "continueParentOnFailure": "cpof",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job on its way into a queue. `options` are those of the Job object; `waits_for_children`: parent of a flow."""

    queue: Queue
    id: str
    """Empty: the queue makes one."""
    name: str
    data_raw: str
    options: JobOptions
    timestamp: float
    waits_for_children: bool = False

    @property
    def parent(self) -> Mapping[str, Any] | None:
        """The option `parent`: id and qualified queue name."""
        given: Mapping[str, Any] | None = self.options.get("parent")
        return given or None

    @property
    def parent_key(self) -> str | None:
        """The full key of the parent."""
        return None if self.parent is None else f"{self.parent['queue']}:{self.parent['id']}"

    @property
    def is_delayed(self) -> bool:
        """Whether the job has to wait for its time."""
        delay: Any = self.options.get("delay")
        return is_number(delay) and delay > 0

    @property
    def script(self) -> str:
        """The script that adds such a job."""
        if self.waits_for_children:
            return "addParentJob"
        if self.is_delayed:
            return "addDelayedJob"
        return "addPrioritizedJob" if self.options.get("priority") else "addStandardJob"


def new_job(
    queue: Queue, name: str, data_raw: str, given: Mapping[str, Any], now_ms: int, *, job_id: str | None = None
) -> NewJob:
    """The job that the client makes of what its user gave. Raises Failure where the client refuses it."""
    check_modelled(given)
    try:
        normalised_json(data_raw)
    except ValueError as error:
        raise NotModelled(f"data that is not JSON: {error}") from error
    options = of_job_object(given)
    check_options(options, data_raw)
    chosen = job_id if job_id is not None else (given.get("jobId") or "")
    timestamp = options.get("timestamp") or now_ms
    return NewJob(queue=queue, id=chosen, name=name, data_raw=data_raw, options=options, timestamp=timestamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What the hash of a new job is made from; `options` under their short names."""

    name: str
    data_raw: str
    options: JobOptions
    timestamp: float
    links: Mapping[str, str] = field(default_factory=dict)
    """Fields that tell what the job belongs to: a parent, a scheduler."""


def store(world: World, queue: Queue, job_id: str, record: Record) -> None:
    """Write the job's hash, and tell that it was added. An older hash under the same id shines through."""
    fields = {
        "name": record.name,
        "data": record.data_raw,
        "opts": cjson(record.options),
        "timestamp": argument(record.timestamp),
        "delay": argument(_or_zero(record.options.get("delay"))),
        "priority": argument(_or_zero(record.options.get("priority"))),
        **record.links,
    }
    deduplication = record.options.get("de")
    if deduplication is not None and lua_true(deduplication.get("id")):
        fields["deid"] = argument(deduplication["id"])
    queue.hash(job_id).update(fields)
    emit(world, queue, "added", jobId=job_id, name=record.name)


def parent_fields(job: NewJob) -> dict[str, str]:
    """The two fields by which a job knows its parent, and what its failure will mean to it."""
    assert job.parent is not None
    assert job.parent_key is not None
    flags = {PARENT_FLAGS[name]: True for name in PARENT_FLAG_OPTIONS if job.options.get(name)}
    return {
        "parentKey": job.parent_key,
        "parent": cjson({"id": job.parent["id"], "queueKey": job.parent["queue"], **flags}),
    }


def _or_zero(value: Any) -> Any:
    return value if lua_true(value) else 0
