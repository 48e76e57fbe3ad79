"""The results file: one JSON line per run or crash point. Findings that Node.js itself produces are `explained`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from chaos.crash_points import CrashResult
from chaos.explanations import Identity, explanation_of, stale_explanations
from chaos.fault_invariants import invariants_tested_by
from chaos.options import ChaosOptions
from chaos.process_lanes import ProcessLane, lanes_of
from chaos.run_errors import CannotRecord, RunError
from conformance.checkers.histories.base import CheckResult, HistoryFinding
from conformance.checkers.histories.evidence import Evidence, FaultWindow
from conformance.checkers.histories.history import History, HistoryLine, ResourceSample, encode
from conformance.environment.clients import Launch
from conformance.observe.tables import Snapshot
from conformance.problems import EnvironmentProblem, UsageProblem

FILE = "results.jsonl"
LINES_SHOWN = 14
FINDINGS_SHOWN = 20
BUCKET_MS = 250.0

CellVerdict = Literal["ok", "fail", "unknown", "explained"]


class FindingRow(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with the lines of the history that show it. `explained`: the reason, if Node.js does the same."""

    message: str
    job: str = ""
    lines: list[str] = []
    explained: str = ""
    row: str = ""


class InvariantCell(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an invariant in a run. `examined` 0: there was nothing to judge.

    `applicable` is False if the client lacks the feature that the invariant is about.
    """

    verdict: CellVerdict
    examined: int
    findings: list[FindingRow] = []
    reasons: list[str] = []
    facts: dict[str, float] = {}
    applicable: bool = True


class WindowRow(msgspec.Struct, frozen=True, kw_only=True):
    """When a fault was on, ms."""

    fault: str
    target: str
    began_ms: float
    ended_ms: float


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs ended per step of `step_ms`, their median latency (ms), the backlog, memory, faults and processes."""

    step_ms: float = BUCKET_MS
    throughput: list[int] = []
    latency_ms: list[float | None] = []
    backlog: list[tuple[float, int]] = []
    memory: list[tuple[float, dict[str, int]]] = []
    windows: list[WindowRow] = []
    lanes: list[ProcessLane] = []
    end_ms: float = 0


class ResultRow(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="result"):
    """One run. `name`: the faults, or the crash point. `reached` is False if the client never reached the point."""

    name: str
    kind: Literal["faults", "crash"]
    client: str
    version: str = ""
    named: bool = False
    """Whether the kit knows the client by this name and has started it itself."""
    topology: str = "single"
    seed: int = 0
    seconds: float = 0
    jobs: int = 0
    reproduce: str = ""
    reached: bool = True
    why: str = ""
    """Why a crash point was never reached: the calls of the client instead."""
    lacks: str = ""
    """Operations that the client does not have: a crash point in them was not tried, and does not count."""
    cells: dict[str, InvariantCell]
    timeline: Timeline | None = None
    errors: dict[str, list[str]] = {}
    growth: dict[str, str] = {}
    """Processes of the client whose memory grew; only in files from before `memory` became an invariant."""
    tested: list[str] = []
    """The invariants that the run was meant to test."""
    troubles: list[RunError] = []
    """Errors that ended the run, or a part of it, early."""

    @property
    def who(self) -> Identity:
        """The client under test."""
        return Identity(client=self.client.partition("@")[0], version=self.version, named=self.named)

    @property
    def failed(self) -> list[str]:
        """The violated invariants without the explained ones, and `calls` if a call of the client never ended."""
        broken = [name for name, cell in self.cells.items() if cell.verdict == "fail"]
        broken += ["memory"] if self.growth else []
        return [*broken, "calls"] if any(trouble.culprit == "client" for trouble in self.troubles) else broken

    @property
    def missed(self) -> bool:
        """Whether the client could have reached the crash point, and did not."""
        return not self.reached and not self.lacks

    @property
    def kit_troubles(self) -> list[RunError]:
        """Errors of the kit or the machine: this run proves less than it should."""
        return [trouble for trouble in self.troubles if trouble.culprit == "kit"]

    @property
    def unproven(self) -> list[str]:
        """The invariants that the run was meant to test, and could not decide."""
        unknown = (name for name in self.tested if name in self.cells and self.cells[name].verdict == "unknown")
        return [name for name in unknown if self.cells[name].applicable]


class ResultsHeader(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="chaos-results"):
    """First line: the command and the environment."""

    format: int = 1
    started: str = ""
    command: str = ""
    environment: dict[str, str] = {}


class ResultsFooter(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="footer"):
    """Last line: all results were written."""

    results: int


_DECODER: msgspec.json.Decoder[ResultsHeader | ResultRow | ResultsFooter] = msgspec.json.Decoder(
    ResultsHeader | ResultRow | ResultsFooter
)


@dataclass(frozen=True)
class ChaosResult:
    """The outcome of a run. `errors`: the last errors that the workers' listeners received, by process."""

    options: ChaosOptions
    history: History
    snapshot: Snapshot | None
    judgements: list[CheckResult]
    errors: Mapping[str, list[str]]
    troubles: Sequence[RunError] = ()
    version: str = ""
    """Of the client, as it reports itself."""

    @property
    def who(self) -> Identity:
        """The client under test."""
        return identity_of(self.options.client, self.version)

    @property
    def failed(self) -> list[CheckResult]:
        """The judgements that count against the client."""
        return [judgement for judgement in self.judgements if judgement.verdict == "fail"]


def identity_of(launch: Launch, version: str) -> Identity:
    """The identity of a started client: `node@5.81.3` is the client `node`."""
    return Identity(client=launch.name.partition("@")[0], version=version, named=launch.named)


def result_row(result: ChaosResult, *, seconds: float) -> ResultRow:
    """The row of a run."""
    options = result.options
    client, faults = options.client.name, [fault.name for fault in options.faults]
    return ResultRow(
        name=", ".join(faults) or "no fault",
        kind="faults",
        client=client,
        version=result.version,
        named=options.client.named,
        topology=options.topology,
        seed=options.seed,
        seconds=round(seconds, 2),
        jobs=len(result.snapshot.jobs) if result.snapshot is not None else 0,
        reproduce=options.reproduce,
        cells={judgement.check: _cell(judgement, result.who, faults) for judgement in result.judgements},
        timeline=timeline_of(result.history),
        tested=sorted(invariants_tested_by(options.faults)),
        errors={name: errors[-5:] for name, errors in result.errors.items() if errors},
        troubles=list(result.troubles),
    )


def crash_result_row(result: CrashResult, *, who: Identity, seconds: float, reproduce: str = "") -> ResultRow:
    """The row of a crash point."""
    return ResultRow(
        name=str(result.where),
        kind="crash",
        client=who.client,
        version=who.version,
        named=who.named,
        seconds=round(seconds, 2),
        reproduce=reproduce,
        reached=result.reached,
        why=result.why,
        lacks=result.lacks,
        cells={judgement.check: _cell(judgement, who, [str(result.where)]) for judgement in result.judgements},
    )


def _cell(judgement: CheckResult, who: Identity, where: Sequence[str]) -> InvariantCell:
    rows = [_finding_row(judgement.check, finding, who, where) for finding in judgement.findings]
    unexplained = [row for row in rows if not row.explained]
    verdict: CellVerdict = judgement.verdict
    if rows and not unexplained:
        verdict = "explained"
    return InvariantCell(
        verdict=verdict,
        examined=judgement.examined,
        findings=(unexplained + [row for row in rows if row.explained])[:FINDINGS_SHOWN],
        reasons=list(judgement.reasons),
        applicable=judgement.applicable,
        facts={name: round(number, 1) for name, number in judgement.facts.items()},
    )


def _finding_row(check: str, finding: HistoryFinding, who: Identity, where: Sequence[str]) -> FindingRow:
    explanations = (explanation_of(who, check, place, finding.message) for place in where)
    explanation = next(filter(None, explanations), None)
    return FindingRow(
        message=finding.message,
        job=finding.job,
        lines=[encode(line).decode().strip() for line in _ends_of(finding.lines)],
        explained=explanation.reason if explanation else "",
        row=explanation.row if explanation else "",
    )


def _ends_of(lines: Sequence[HistoryLine]) -> Sequence[HistoryLine]:
    """The two ends of a long slice: its start shows the job, its end shows what is wrong."""
    if len(lines) <= LINES_SHOWN:
        return lines
    return (*lines[: LINES_SHOWN // 2], *lines[-LINES_SHOWN // 2 :])


def timeline_of(history: History) -> Timeline:
    """The run in steps of a quarter of a second."""
    evidence = Evidence(history)
    end_ms = max((line.at_ms for line in history.lines), default=0.0)
    throughput, latencies = _ends_by_step(evidence, steps=int(end_ms // BUCKET_MS) + 1)
    samples = [line for line in history.lines if isinstance(line, ResourceSample)]
    return Timeline(
        throughput=throughput,
        latency_ms=[round(sorted(step)[len(step) // 2], 1) if step else None for step in latencies],
        backlog=[(line.at_ms, sum(line.backlog.values())) for line in samples if not line.memory],
        memory=[(line.at_ms, line.memory) for line in samples if line.memory],
        lanes=lanes_of(history),
        end_ms=end_ms,
        windows=[_window_row(window, end_ms) for window in evidence.windows],
    )


def _ends_by_step(evidence: Evidence, *, steps: int) -> tuple[list[int], list[list[float]]]:
    """How many jobs ended in each step, and their latencies (ms) since they waited."""
    throughput = [0] * steps
    latencies: list[list[float]] = [[] for _ in range(steps)]
    for job in evidence.jobs:
        waiting_ms: float | None = None
        for event in job.events:
            if event.name == "waiting":
                waiting_ms = event.at_ms
            elif event.name in {"completed", "failed"}:
                step = max(int(event.at_ms // BUCKET_MS), 0)
                throughput[step] += 1
                if waiting_ms is not None:
                    latencies[step].append(event.at_ms - waiting_ms)
    return throughput, latencies


def _window_row(window: FaultWindow, end_ms: float) -> WindowRow:
    return WindowRow(
        fault=window.fault,
        target=window.target,
        began_ms=window.began_ms,
        ended_ms=end_ms if math.isinf(window.ended_ms) else window.ended_ms,
    )


class ResultsFile:
    """Writes each result as soon as it is known, so that an interrupted campaign keeps the finished ones."""

    def __init__(self, path: Path, header: ResultsHeader) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb")
        except OSError as error:
            raise EnvironmentProblem(f"cannot write {path}: {error.strerror}", hint="choose another --out") from error
        self._count = 0
        self._write(header)

    def put(self, result: ResultRow) -> None:
        """Write one result."""
        self._count += 1
        self._write(result)

    def finish(self) -> None:
        """Write the footer and close."""
        self._write(ResultsFooter(results=self._count))
        self._file.close()

    def _write(self, row: ResultsHeader | ResultRow | ResultsFooter) -> None:
        try:
            self._file.write(msgspec.json.encode(row) + b"\n")
            self._file.flush()
        except OSError as error:
            what = f"cannot write the results {self._file.name}: {error.strerror}"
            raise CannotRecord(what, hint="free some space on the disk, or choose another --out") from error


def read_results(path: Path) -> tuple[ResultsHeader, list[ResultRow], bool]:
    """Header, results, and whether the file is complete. Raises UsageProblem if it is not a results file."""
    try:
        rows = [_DECODER.decode(row) for row in path.read_bytes().splitlines()]
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageProblem(f"{path} is not a file of chaos results: {error}") from error
    if not rows or not isinstance(rows[0], ResultsHeader):
        raise UsageProblem(f"{path} has no header")
    results = [row for row in rows if isinstance(row, ResultRow)]
    return rows[0], results, isinstance(rows[-1], ResultsFooter)


def any_failed(results: Iterable[ResultRow]) -> bool:
    """Whether anything counts against a client, or was not decided although the run was meant to test it."""
    return any(result.failed or ((result.missed or result.unproven) and not result.kit_troubles) for result in results)


def is_any_examined(results: Iterable[ResultRow]) -> bool:
    """Whether any run has decided any invariant: a client may lack what every crash point needs."""
    return any(cell.verdict != "unknown" and cell.examined for result in results for cell in result.cells.values())


def stale_of(results: Sequence[ResultRow]) -> list[str]:
    """Explanations that were not needed although all of their faults were injected; one line each."""
    cells = [cell for result in results for cell in result.cells.values()]
    used = {finding.row for cell in cells for finding in cell.findings if finding.explained}
    executed = {name: result.who for result in results for name in result.name.split(", ")}
    return stale_explanations(used, executed)
