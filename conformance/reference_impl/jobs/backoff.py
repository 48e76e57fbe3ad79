"""How long a failed job waits before its next attempt (upstream `src/classes/backoffs.ts`)."""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from conformance.reference_impl.encoding.js_json import is_number, truthy
from conformance.reference_impl.errors import InvalidArgument

FAIL_NOW: Final = -1
"""A custom strategy answers this to end the retries."""

BackoffStrategy = Callable[[int, str | None, BaseException, Any], float | Awaitable[float]]
"""Worker setting `backoffStrategy(attempt, type, error, job)`: the delay in ms, 0 for none, -1 to fail now."""


def normalize(backoff: Any) -> Any:
    """Answer the option as it is stored: a bare number means a fixed delay in ms, an empty value means none."""
    if is_number(backoff) and math.isfinite(backoff):
        return {"type": "fixed", "delay": backoff}
    return backoff if truthy(backoff) else None


async def delay_before_retry(
    backoff: Mapping[str, Any] | None,
    attempt: int,
    error: BaseException,
    job: Any,
    *,
    strategy: BackoffStrategy | None = None,
    chance: Callable[[], float] = random.random,
) -> float:
    """Delay in ms after the failed attempt of this number (the first is 1); `FAIL_NOW` where the strategy says so.

    Raises InvalidArgument for a type that neither BullMQ nor the strategy knows.
    """
    if not backoff:
        return 0
    kind, base, jitter = backoff.get("type"), backoff.get("delay", math.nan), backoff.get("jitter") or 0
    if kind == "fixed":
        return spread(base, jitter, chance)
    if kind == "exponential":
        return spread(round_half_up(2 ** (attempt - 1) * base), jitter, chance)
    if strategy is None:
        raise InvalidArgument(
            f"Unknown backoff strategy {kind}.\n      "
            "If a custom backoff strategy is used, specify it when the queue is created."
        )
    answer = strategy(attempt, kind, error, job)
    return await answer if inspect.isawaitable(answer) else answer


def spread(delay: float, jitter: float, chance: Callable[[], float]) -> float:
    """Answer a delay in `[delay * (1 - jitter), delay)`, in whole ms; the delay itself without jitter."""
    if jitter <= 0:
        return delay
    return math.floor(chance() * delay * jitter + delay * (1 - jitter))


def round_half_up(value: float) -> float:
    """`Math.round`: halves go up, unlike Python's `round`."""
    return math.floor(value + 0.5) if math.isfinite(value) else value
