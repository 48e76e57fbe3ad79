"""Short names under which job options are stored (upstream `src/utils/index.ts`, `optsDecodeMap`)."""

from __future__ import annotations

from typing import Final

OPTION_OF_ALIAS: Final = {
    "de": "deduplication",
    "fpof": "failParentOnFailure",
    "cpof": "continueParentOnFailure",
    "idof": "ignoreDependencyOnFailure",
    "kl": "keepLogs",
    "rdof": "removeDependencyOnFailure",
}
"""Stored name to option."""

ALIAS_OF_OPTION: Final = {**{option: alias for alias, option in OPTION_OF_ALIAS.items()}, "debounce": "de"}
"""Option to stored name; `debounce` is the former name of `deduplication` and is only written."""

TELEMETRY_ALIASES: Final = {"metadata": "tm", "omitContext": "omc"}
"""Members of the option `telemetry`, stored at the top level."""

CHILD_FAILURE_OPTIONS: Final = (
    "removeDependencyOnFailure",
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
)
"""What a child's failure does to its parent. At most one may be set; in the order in which Node's error names them."""

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
