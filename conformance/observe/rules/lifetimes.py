"""Rules about times to live: they run down between writing and reading, so only the band they lie in is compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from conformance.observe.rules.base import Context, Rule, within
from conformance.observe.tables import Deduplication, Expiring, Snapshot, as_number


def _lock_ttl(snapshot: Snapshot, context: Context) -> Snapshot:
    """Keep whether the lock expires within lockDuration."""
    locks = [
        replace(
            lock,
            ttl_ms=within(lock.ttl_ms, context.lock_duration_ms, "<within lockDuration>", context.ttl_floor_ms),
        )
        for lock in snapshot.locks
    ]
    return replace(snapshot, locks=tuple(locks))


def _deduplication_ttl(snapshot: Snapshot, _: Context) -> Snapshot:
    """Keep whether the key expires within the ttl that its owner asked for."""
    rows = [
        replace(row, ttl_ms=within(row.ttl_ms, _asked_ttl(snapshot, row), "<within ttl>"))
        for row in snapshot.deduplications
    ]
    return replace(snapshot, deduplications=tuple(rows))


def _asked_ttl(snapshot: Snapshot, row: Deduplication) -> int | None:
    """The option `deduplication.ttl` (stored as `de`) of the owner; None where the owner is gone or gave none."""
    owner = snapshot.job(row.queue, row.job)
    asked = owner.opts.get("de") if owner is not None else None
    ttl = as_number(asked.get("ttl")) if isinstance(asked, Mapping) else None
    return int(ttl) if ttl else None


def _limiter_ttl(snapshot: Snapshot, context: Context) -> Snapshot:
    """Keep whether the rate window ends within its duration (the scenario's, or else the queue's own)."""
    rows = [
        replace(row, ttl_ms=within(row.ttl_ms, _duration(snapshot, row, context), "<within duration>"))
        for row in snapshot.limiters
    ]
    return replace(snapshot, limiters=tuple(rows))


def _duration(snapshot: Snapshot, row: Expiring, context: Context) -> int | None:
    if context.limiter_duration_ms is not None:
        return context.limiter_duration_ms
    duration = as_number(snapshot.meta(row.queue).get("duration"))
    return int(duration) if duration is not None and row.value != str(2**53 - 1) else None


def _stalled_check_ttl(snapshot: Snapshot, context: Context) -> Snapshot:
    """Keep whether the next stalled check becomes possible within stalledInterval."""
    rows = [
        replace(row, ttl_ms=within(row.ttl_ms, context.stalled_interval_ms, "<within stalledInterval>"))
        for row in snapshot.stalled_checks
    ]
    return replace(snapshot, stalled_checks=tuple(rows))


LOCK_TTL = Rule(
    name="lock-ttl",
    reason="A lock's time to live is read some moments after it was set; it must lie in (0, lockDuration].",
    transform=_lock_ttl,
)
DEDUPLICATION_TTL = Rule(
    name="dedup-ttl",
    reason="A deduplication key's time to live runs down; it must lie in (0, ttl], or not expire at all.",
    transform=_deduplication_ttl,
)
LIMITER_TTL = Rule(
    name="limiter-ttl",
    reason="The rate window's time to live runs down; it must lie in (0, duration].",
    transform=_limiter_ttl,
)
STALLED_CHECK_TTL = Rule(
    name="stalled-check-ttl",
    reason="The throttle of the stalled check runs down; it must lie in (0, stalledInterval].",
    transform=_stalled_check_ttl,
)
