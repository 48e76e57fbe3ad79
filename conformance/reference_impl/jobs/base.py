"""A job that is bound to the queue or worker on whose connection it acts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from conformance.protocol.keys import QueueKeys
from conformance.reference_impl.clock import Clock
from conformance.reference_impl.connection.connection import Connection
from conformance.reference_impl.errors import BullMQError
from conformance.reference_impl.jobs.record import JobRecord
from conformance.reference_impl.scripts.registry import Scripts


class JobOwner(Protocol):
    """A queue or worker, seen from its jobs."""

    connection: Connection
    scripts: Scripts

    @property
    def keys(self) -> QueueKeys:
        """Key names of the queue."""
        ...

    @property
    def opts(self) -> Mapping[str, Any]:
        """QueueOptions or WorkerOptions; a job that finishes takes the worker's settings from here."""
        ...

    @property
    def clock(self) -> Clock:
        """The client's clock."""
        ...

    def emit(self, event: str, *args: Any) -> None:
        """Tell the owner's listeners."""
        ...

    async def waitUntilReady(self) -> None:
        """Wait until connected, and until whatever must be written first is written."""
        ...


class BoundJob(JobRecord):
    """Base of the groups of job operations.

    `token` is the lock token of a job that a worker fetched. `retry_delay` are the ms until the next attempt, once the
    last one has failed; None when there is none. `processing_s`: how long the processor ran, where that is measured.
    """

    owner: JobOwner
    token: str | None
    discarded: bool
    retry_delay: float | None
    processing_s: float | None

    def bind(self, owner: JobOwner) -> None:
        """Let the job act on this owner's connection."""
        self.owner = owner
        self.token = None
        self.discarded = False
        self.retry_delay = None
        self.processing_s = None

    @property
    def known_id(self) -> str:
        """The job's id. Raises BullMQError for a job that was not added yet."""
        if self.id is None:
            raise BullMQError(f"job {self.name} has no id: it was not added")
        return self.id

    @property
    def scripts(self) -> Scripts:
        """The owner's script calls."""
        return self.owner.scripts

    def key(self, suffix: str) -> str:
        """Redis key of a companion of the job."""
        return self.owner.keys.of_job(self.known_id, suffix)
