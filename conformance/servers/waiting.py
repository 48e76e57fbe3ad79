"""Waiting for a condition, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable

STEP_S = 0.005


def wait_until(condition: Callable[[], bool], *, deadline_s: float, step_s: float = STEP_S) -> bool:
    """Ask until the condition holds (True) or the deadline has passed (False). The condition is asked at least once."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(step_s)
    return True
