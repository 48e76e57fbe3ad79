"""The fields of a job hash (upstream `src/interfaces/job-json.ts`), and options under their short names."""

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


OPTION_OF_ALIAS: Final = {
    "de": "deduplication",
    "fpof": "failParentOnFailure",
    "cpof": "continueParentOnFailure",
    "idof": "ignoreDependencyOnFailure",
    "kl": "keepLogs",
    "rdof": "removeDependencyOnFailure",
}
"""Stored name to option (upstream `src/utils/index.ts`, `optsDecodeMap`)."""

ALIAS_OF_OPTION: Final = {**{option: alias for alias, option in OPTION_OF_ALIAS.items()}, "debounce": "de"}
"""Option to stored name; `debounce` is the former name of `deduplication` and is only written."""

TELEMETRY_METADATA: Final = "tm"
"""The trace of the last failed attempt, where its worker had telemetry; the same name among the options is the trace in
which the job was added."""

TELEMETRY_ALIASES: Final = {"metadata": TELEMETRY_METADATA, "omitContext": "omc"}
"""Members of the option `telemetry`, stored at the top level."""

CHILD_FAILURE_OPTIONS: Final = (
    "removeDependencyOnFailure",
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
)
"""Effects of a child's failure on its parent, in the order of Node's error. At most one may be set."""

PARENT_FLAG_OPTIONS: Final = (
    "failParentOnFailure",
    "removeDependencyOnFailure",
    "ignoreDependencyOnFailure",
    "continueParentOnFailure",
)
"""The same options in the order in which their flags follow `id` and `queueKey` in the hash field `parent`."""

PRIORITY_LIMIT: Final = 2**21
DEFAULT_MAX_EVENTS: Final = 10_000
"""Length of the event stream where the queue does not say (`meta` field `opts.maxLenEvents`)."""
