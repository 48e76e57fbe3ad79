"""Scores of the sorted sets (upstream Lua includes `getDelayedScore`, `getPriorityScore`)."""

from __future__ import annotations

from typing import Final

DELAY_FACTOR: Final = 0x1000
"""A delayed score is the due time in ms times this, plus a number that keeps equal times in order."""

PRIORITY_FACTOR: Final = 0x1_0000_0000
"""A prioritized score is the priority times this, plus a counter that keeps equal priorities in order."""


def delayed_score(due_ms: float) -> float:
    """Score of the first job that is due at this Unix time."""
    return due_ms * DELAY_FACTOR


def due_time(score: float) -> float:
    """Unix time in ms at which a job with this delayed score is due."""
    return score // DELAY_FACTOR


def priority_of(score: float) -> int:
    """Priority of a job with this prioritized score."""
    return int(score // PRIORITY_FACTOR)
