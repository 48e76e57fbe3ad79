"""Fields of a job hash and names of job states (upstream `src/interfaces/job-json.ts`, includes of the Lua scripts)."""

from __future__ import annotations

from typing import Final

NAME: Final = "name"
DATA: Final = "data"
OPTS: Final = "opts"
TIMESTAMP: Final = "timestamp"
DELAY: Final = "delay"
PRIORITY: Final = "priority"
PARENT_KEY: Final = "parentKey"
PARENT: Final = "parent"
SCHEDULER_ID: Final = "rjk"
DEDUPLICATION_ID: Final = "deid"
PROCESSED_ON: Final = "processedOn"
FINISHED_ON: Final = "finishedOn"
PROCESSED_BY: Final = "pb"
ATTEMPTS_STARTED: Final = "ats"
ATTEMPTS_MADE: Final = "atm"
ATTEMPTS_MADE_LEGACY: Final = "attemptsMade"
STALLED_COUNTER: Final = "stc"
DEFERRED_FAILURE: Final = "defa"
PROGRESS: Final = "progress"
RETURN_VALUE: Final = "returnvalue"
FAILED_REASON: Final = "failedReason"
STACKTRACE: Final = "stacktrace"
NEXT_SCHEDULED_ID: Final = "nrjid"
TELEMETRY: Final = "tm"

CREATION_FIELDS: Final = (NAME, DATA, OPTS, TIMESTAMP, DELAY, PRIORITY)
"""In every job hash, written in this order by the add scripts."""

LINK_FIELDS: Final = (PARENT_KEY, PARENT, SCHEDULER_ID, DEDUPLICATION_ID)
"""Written with the former where they apply."""

STATES: Final = (
    "active",
    "completed",
    "delayed",
    "failed",
    "paused",
    "prioritized",
    "waiting",
    "waiting-children",
)
"""States as users name them, in the order in which getters report all of them. `waiting` is the key `wait`."""

STATE_UNKNOWN: Final = "unknown"
"""What getState answers for a job that is in no container."""


def container_of(state: str) -> str:
    """Name of the Redis key that holds the jobs of a state."""
    return "wait" if state == "waiting" else state
