"""The checks of a history that concern one job at a time: all records of a job are brought together first."""

from __future__ import annotations

import heapq
import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from zlib import crc32

import msgspec
import pyarrow as pa

from conformance.checkers.histories.evidence import REMOVING, Evidence
from conformance.checkers.histories.history import (
    FaultEnded,
    FaultStarted,
    History,
    HistoryHeader,
    HistoryLine,
    Invoke,
    MachineStarved,
    Ok,
    RunEnded,
    RunPhase,
    RunStarted,
    ScriptLine,
    StreamEventLine,
    encode,
    in_order,
)
from conformance.checkers.histories.history_checks import ALL_CHECKS
from conformance.observe.tables import Snapshot
from conformance.problems import UsageProblem
from reports.distribution import Distribution, InProcesses, InThreads
from reports.progress import Watch, unwatched
from reports.snapshot.format import ARROW, SnapshotFolder, read_bucket
from reports.snapshot.rows import WideRow, narrowed, rows_of, snapshot_of


@dataclass(frozen=True, slots=True)
class JobLine:
    """A line of one job. It is known by its `queue` and `job` (its id), by its `name`, or by both."""

    line: HistoryLine
    queue: str = ""
    job: str = ""
    name: str = ""


_DECODER: msgspec.json.Decoder[HistoryLine] = msgspec.json.Decoder(HistoryLine)


def decode_line(text: str | bytes) -> HistoryLine:
    """A line from its JSON."""
    return _DECODER.decode(text)


def is_shared(line: HistoryLine) -> bool:
    """Whether a line is about all jobs: faults, phases, moments without a machine and calls that remove jobs."""
    if isinstance(line, Invoke):
        return line.op in REMOVING
    return isinstance(line, FaultStarted | FaultEnded | RunPhase | MachineStarved)


def job_lines(line: HistoryLine) -> Iterator[JobLine]:
    """Yield the line once for every job that it is about; each of these names no other job."""
    if isinstance(line, RunStarted | RunEnded):
        yield JobLine(line, queue=line.queue, job=line.job, name=line.name)
    elif isinstance(line, StreamEventLine) and line.job:
        name = line.fields.get("name", "") if line.name == "added" else ""
        yield JobLine(line, queue=line.queue, job=line.job, name=name)
    elif isinstance(line, ScriptLine):
        yield from _script_lines(line)
    elif isinstance(line, Invoke) and not is_shared(line):
        for planned in line.jobs:
            yield JobLine(msgspec.structs.replace(line, jobs=[planned]), queue=planned.queue, name=planned.name)
    elif isinstance(line, Ok):
        for name, job in line.ids.items():
            yield JobLine(msgspec.structs.replace(line, ids={name: job}), job=job, name=name)


def _script_lines(line: ScriptLine) -> Iterator[JobLine]:
    for job in sorted({line.job, line.claimed, *line.jobs} - {""}):
        own = msgspec.structs.replace(
            line,
            job=job if line.job == job else "",
            claimed=job if line.claimed == job else "",
            jobs=[job] if job in line.jobs else [],
        )
        yield JobLine(own, queue=line.queue, job=job)


DECOMPOSABLE = (
    *("conservation", "durability", "indeterminate"),
    *("duplicate-runs", "tokens", "counters", "timing", "events"),
)
"""Names of the checks that need no more than what there is of one job, and the lines about all jobs."""

CHECKS = tuple(check for check in ALL_CHECKS if check.name in DECOMPOSABLE)


def judge_jobs(
    header: HistoryHeader, shared: Iterable[HistoryLine], own: Iterable[HistoryLine], snapshot: Snapshot | None = None
) -> Iterator[tuple[str, str, str, str]]:
    """The findings about these jobs: check, job, message, and lines as JSON.

    All lines of each of them have to be in `own`, and in `snapshot`, where there is one, all that it has of them.
    """
    evidence = Evidence(History(header, in_order([*shared, *own])), snapshot)
    for check in CHECKS:
        for finding in check.run(evidence).findings:
            evidence_lines = b"".join(encode(line) for line in finding.lines).decode()
            yield check.name, finding.job, finding.message, evidence_lines


