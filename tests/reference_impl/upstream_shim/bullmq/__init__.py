"""The reference as `bullmq` on PyPI: its name and its constructors (`tests.reference_impl.upstream_suite`)."""

import os
from typing import Any

from conformance import reference_impl as reference
from conformance.reference_impl import Job, QueueEvents, WaitingChildrenError

__all__ = ["FlowProducer", "Job", "Queue", "QueueEvents", "WaitingChildrenError", "Worker"]


def _here(opts: Any) -> dict[str, Any]:
    return {"connection": os.environ["BULLMQ_TEST_REDIS"], **(opts or {})}


class PyPIQueue(reference.Queue):
    def __init__(self, name: str, opts: Any = None) -> None:
        super().__init__(name, _here(opts))
        self.prefix = self.opts["prefix"]


Queue = PyPIQueue


def Worker(name: str, processor: Any = None, opts: Any = None) -> reference.Worker:  # noqa: N802 - it replaces a class
    return reference.Worker(name, processor, _here(opts))


def FlowProducer(_connection: Any = None, opts: Any = None) -> reference.FlowProducer:  # noqa: N802 - as above
    return reference.FlowProducer(_here(opts))
