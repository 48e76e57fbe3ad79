"""All modelled operations: the function of each, and the job states in which it is worth trying."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

from conformance.driver.ops import REGISTRY, Op, job, queue, worker
from conformance.model import (
    adding,
    claiming,
    deduplication,
    editing,
    events,
    finishing,
    getters,
    lifecycle,
    limits,
    removing,
    schedulers,
)
from conformance.model.dispatch import OPERATIONS, OperationFunction
from conformance.protocol.states import JOB_TYPES

MODULES: Final = (
    adding,
    claiming,
    deduplication,
    editing,
    events,
    finishing,
    getters,
    lifecycle,
    limits,
    removing,
    schedulers,
)
"""The modules that model operations; each fills the table when it is imported."""


def function_for(op: Op[Any]) -> OperationFunction | None:
    """The function that models an operation; None where there is none."""
    return OPERATIONS.get(op.op)


JOB_STATES: Final = (*JOB_TYPES, "missing")
"""States that a job may be in. `unknown`, a hash in no container, comes only from faults of upstream."""

LIFECYCLE: Final = frozenset({"open", "close", "reset"})

NOT_MODELLED: Final = frozenset({*REGISTRY} - {*OPERATIONS} - LIFECYCLE)
"""Operations of the driver protocol that the model says nothing about: managed workers, waiting for events, and what
only a library's user sees."""


def _operations_of(module: ModuleType) -> list[type[Op[Any]]]:
    return [op for op in REGISTRY.values() if op.__module__ == module.__name__]


_ON_ONE_JOB: Final[tuple[type[Op[Any]], ...]] = (
    *_operations_of(job),
    queue.GetJob,
    queue.GetJobState,
    queue.GetJobLogs,
    queue.Remove,
    *(op for op in _operations_of(worker) if "job" in op.__struct_fields__),
)

LEGAL: Final[Mapping[str, frozenset[str]]] = {
    op.op: frozenset(JOB_STATES) for op in _ON_ONE_JOB if op.op not in NOT_MODELLED
}
"""By operation on one job: the states of the job in which it may be called.

A pair is legal if a client can make the call without the kit breaking a rule of the driver protocol; that BullMQ
refuses it is not a reason to leave it out. So all pairs are legal.
"""

JOB_OPS: Final = tuple(sorted(LEGAL))
"""Operations on one job."""

QUEUE_OPS: Final = tuple(sorted({*OPERATIONS} - {*LEGAL} - LIFECYCLE))
"""Modelled operations on a queue, a flow producer or a worker as a whole."""
