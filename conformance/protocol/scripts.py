"""How the official Lua scripts of bullmq are called, and what their negative results mean.

Calls are described by the name of every KEYS entry and the kind of every ARGV entry.

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
A `?` behind a kind allows the empty text (JavaScript's undefined). A kind in brackets, which is one of the last, may be
left out: the script does with nil what it does with an empty text that is allowed there, or does not read it at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from conformance.protocol.states import JOB_CONTAINERS

BULLMQ_VERSION: Final = "5.62.0"
"""The version whose scripts these are, and which the reference and the model follow."""

_FINISHED = "|".join(container.key for container in JOB_CONTAINERS if container.finished)
_SETS = "wait|paused|active|completed|failed|delayed|prioritized|waiting-children"
_UNKNOWN: Final = "Unknown code {code} error for {job}. {command}"

ENDS_JOBS: Final = frozenset(
    {"moveToFinished", "retryJob", "moveToDelayed", "moveJobFromActiveToWait", "moveToWaitingChildren"}
)
"""The scripts by which a worker ends its run of a job."""

ABSENT: Final = "undefined"
"""What Node prints where a value is not known."""


@dataclass(frozen=True, slots=True)
class ScriptSignature:
    """Names of KEYS and kinds of ARGV. `more`: kind of any number of further arguments, empty where there are none.

    `needed`: how many arguments the script cannot do without; Node sends the others as well.
    """

    keys: tuple[str, ...]
    args: tuple[str, ...]
    more: str
    needed: int


def signature(keys: str, args: str = "", more: str = "") -> ScriptSignature:
    """How a script is called, in the words of this module."""
    kinds = args.split()
    needed = sum(1 for kind in kinds if not kind.startswith("["))
    return ScriptSignature(tuple(keys.split()), tuple(kind.strip("[]") for kind in kinds), more, needed)


SCRIPT_SIGNATURES: Final[Mapping[str, ScriptSignature]] = {
    "addDelayedJob": signature("marker meta id delayed completed events", "packed text packed"),
    "addJobScheduler": signature(
        "repeat delayed wait paused meta prioritized marker id events pc active",
        "time? packed text text packed packed now base text",
    ),
    "addLog": signature("<job> <job>:logs", "text text count?"),
    "addParentJob": signature("meta id delayed waiting-children completed events", "packed text packed"),
    "addPrioritizedJob": signature(
        "marker meta id prioritized delayed completed active events pc", "packed text packed"
    ),
    "addRepeatableJob": signature("repeat delayed", "time packed text text base"),
    "addStandardJob": signature("wait paused meta id completed delayed active events marker", "packed text packed"),
    "changeDelay": signature("delayed meta marker events", "number now text text"),
    "changePriority": signature("wait paused meta prioritized active pc marker", "number base text [flag]"),
    "cleanJobsInSet": signature(f"{_SETS} events repeat", "base time count text"),
    "drain": signature("wait paused delayed prioritized repeat", "base [flag]"),
    "extendLock": signature("<job>:lock stalled", "text duration text"),
    "extendLocks": signature("stalled", "base packed packed duration"),
    "getCounts": signature("<base>", more="text"),
    "getCountsPerPriority": signature("wait paused meta prioritized", more="number"),
    "getDependencyCounts": signature("<job>:processed <job>:dependencies <job>:failed <job>:unsuccessful", more="text"),
    "getJobScheduler": signature("repeat", "text"),
    "getMetrics": signature(
        "metrics:completed|metrics:failed metrics:completed:data|metrics:failed:data", "integer integer"
    ),
    "getRanges": signature("<base>", "integer integer flag", more="text"),
    "getRateLimitTtl": signature("limiter meta", "count"),
    "getState": signature("completed failed delayed active wait paused waiting-children prioritized", "text"),
    "getStateV2": signature("completed failed delayed active wait paused waiting-children prioritized", "text"),
    "isFinished": signature("completed failed <job>", "text [flag]"),
    "isJobInList": signature(_SETS, "text"),
    "isMaxed": signature("meta active"),
    "moveJobFromActiveToWait": signature(
        "active wait stalled paused meta limiter prioritized marker events", "text text text"
    ),
    "moveJobsToWait": signature(f"<base> events {_FINISHED}|delayed wait paused meta active marker", "count time text"),
    "moveStalledJobsToWait": signature(
        "stalled wait active stalled-check meta paused marker events", "count base now duration"
    ),
    "moveToActive": signature(
        "wait active prioritized events stalled limiter delayed paused meta pc marker", "base now packed"
    ),
    "moveToDelayed": signature(
        "marker active prioritized delayed <job> events meta stalled", "base now text text number flag [packed?]"
    ),
    "moveToFinished": signature(
        "wait active prioritized events stalled limiter delayed paused meta pc "
        f"{_FINISHED} <job> metrics:completed|metrics:failed marker",
        "text now text text text flag base packed [packed?]",
    ),
    "moveToWaitingChildren": signature(
        "active waiting-children <job> <job>:dependencies <job>:unsuccessful stalled events",
        "text text now text [base]",
    ),
    "obliterate": signature("meta <base>", "count text"),
    "paginate": signature("<any>", "integer integer text integer integer flag"),
    "pause": signature("wait|paused wait|paused meta prioritized events delayed marker", "text"),
    "promote": signature("delayed wait paused meta prioritized active pc events marker", "base text"),
    "releaseLock": signature("<job>:lock", "text [duration]"),
    "removeChildDependency": signature("<base>", "text text"),
    "removeJob": signature("<job> repeat", "text flag base"),
    "removeJobScheduler": signature("repeat delayed events", "text base"),
    "removeRepeatable": signature("repeat delayed events", "text text text base"),
    "removeUnprocessedChildren": signature("<job> meta", "base text"),
    "reprocessJob": signature(f"<job> events {_FINISHED} wait meta paused active marker", "text push text text"),
    "retryJob": signature(
        "active wait paused <job> meta events delayed prioritized pc marker stalled",
        "base now push text text [packed?]",
    ),
    "saveStacktrace": signature("<job>", "text text"),
    "updateData": signature("<job>", "text"),
    "updateJobScheduler": signature(
        "repeat delayed wait paused meta prioritized marker id events pc <job>| active",
        "time? text text packed now base text",
    ),
    "updateProgress": signature("<job> events meta", "text text"),
    "updateRepeatableJobMillis": signature("repeat", "time text text"),
}
"""By name, without the number of keys."""


class ErrorCode(IntEnum):
    """Error codes that scripts return instead of a result (upstream `src/enums/error-code.ts`)."""

    MISSING_JOB = -1
    MISSING_LOCK = -2
    WRONG_STATE = -3
    PENDING_DEPENDENCIES = -4
    MISSING_PARENT = -5
    LOCK_MISMATCH = -6
    PARENT_REPLACED = -7
    SCHEDULER_JOB = -8
    FAILED_CHILDREN = -9
    SCHEDULER_COLLISION = -10
    SCHEDULER_SLOTS_BUSY = -11


_TEXTS: Final = {
    ErrorCode.MISSING_JOB: "Missing key for job {job}. {command}",
    ErrorCode.MISSING_LOCK: "Missing lock for job {job}. {command}",
    ErrorCode.WRONG_STATE: "Job {job} is not in the {state} state. {command}",
    ErrorCode.PENDING_DEPENDENCIES: "Job {job} has pending dependencies. {command}",
    ErrorCode.MISSING_PARENT: "Missing key for parent job {parent}. {command}",
    ErrorCode.LOCK_MISMATCH: "Lock mismatch for job {job}. Cmd {command} from {state}",
    ErrorCode.PARENT_REPLACED: "The parent job {parent} cannot be replaced. {command}",
    ErrorCode.SCHEDULER_JOB: "Job {job} belongs to a job scheduler and cannot be removed directly. {command}",
    ErrorCode.FAILED_CHILDREN: "Cannot complete job {job} because it has at least one failed child. {command}",
    ErrorCode.SCHEDULER_COLLISION: "Cannot create job scheduler iteration - job ID already exists. {command}",
    ErrorCode.SCHEDULER_SLOTS_BUSY: (
        "Cannot create job scheduler iteration - current and next time slots already have jobs. {command}"
    ),
}


DRIVER_CODES: Final = {
    ErrorCode.MISSING_JOB: "missing-job",
    ErrorCode.MISSING_LOCK: "missing-lock",
    ErrorCode.WRONG_STATE: "wrong-state",
    ErrorCode.PENDING_DEPENDENCIES: "pending-dependencies",
    ErrorCode.MISSING_PARENT: "missing-parent",
    ErrorCode.LOCK_MISMATCH: "lock-mismatch",
    ErrorCode.PARENT_REPLACED: "parent-replaced",
    ErrorCode.SCHEDULER_JOB: "scheduler-job",
    ErrorCode.FAILED_CHILDREN: "failed-children",
    ErrorCode.SCHEDULER_COLLISION: "scheduler-collision",
    ErrorCode.SCHEDULER_SLOTS_BUSY: "scheduler-collision",
}
"""The same codes as the driver protocol names them."""


def error_text(
    code: int,
    *,
    command: str,
    job: str | None = None,
    parent: str | None = None,
    state: str | None = None,
) -> str:
    """Text of the error that Node throws for a script result (upstream `finishedErrors` of `src/classes/scripts.ts`).

    `command` is the script's name without its key count.
    """
    template = _TEXTS[ErrorCode(code)] if code in _TEXTS else _UNKNOWN
    return template.format(
        code=code, command=command, job=job or ABSENT, parent=parent or ABSENT, state=state or ABSENT
    )
