"""Times to live of locks as moments: two stores that are the same may have been read minutes apart. No Spark."""

from __future__ import annotations

from dataclasses import replace

from conformance.observe.canonical_rules import CLOCK_TOLERANCE_MS
from conformance.observe.tables import Lock, Snapshot, as_number
from reports.diff.values import DiffSettings

SAME_MOMENT = "<the same moment>"


def with_same_moments(expected: Snapshot, actual: Snapshot, settings: DiffSettings) -> tuple[Snapshot, Snapshot]:
    """Both sides, with one label for the times to live of locks that end at the same moment.

    A time to live was read at some moment between the start and the end of a snapshot, and gives the moment of its
    end as exactly as that. Locks that never expire stay as they are; so do those that end at different moments, which
    the rule `lock-ttl` checks: each has to lie in the band of lockDuration.
    """
    if not settings.has_rule("lock-ttl"):
        return expected, actual
    tolerance_ms = CLOCK_TOLERANCE_MS + sum(side.reading_ms for side in settings.sides)
    ends = [{_holder(lock): _end_ms(lock, side.taken_ms) for lock in side.locks} for side in (expected, actual)]
    same = {
        holder
        for holder, left in ends[0].items()
        if left is not None and (right := ends[1].get(holder)) is not None and abs(left - right) <= tolerance_ms
    }
    return _labelled(expected, same), _labelled(actual, same)


def _end_ms(lock: Lock, taken_ms: int) -> float | None:
    """Unix ms at which the lock ends; None where it never does."""
    ttl_ms = as_number(lock.ttl_ms)
    return None if ttl_ms is None or ttl_ms < 0 else taken_ms + ttl_ms


def _labelled(side: Snapshot, holders: set[tuple[str, str]]) -> Snapshot:
    locks = [replace(lock, ttl_ms=SAME_MOMENT) if _holder(lock) in holders else lock for lock in side.locks]
    return replace(side, locks=tuple(locks))


def _holder(lock: Lock) -> tuple[str, str]:
    return lock.queue, lock.job
