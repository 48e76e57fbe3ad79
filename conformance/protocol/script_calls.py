"""How the official Lua scripts of 5.62.0 are called: the name of every KEYS entry and the kind of every ARGV entry.

Keys are names after `PREFIX:QUEUE:`, alternatives separated by `|`. `<job>` is any key of the queue that a job id gives
(`<job>:lock` its lock, and so on), `<base>` is `PREFIX:QUEUE:` itself, `<any>` any key of the queue, and an empty
alternative allows the empty text.

Kinds of arguments:
    base     `PREFIX:QUEUE:`
    now      the client's time in Unix ms
    time     any Unix ms or score: a finite number
    number   a finite number
    integer  a whole number
    count    a whole number from 0
    duration a whole number of ms from 1: Redis refuses others as a time to live
    flag     `1` or `0`, or empty
    push     `LPUSH` or `RPUSH`
    packed   msgpack
    text     anything
A `?` behind a kind allows the empty text (JavaScript's undefined).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """Names of KEYS and kinds of ARGV. `more`: kind of any number of further arguments, empty where there are none."""

    keys: tuple[str, ...]
    args: tuple[str, ...]
    more: str = ""


def _call(keys: str, args: str = "", more: str = "") -> ScriptCall:
    return ScriptCall(tuple(keys.split()), tuple(args.split()), more)


_FINISHED = "completed|failed"
_SETS = "wait|paused|active|completed|failed|delayed|prioritized|waiting-children"

SCRIPT_CALLS: Final[Mapping[str, ScriptCall]] = {
    "addDelayedJob": _call("marker meta id delayed completed events", "packed text packed"),
    "addJobScheduler": _call(
        "repeat delayed wait paused meta prioritized marker id events pc active",
        "time? packed text text packed packed now base text",
    ),
    "addLog": _call("<job> <job>:logs", "text text count?"),
    "addParentJob": _call("meta id delayed waiting-children completed events", "packed text packed"),
    "addPrioritizedJob": _call("marker meta id prioritized delayed completed active events pc", "packed text packed"),
    "addRepeatableJob": _call("repeat delayed", "time packed text text base"),
    "addStandardJob": _call("wait paused meta id completed delayed active events marker", "packed text packed"),
    "changeDelay": _call("delayed meta marker events", "number now text text"),
    "changePriority": _call("wait paused meta prioritized active pc marker", "number base text flag"),
    "cleanJobsInSet": _call(f"{_SETS} events repeat", "base time count text"),
    "drain": _call("wait paused delayed prioritized repeat", "base flag"),
    "extendLock": _call("<job>:lock stalled", "text duration text"),
    "extendLocks": _call("stalled", "base packed packed duration"),
    "getCounts": _call("<base>", more="text"),
    "getCountsPerPriority": _call("wait paused meta prioritized", more="number"),
    "getDependencyCounts": _call("<job>:processed <job>:dependencies <job>:failed <job>:unsuccessful", more="text"),
    "getJobScheduler": _call("repeat", "text"),
    "getMetrics": _call(
        "metrics:completed|metrics:failed metrics:completed:data|metrics:failed:data", "integer integer"
    ),
    "getRanges": _call("<base>", "integer integer flag", more="text"),
    "getRateLimitTtl": _call("limiter meta", "count"),
    "getState": _call("completed failed delayed active wait paused waiting-children prioritized", "text"),
    "getStateV2": _call("completed failed delayed active wait paused waiting-children prioritized", "text"),
    "isFinished": _call("completed failed <job>", "text flag"),
    "isJobInList": _call(_SETS, "text"),
    "isMaxed": _call("meta active"),
    "moveJobFromActiveToWait": _call(
        "active wait stalled paused meta limiter prioritized marker events", "text text text"
    ),
    "moveJobsToWait": _call(f"<base> events {_FINISHED}|delayed wait paused meta active marker", "count time text"),
    "moveStalledJobsToWait": _call(
        "stalled wait active stalled-check meta paused marker events", "count base now duration"
    ),
    "moveToActive": _call(
        "wait active prioritized events stalled limiter delayed paused meta pc marker", "base now packed"
    ),
    "moveToDelayed": _call(
        "marker active prioritized delayed <job> events meta stalled", "base now text text number flag packed?"
    ),
    "moveToFinished": _call(
        "wait active prioritized events stalled limiter delayed paused meta pc "
        f"{_FINISHED} <job> metrics:completed|metrics:failed marker",
        "text now text text text flag base packed packed?",
    ),
    "moveToWaitingChildren": _call(
        "active waiting-children <job> <job>:dependencies <job>:unsuccessful stalled events", "text text now text base"
    ),
    "obliterate": _call("meta <base>", "count text"),
    "paginate": _call("<any>", "integer integer text integer integer flag"),
    "pause": _call("wait|paused wait|paused meta prioritized events delayed marker", "text"),
    "promote": _call("delayed wait paused meta prioritized active pc events marker", "base text"),
    "releaseLock": _call("<job>:lock", "text duration"),
    "removeChildDependency": _call("<base>", "text text"),
    "removeJob": _call("<job> repeat", "text flag base"),
    "removeJobScheduler": _call("repeat delayed events", "text base"),
    "removeRepeatable": _call("repeat delayed events", "text text text base"),
    "removeUnprocessedChildren": _call("<job> meta", "base text"),
    "reprocessJob": _call(f"<job> events {_FINISHED} wait meta paused active marker", "text push text text"),
    "retryJob": _call(
        "active wait paused <job> meta events delayed prioritized pc marker stalled", "base now push text text packed?"
    ),
    "saveStacktrace": _call("<job>", "text text"),
    "updateData": _call("<job>", "text"),
    "updateJobScheduler": _call(
        "repeat delayed wait paused meta prioritized marker id events pc <job>| active",
        "time? text text packed now base text",
    ),
    "updateProgress": _call("<job> events meta", "text text"),
    "updateRepeatableJobMillis": _call("repeat", "time text text"),
}
"""By name, without the number of keys."""
