"""A job and everything that can be done with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conformance.reference_impl.connection.connection import flat_mapping
from conformance.reference_impl.encoding import js_json
from conformance.reference_impl.jobs import options, validation
from conformance.reference_impl.jobs.base import JobOwner
from conformance.reference_impl.jobs.children import JobChildren
from conformance.reference_impl.jobs.edits import JobEdits
from conformance.reference_impl.jobs.moves import JobMoves
from conformance.reference_impl.jobs.record import data_text, new_record, read_record
from conformance.reference_impl.scripts.registry import NewJob


class Job(JobMoves, JobEdits, JobChildren):
    """A job of one queue, bound to the queue or worker that it came from.

    Making one raises InvalidArgument where the policy `strict_options` refuses its options.
    """

    def __init__(
        self, owner: JobOwner, name: str, data: Any, opts: Mapping[str, Any] | None = None, job_id: str | None = None
    ) -> None:
        for concern in validation.check_new_job(owner.opts, name, opts or {}):
            owner.emit("warning", concern)
        record = new_record(name, data, opts or {}, owner.clock.now_ms())
        vars(self).update(vars(record))
        self.bind(owner)
        self.id = job_id if job_id is not None else self.id

    @classmethod
    async def create(cls, owner: JobOwner, name: str, data: Any, opts: Mapping[str, Any] | None = None) -> Job:
        """Add a job. Raises InvalidArgument and ScriptError."""
        job = cls(owner, name, data, opts)
        job.id = await owner.scripts.add_job(job.to_new_job())
        return job

    @classmethod
    async def createBulk(cls, owner: JobOwner, jobs: Sequence[Mapping[str, Any]]) -> list[Job]:
        """Add jobs ({name, data, opts}) in one pipeline. One invalid job refuses them all: InvalidArgument."""
        created = [cls(owner, entry["name"], entry.get("data", {}), entry.get("opts")) for entry in jobs]
        ids = await owner.scripts.add_jobs([job.to_new_job() for job in created])
        for job, job_id in zip(created, ids, strict=True):
            job.id = job_id
        return created

    @classmethod
    def fromJSON(cls, owner: JobOwner, fields: Mapping[str, str], job_id: str) -> Job:
        """Make a job from the fields of its hash. Raises ValueError where they are not JSON."""
        job = cls.__new__(cls)
        vars(job).update(vars(read_record(fields, job_id)))
        job.bind(owner)
        return job

    @classmethod
    async def fromId(cls, owner: JobOwner, job_id: str) -> Job | None:
        """Answer a stored job, or None where its hash does not exist."""
        if not job_id:
            return None
        await owner.waitUntilReady()
        fields = flat_mapping(await owner.connection.command("HGETALL", owner.keys.key(job_id)))
        return cls.fromJSON(owner, fields, job_id) if fields else None

    @staticmethod
    async def addJobLog(owner: JobOwner, job_id: str, row: str, keepLogs: int | None = None) -> int:
        """Append a log row and keep the last `keepLogs` of them; answers how many there are."""
        return await owner.scripts.add_log(job_id, row, keepLogs)

    @property
    def queueName(self) -> str:
        """Name of the job's queue."""
        return self.owner.keys.queue

    def to_new_job(self, *, waits_for_children: bool = False) -> NewJob:
        """Answer what the add scripts need. Raises InvalidArgument for options that BullMQ or the policy refuses."""
        data = data_text(self.data)
        options.validate(self.name, self.opts, data)
        stored_options = options.encode(self.opts)
        validation.check_payload(self.owner.opts, data, stored_options)
        return NewJob(
            name=self.name,
            data=data,
            options=stored_options,
            timestamp=self.timestamp or 0,
            job_id=self.id,
            parent_key=self.parentKey,
            parent=dict(self.parent) if self.parent else None,
            scheduler_id=self.repeatJobKey,
            deduplication_id=self.deduplicationId,
            waits_for_children=waits_for_children,
        )

    def asJSON(self) -> dict[str, Any]:
        """Answer the job as it would be stored, `data` and `returnvalue` as JSON texts."""
        return {
            "id": self.id,
            "name": self.name,
            "data": data_text(self.data),
            "opts": options.encode(self.opts),
            "timestamp": self.timestamp,
            "returnvalue": js_json.stringify(self.returnvalue),
        }
