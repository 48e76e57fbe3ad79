"""The lines of a history, and its encoding. No I/O: bytes in, bytes out.

A history contains calls, runs of jobs, commands on the wire, entries of event streams, and faults. It is JSON lines: a
header, lines ordered by time, a footer. A file without footer belongs to an aborted run. All times are ms since the
start of the run, on one monotonic clock; adding the header's `unix_offset_ms` gives Unix ms. As in Jepsen, every call
is a pair: `invoke`, then `ok` (it happened), `fail` (it certainly did not) or `info` (the outcome is unknown).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from conformance.problems import UsageProblem
from conformance.protocol.scripts import BULLMQ_VERSION

FORMAT = 1

HandleChange: TypeAlias = Literal["opened", "closing", "closed", "not-closed", "absent"]


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that a call adds. `name` is unique in the run; `kind` defines what its processor does.

    `delay_ms`, `priority`, `lifo`, `attempts` as in BullMQ's job options; `backoff_ms`: of a fixed back-off. `parent`:
    name of the parent in its flow. `kept`: False if the options remove the job when it completes.
    """

    name: str
    queue: str
    kind: str = "plain"
    delay_ms: float = 0
    priority: int = 0
    lifo: bool = False
    attempts: int = 1
    backoff_ms: float = 0
    parent: str = ""
    kept: bool = True


class StartLimit(msgspec.Struct, frozen=True, kw_only=True):
    """At most `most` starts in the `duration_ms` after the first one."""

    most: int
    duration_ms: float


class HistoryBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of the checks, in ms unless stated otherwise.

    `lock_ms`: lockDuration of the workers. `late_ms`: how late a delayed job may be promoted. `resume_ms`: how long
    work may be interrupted after a fault; a fault may define another bound. `limits`, `concurrency` (jobs): by
    queue. `worker_concurrency`: how many jobs of a queue a worker may run at a time, 0: unlimited.
    """

    lock_ms: float = 30_000
    late_ms: float = 5_000
    resume_ms: float = 5_000
    limits: dict[str, StartLimit] = {}
    concurrency: dict[str, int] = {}
    worker_concurrency: int = 0


class HistoryHeader(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="header"):
    """The client under test, and the configuration of the run.

    `evidence`: whether each invariant must have seen its minimum (`full`), or any amount is enough (`some`: crash
    points, whose segments are small). `bullmq`: the version whose invariants hold at the end.
    """

    format: int = FORMAT
    client: str = ""
    bullmq: str = BULLMQ_VERSION
    topology: str = "single"
    faults: list[str] = []
    seed: int = 0
    prefix: str = ""
    unix_offset_ms: float = 0
    bounds: HistoryBounds = HistoryBounds()
    reproduce: str = ""
    evidence: Literal["full", "some"] = "some"


class Invoke(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="invoke", omit_defaults=True):
    """A call starts. `jobs`: those that it adds, if any."""

    at_ms: float
    process: str
    call: int
    op: str
    jobs: list[PlannedJob] = []
    args: dict[str, Any] = {}


class Ok(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ok", omit_defaults=True):
    """A call has happened. `ids`: the ids of the jobs that it added, by name."""

    at_ms: float
    process: str
    call: int
    ids: dict[str, str] = {}


class Fail(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="fail", omit_defaults=True):
    """A call certainly has not happened. `unsupported`: the client lacks the operation."""

    at_ms: float
    process: str
    call: int
    error: str = ""
    unsupported: bool = False


class Info(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="info", omit_defaults=True):
    """It is unknown whether a call has happened, or will happen."""

    at_ms: float
    process: str
    call: int
    error: str = ""


class RunStarted(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="run-started"):
    """A processor was called."""

    at_ms: float
    process: str
    queue: str
    job: str
    name: str
    token: str


class RunEnded(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="run-ended"):
    """A processor returned or threw; `outcome` as in the driver's `resolve`."""

    at_ms: float
    process: str
    queue: str
    job: str
    name: str
    token: str
    outcome: str


class ScriptLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="script", omit_defaults=True):
    """A script call as the tap saw it. `at_ms`: the reply, or the end of the connection; `sent_ms`: to Redis.

    `job` and `token`: of the call. `jobs`: the ids in the reply (recovered jobs, or those whose locks were renewed).
    `refused`: the ids whose locks it was to renew, and did not find.
    `lock_ms`: how long the locks that it sets live, None if it does not say. `code`: the negative number that was
    answered, else 0. `fate` as in the records of the tap.
    """

    at_ms: float
    process: str
    script: str
    queue: str
    sent_ms: float | None = None
    job: str = ""
    token: str = ""
    jobs: list[str] = []
    refused: list[str] = []
    claimed: str = ""
    lock_ms: float | None = None
    code: int = 0
    fate: str = "answered"
    error: str = ""

    @property
    def accepted(self) -> bool:
        """Whether Redis executed it and confirmed that."""
        # A call whose reply was lost or replaced may have been executed, so only these are certain.
        return self.fate == "answered" and not self.code and not self.error


class StreamEventLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="event", omit_defaults=True):
    """An entry of a queue's event stream. `at_ms` is the end of the server's ms; `entry` its id in the stream."""

    at_ms: float
    queue: str
    entry: str
    name: str
    job: str = ""
    fields: dict[str, str] = {}


