"""One call in progress, and the table of the functions that model the operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from conformance.driver.ops import Op
from conformance.model.calls import HeldJob, ModelHandle
from conformance.model.state import ModelState, QueueState
from conformance.registry import Registry

OpType = TypeVar("OpType", bound=Op[Any])


@dataclass(frozen=True, slots=True)
class CallContext:
    """The context of a call: the state, the handle it is called on, and the client's clock (Unix ms)."""

    state: ModelState
    handle: ModelHandle
    now_ms: int

    @property
    def queue(self) -> QueueState:
        """The handle's queue."""
        return self.state.queue(self.handle.queue)

    def take_held(self, job: str) -> HeldJob | None:
        """The job that the worker holds; from now on the worker holds it no more."""
        self.handle.tokens.pop(job, None)
        return self.handle.held.pop(job, None)


OperationFunction = Callable[[CallContext, Any], Any]

OPERATIONS: Registry[OperationFunction] = Registry("modelled operation")
"""By name of the operation: the function that changes the state as the operation does, and returns its typed answer."""


def operation(
    op: type[OpType],
) -> Callable[[Callable[[CallContext, OpType], Any]], Callable[[CallContext, OpType], Any]]:
    """Register the function that models an operation."""

    def register(function: Callable[[CallContext, OpType], Any]) -> Callable[[CallContext, OpType], Any]:
        OPERATIONS.add(op.op, function)
        return function

    return register
