"""The area of a mutant: the subject of the script or module that it breaks. Rates are given by area."""

from __future__ import annotations

from fnmatch import fnmatchcase

AREAS: dict[str, tuple[str, ...]] = {
    "adding": (
        "lua/addStandardJob/*",
        "lua/addDelayedJob/*",
        "lua/addPrioritizedJob/*",
        "lua/addParentJob/*",
        "python/flow_producer.py/*",
        "python/scripts/add.py/*",
        "python/jobs/options.py/*",
        "python/packing.py/*",
    ),
    "claiming": ("lua/moveToActive/*", "python/workers/fetching.py/*"),
    "finishing": ("lua/moveToFinished/*", "lua/moveToWaitingChildren/*", "python/jobs/attempts.py/*"),
    "locks": ("lua/extendLock*", "lua/releaseLock/*", "lua/moveStalled*", "python/workers/locks.py/*"),
    "moving": (
        "lua/retryJob/*",
        "lua/reprocessJob/*",
        "lua/promote/*",
        "lua/pause/*",
        "lua/moveTo*",
        "lua/moveJob*",
        "lua/change*",
        "python/scripts/move.py/*",
    ),
    "removing": ("lua/remove[!JR]*", "lua/removeJob/*", "lua/drain/*", "lua/cleanJobsInSet/*", "lua/obliterate/*"),
    "scheduling": (
        "lua/*Scheduler/*",
        "lua/*epeatable*",
        "python/job_scheduler.py/*",
        "python/recurrence.py/*",
        "python/repeat.py/*",
        "python/cron*",
    ),
    "job data": (
        "lua/addLog/*",
        "lua/update*",
        "lua/saveStacktrace/*",
        "python/jobs/*",
        "python/js_values.py/*",
    ),
    "reading": ("lua/get*", "lua/is*", "lua/paginate/*"),
    "queues": ("python/queue*", "python/scripts/*"),
    "workers": ("python/workers/*", "python/emitter.py/*", "python/clock.py/*"),
    "connections": ("python/connection/*", "python/policy.py/*"),
    "watching": ("python/*",),
}
"""Globs over keys of mutants; the first that fits counts."""


def area_of(key: str) -> str:
    """The area of the mutant with this key. Raises StopIteration if no area has its script, which a test rules out."""
    return next(area for area, globs in AREAS.items() if any(fnmatchcase(key, glob) for glob in globs))