_SNAPSHOT_TABLES = ("jobs", "memberships")
"""The tables of a snapshot that the checks need."""


@dataclass(frozen=True, kw_only=True)
class JudgeWork:
    """Jobs to judge: files with the lines about all jobs, with theirs, and with the rows that a snapshot has of them.

    `taken`: prefix and time of the snapshot; None if there is none.
    """

    header: HistoryHeader
    shared: Path
    lines: Path
    rows: Path
    taken: tuple[str, int] | None


def judge_part(task: JudgeWork) -> HistoryTally:
    """Judge the jobs of a part."""
    own = [decode_line(line) for line in task.lines.read_bytes().splitlines()]
    snapshot = None if task.taken is None else _snapshot(task.taken, task.rows.read_bytes().splitlines())
    tally = HistoryTally()
    for check, job, message, evidence in judge_jobs(task.header, _shared_lines(task.shared), own, snapshot):
        tally.add(JobFinding(check=check, job=job, message=message, evidence=evidence))
    return tally


@lru_cache(maxsize=1)
def _shared_lines(path: Path) -> list[HistoryLine]:
    """The lines about all jobs: each process decodes them once."""
    return [decode_line(line) for line in path.read_bytes().splitlines()]


def check_jobs(
    history: Path, kept: SnapshotFolder | None = None, place: Distribution | None = None, watch: Watch = unwatched
) -> HistoryTally:
    """The findings of all checks that concern one job at a time.

    The records of each job are grouped by its name. An id alone is not enough: a call that wants a job knows only
    its name. The pairs of both are taken from what has both, and joined to what has one. Lines of the same ms mean
    something in their order, which is that of the file.

    `kept`: the snapshot of the end. Without one, nothing is said of what is there in the end. `place`: on this machine,
    because the parts are files of it. Raises UsageProblem if the file does not start with the header of a history.
    """
    header = header_of(history)
    with tempfile.TemporaryDirectory(prefix="bullmq-conformance-") as folder:
        cut = _CutHistory(Path(folder), history.stat().st_size // BYTES_OF_A_PART + 1)
        cut.cut(history, kept)
        taken = None if kept is None else (kept.manifest.prefix, kept.manifest.taken_ms)
        tasks = [
            JudgeWork(header=header, shared=cut.shared, lines=lines, rows=rows, taken=taken)
            for lines, rows in zip(cut.lines, cut.rows, strict=True)
        ]
        tally = HistoryTally()
        with watch("judging jobs", len(tasks)) as progress:
            for found in (place or (InProcesses() if len(tasks) > 1 else InThreads())).run(judge_part, tasks):
                tally.merge(found)
                progress.advance()
    return tally


BYTES_OF_A_PART = 16 * 1024 * 1024
"""Of the history, in one task."""


class _CutHistory:
    """The lines of a history and the rows of a snapshot in files: everything about a job is in the same part."""

    def __init__(self, folder: Path, parts: int) -> None:
        self.shared = folder / "shared"
        self.lines = [folder / f"lines-{part}" for part in range(parts)]
        self.rows = [folder / f"rows-{part}" for part in range(parts)]
        self._names: dict[tuple[str, str], str] = {}

    def cut(self, history: Path, kept: SnapshotFolder | None) -> None:
        """Write the files. Raises UsageProblem for a line that is not one of a history."""
        for line in _lines_of(history):
            for job in job_lines(line):
                self._note(job.queue, job.job, job.name)
        for wide in _rows_of(kept):
            self._note(_printable(wide["queue"]), _printable(wide["id"]), _printable(_name_in(wide)))
        with ExitStack() as stack:
            shared = stack.enter_context(self.shared.open("wb"))
            lines, rows = ([stack.enter_context(path.open("wb")) for path in of] for of in (self.lines, self.rows))
            for line in _lines_of(history):
                if is_shared(line):
                    shared.write(encode(line))
                for own in job_lines(line):
                    lines[self._part(own.queue, own.job, own.name)].write(encode(own.line))
            for wide in _rows_of(kept):
                names = (_printable(wide["queue"]), _printable(wide["id"]), _printable(_name_in(wide)))
                rows[self._part(*names)].write(json.dumps(wide).encode() + b"\n")

    def _note(self, queue: str, job: str, name: str) -> None:
        if queue and job and name:
            self._names[queue, job] = min(name, self._names.get((queue, job), name))

    def _part(self, queue: str, job: str, name: str) -> int:
        """The part of a job, by its name where one is known, else by its queue and id."""
        key = name or self._names.get((queue, job)) or f"{queue}:{job}"
        return crc32(key.encode("utf-8", "backslashreplace")) % len(self.lines)


def _lines_of(history: Path) -> Iterator[HistoryLine]:
    """The lines between header and footer. Raises UsageProblem for a line that is not one of a history."""
    with history.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if number == 1 or b'"type":"footer"' in line:
                continue
            try:
                yield decode_line(line)
            except msgspec.MsgspecError as error:
                raise UsageProblem(
                    f"line {number} of {history} is not one of a history: {error}", hint="was the file cut off?"
                ) from error


def _rows_of(kept: SnapshotFolder | None) -> Iterator[WideRow]:
    """The rows of a snapshot that the checks need."""
    if kept is None:
        return
    for bucket in range(kept.manifest.buckets):
        for table in _SNAPSHOT_TABLES:
            for batch in read_bucket(kept.folder, table, bucket, kept.manifest.buckets).to_batches():
                named = pa.RecordBatch.from_arrays([pa.array([table] * len(batch)), *batch.columns], schema=ARROW)
                yield from rows_of(named)


def _name_in(wide: WideRow) -> str:
    return str(dict(wide["fields"]).get("name", "")) if wide["table"] == "jobs" else ""


def _printable(text: str) -> str:
    """Names are only compared with each other here; bytes that are not valid text must not fail."""
    return text.encode("utf-8", "backslashreplace").decode()


def _snapshot(taken: tuple[str, int], rows: Iterable[bytes]) -> Snapshot:
    wide = [json.loads(row) for row in rows]
    return snapshot_of(*taken, ((row["table"], narrowed(row)) for row in wide))


def header_of(history: Path) -> HistoryHeader:
    """The first line of a history. Raises UsageProblem where it is none."""
    try:
        with history.open("rb") as lines:
            return msgspec.json.decode(lines.readline(), type=HistoryHeader)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageProblem(
            f"{history} is not a history: {error}", hint="give the history.jsonl of a chaos run"
        ) from error


def has_jobs(history: Path) -> bool:
    """Whether a job ran in it, which every check needs."""
    with history.open("rb") as lines:
        return any(b'"type":"run-started"' in line for line in lines)


EXAMPLES_OF_A_CHECK = 20
"""Findings of each check that reports show."""


class JobFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding. `evidence`: lines of the history, as JSON."""

    check: str
    job: str
    message: str
    evidence: str


class HistoryResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome: findings by check (all checks, also those without any), and examples of them."""

    history: str
    snapshot: str
    by_check: dict[str, int]
    examples: list[JobFinding]

    @property
    def total(self) -> int:
        """Number of findings."""
        return sum(self.by_check.values())


class HistoryTally:
    """Counts and examples of findings, by check."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: defaultdict[str, list[JobFinding]] = defaultdict(list)

    def add(self, finding: JobFinding) -> None:
        """Count a finding."""
        self.counts[finding.check] += 1
        self._keep(finding.check, [finding])

    def merge(self, other: HistoryTally) -> None:
        """Count the findings of another part."""
        self.counts += other.counts
        for check, findings in other.examples.items():
            self._keep(check, findings)

    def _keep(self, check: str, findings: Sequence[JobFinding]) -> None:
        found = [*self.examples[check], *findings]
        self.examples[check] = heapq.nsmallest(EXAMPLES_OF_A_CHECK, found, key=lambda each: (each.job, each.message))


def result_of(found: HistoryTally, history: str, snapshot: str) -> HistoryResult:
    """The outcome as reports have it."""
    return HistoryResult(
        history=history,
        snapshot=snapshot,
        by_check={check.name: found.counts[check.name] for check in CHECKS},
        examples=[finding for _, findings in sorted(found.examples.items()) for finding in findings],
    )