class HandleChanged(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="handle", omit_defaults=True):
    """A client object of a process: `opened`, `closing` (as its user would), `closed`, or `not-closed` (`error`).

    `absent`: the client lacks this kind of object. `role` and `queue` as in the driver's `open`.
    """

    at_ms: float
    process: str
    role: str
    queue: str
    change: HandleChange
    error: str = ""


class EventReported(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="told"):
    """A reader of the client reported an entry of a queue's event stream; `name`: the event's."""

    at_ms: float
    process: str
    queue: str
    entry: str
    name: str


class FaultStarted(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="fault-began", omit_defaults=True):
    """A fault is on. `skew_ms`: how far the target's clock is off. `resume_ms`: see `Bounds`.

    `processes`: the processes of the client that it touches, None for all of them, as for a fault of Redis. `keys`: the
    kinds of keys that it deletes, such as `lock`.
    """

    at_ms: float
    number: int
    fault: str
    target: str = ""
    processes: list[str] | None = None
    keys: list[str] = []
    skew_ms: float = 0
    resume_ms: float | None = None


class FaultEnded(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="fault-ended", omit_defaults=True):
    """A fault is healed. `lost_since_ms`: writes from this time on may be lost; None: no write may be lost.

    `torn`: keys were evicted one by one, so the remaining keys may be inconsistent.
    """

    at_ms: float
    number: int
    fault: str
    lost_since_ms: float | None = None
    torn: bool = False


class RunPhase(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="phase", omit_defaults=True):
    """The run enters a phase: `workload`, `calm` (no fault will come), `drain`, `quiescent` (or `stuck`, `seen`)."""

    at_ms: float
    name: str
    seen: str = ""


class ResourceSample(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="sample", omit_defaults=True):
    """A periodic measurement: unfinished jobs by state; the other fields by process.

    `memory`: resident, bytes. `waited_ms`: CPU starvation of the process since the last sample. `connections`: open
    connections to Redis.
    """

    at_ms: float
    backlog: dict[str, int] = {}
    memory: dict[str, int] = {}
    waited_ms: dict[str, float] = {}
    connections: dict[str, int] = {}


class MachineStarved(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="starved", omit_defaults=True):
    """The machine was starved from `since_ms` to `at_ms`: no client is blamed for delays in this time.

    `process`: the only one of the client's processes that was starved, empty if all of them may have been.
    """

    at_ms: float
    since_ms: float
    process: str = ""


class HistoryFooter(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="footer"):
    """The history is complete. `lines`: without header and footer."""

    at_ms: float
    lines: int


Completion: TypeAlias = Ok | Fail | Info
"""Lines that complete an `Invoke`."""
HistoryLine: TypeAlias = (
    Invoke
    | Ok
    | Fail
    | Info
    | RunStarted
    | RunEnded
    | ScriptLine
    | StreamEventLine
    | HandleChanged
    | EventReported
    | FaultStarted
    | FaultEnded
    | RunPhase
    | ResourceSample
    | MachineStarved
)

_DECODER: msgspec.json.Decoder[HistoryHeader | HistoryLine | HistoryFooter] = msgspec.json.Decoder(
    HistoryHeader | HistoryLine | HistoryFooter
)
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class History:
    """A run as it was recorded, its lines in the order of their times."""

    header: HistoryHeader
    lines: tuple[HistoryLine, ...]
    complete: bool = True

    def encoded(self) -> bytes:
        """The same as JSON lines."""
        rows: list[HistoryHeader | HistoryLine | HistoryFooter] = [self.header, *self.lines]
        if self.complete:
            rows.append(HistoryFooter(at_ms=self.lines[-1].at_ms if self.lines else 0, lines=len(self.lines)))
        return b"".join(encode(row) for row in rows)


def encode(line: HistoryHeader | HistoryLine | HistoryFooter) -> bytes:
    """One line of the file, with its newline."""
    return _ENCODER.encode(line) + b"\n"


def decode_history(rows: Sequence[bytes], where: str = "the history") -> History:
    """Read the lines of a file. Raises UsageProblem if it is not a history."""
    header: HistoryHeader | None = None
    lines: list[HistoryLine] = []
    complete = False
    for number, row in enumerate(rows, 1):
        try:
            line = _DECODER.decode(row)
        except msgspec.MsgspecError as error:
            # The last line only: a broken line in the middle is damage, and not an interruption.
            if number == len(rows) and header is not None:
                break  # the kit was killed while it wrote this line
            raise UsageProblem(f"{where}, line {number}: {error}", hint="is it the history of a chaos run?") from error
        if isinstance(line, HistoryHeader):
            header = line
        elif isinstance(line, HistoryFooter):
            # A footer with another number of lines means that some were lost.
            complete = line.lines == len(lines)
        else:
            lines.append(line)
    if header is None or header.format != FORMAT:
        raise UsageProblem(f"{where} does not start with a header of format {FORMAT}")
    return History(header, in_order(lines), complete)


def in_order(lines: Iterable[HistoryLine]) -> tuple[HistoryLine, ...]:
    """Lines sorted by time; those of one time keep their order."""
    return tuple(sorted(lines, key=lambda line: line.at_ms))
