"""The kinds of steps that there are, and how often each comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from conformance.driver.ops import Op
from conformance.model import Call, Model
from tests.model.bench import Step

if TYPE_CHECKING:
    from .generator import Generator

Maker = Callable[["Generator", Model, int], Step | None]
"""Generator, model and the client's time (ms) make a step, or none where such a step cannot come now."""
WEIGHTS: dict[Maker, float] = {}


def step(weight: float) -> Callable[[Maker], Maker]:
    """Register a kind of step; it comes the more often the more it weighs."""

    def register(make: Maker) -> Maker:
        WEIGHTS[make] = weight
        return make

    return register


def on_queue(weight: float, make: Callable[[Generator], Op[Any]]) -> None:
    """Register an operation of a queue."""

    @step(weight)
    def _make(generator: Generator, model: Model, _: int) -> Step:
        return Call(generator.queue_handle(model)[0], make(generator))
