"""One call in progress, and the table of which function answers which operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from conformance.driver.ops import Op
from conformance.model.calls import Handle, HeldJob
from conformance.model.state import Queue, World

OpType = TypeVar("OpType", bound=Op[Any])


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a call happens: the world, the handle it is called on, and the client's clock (Unix ms)."""

    world: World
    handle: Handle
    now_ms: int

    @property
    def queue(self) -> Queue:
        """The handle's queue."""
        return self.world.queue(self.handle.queue)

    def take_held(self, job: str) -> HeldJob | None:
        """The job that the worker holds; from now on the worker holds it no more."""
        self.handle.tokens.pop(job, None)
        return self.handle.held.pop(job, None)


Answerer = Callable[[Stage, Any], Any]

ANSWERERS: dict[type[Op[Any]], Answerer] = {}
"""By operation: the function that changes the world as the operation does, and returns its typed answer."""


def answers(op: type[OpType]) -> Callable[[Callable[[Stage, OpType], Any]], Callable[[Stage, OpType], Any]]:
    """Register the function that answers an operation."""

    def register(answerer: Callable[[Stage, OpType], Any]) -> Callable[[Stage, OpType], Any]:
        ANSWERERS[op] = answerer
        return answerer

    return register
