"""The results file: one JSON line per run (or crash point), a header before them, a footer after them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from chaos.crash_points import CrashResult
from chaos.explained import explanation_of
from chaos.memory import growth
from chaos.runner import Outcome
from conformance.checkers.histories.base import Finding, Judgement
from conformance.checkers.histories.evidence import Evidence
from conformance.checkers.histories.history import History, encode
from conformance.checkers.histories.lines import Event, Line, Sample
from conformance.problems import EnvironmentProblem, UsageProblem

FILE = "results.jsonl"
LINES_SHOWN = 14
FINDINGS_SHOWN = 20
BUCKET_MS = 250.0

Shown = Literal["ok", "fail", "unknown", "explained"]


class FindingRow(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with the lines of the history that show it; `explained`: the reason, where Node does the same."""

    message: str
    job: str = ""
    lines: list[str] = []
    explained: str = ""
    row: str = ""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What an invariant says of a run. `examined` 0: the run had nothing of the kind."""

    verdict: Shown
    examined: int
    findings: list[FindingRow] = []
    reasons: list[str] = []
    facts: dict[str, float] = {}


class WindowRow(msgspec.Struct, frozen=True, kw_only=True):
    """When a fault was on, ms."""

    fault: str
    target: str
    began_ms: float
    ended_ms: float


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """What went on, in steps of `step_ms`: jobs ended per step, their median latency (ms), and the backlog."""

    step_ms: float = BUCKET_MS
    throughput: list[int] = []
    latency_ms: list[float | None] = []
    backlog: list[tuple[float, int]] = []
    memory: list[tuple[float, dict[str, int]]] = []
    windows: list[WindowRow] = []


class Result(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="result"):
    """One run. `name`: the faults, or the crash point. `reached`: False where the client never came to the point."""

    name: str
    kind: Literal["faults", "crash"]
    client: str
    topology: str = "single"
    seed: int = 0
    seconds: float = 0
    jobs: int = 0
    reproduce: str = ""
    reached: bool = True
    cells: dict[str, Cell]
    timeline: Timeline | None = None
    errors: dict[str, list[str]] = {}
    growth: dict[str, str] = {}
    """Processes of the client whose memory grew."""

    @property
    def failed(self) -> list[str]:
        """The invariants that do not hold, explanations aside; and `memory`."""
        broken = [name for name, cell in self.cells.items() if cell.verdict == "fail"]
        return [*broken, "memory"] if self.growth else broken


class ResultsHeader(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="chaos-results"):
    """What the file is about."""

    format: int = 1
    started: str = ""
    command: str = ""
    environment: dict[str, str] = {}


class ResultsFooter(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="footer"):
    """All results are there."""

    results: int


_DECODER: msgspec.json.Decoder[ResultsHeader | Result | ResultsFooter] = msgspec.json.Decoder(
    ResultsHeader | Result | ResultsFooter
)


def result_of(outcome: Outcome, *, seconds: float, client: str | None = None) -> Result:
    """What is kept of a run."""
    spec = outcome.spec
    name = ", ".join(one.name for one in spec.faults) or "no fault"
    who = client or spec.client.name
    return Result(
        name=name,
        kind="faults",
        client=who,
        topology=spec.topology,
        seed=spec.seed,
        seconds=round(seconds, 2),
        jobs=len(outcome.snapshot.jobs),
        reproduce=spec.reproduce,
        cells={each.check: _cell(each, who, [one.name for one in spec.faults]) for each in outcome.judgements},
        timeline=timeline_of(outcome.history),
        growth=growth(outcome.history),
        errors={name: errors[-5:] for name, errors in outcome.errors.items() if errors},
    )


def crash_result_of(result: CrashResult, *, client: str, seconds: float, reproduce: str = "") -> Result:
    """What is kept of a crash point."""
    return Result(
        name=str(result.where),
        kind="crash",
        client=client,
        seconds=round(seconds, 2),
        reproduce=reproduce,
        reached=result.reached,
        cells={each.check: _cell(each, client, [str(result.where)]) for each in result.judgements},
    )


def _cell(judgement: Judgement, client: str, where: Sequence[str]) -> Cell:
    rows = [_row(judgement.check, found, client, where) for found in judgement.findings]
    unexplained = [row for row in rows if not row.explained]
    verdict: Shown = judgement.verdict
    if rows and not unexplained:
        verdict = "explained"
    return Cell(
        verdict=verdict,
        examined=judgement.examined,
        findings=(unexplained + [row for row in rows if row.explained])[:FINDINGS_SHOWN],
        reasons=list(judgement.reasons),
        facts={name: round(number, 1) for name, number in judgement.facts.items()},
    )


def _row(check: str, found: Finding, client: str, where: Sequence[str]) -> FindingRow:
    reasons = [explanation_of(client, check, each, found.message) for each in where]
    reason = next((each for each in reasons if each is not None), None)
    return FindingRow(
        message=found.message,
        job=found.job,
        lines=[encode(line).decode().strip() for line in _minimal(found.lines)],
        explained=reason.reason if reason else "",
        row=reason.row if reason else "",
    )


def _minimal(lines: Sequence[Line]) -> Sequence[Line]:
    """The ends of a long slice: mostly the beginning tells what it is, and the end what is wrong."""
    if len(lines) <= LINES_SHOWN:
        return lines
    return (*lines[: LINES_SHOWN // 2], *lines[-LINES_SHOWN // 2 :])


def timeline_of(history: History) -> Timeline:
    """The run in steps of a quarter of a second."""
    evidence = Evidence(history)
    end = max((line.at_ms for line in history.lines), default=0.0)
    steps = int(end // BUCKET_MS) + 1
    throughput = [0] * steps
    latencies: list[list[float]] = [[] for _ in range(steps)]
    for story in evidence.stories:
        waiting: float | None = None
        for event in story.events:
            if event.name == "waiting":
                waiting = event.at_ms
            elif event.name in {"completed", "failed"}:
                _count(event, waiting, throughput, latencies)
    samples = [line for line in history.lines if isinstance(line, Sample)]
    return Timeline(
        throughput=throughput,
        latency_ms=[round(sorted(each)[len(each) // 2], 1) if each else None for each in latencies],
        backlog=[(line.at_ms, sum(line.backlog.values())) for line in samples if not line.memory],
        memory=[(line.at_ms, line.memory) for line in samples if line.memory],
        windows=[
            WindowRow(
                fault=each.fault,
                target=each.target,
                began_ms=each.began_ms,
                ended_ms=end if math.isinf(each.ended_ms) else each.ended_ms,
            )
            for each in evidence.windows
        ],
    )


def _count(event: Event, waiting: float | None, throughput: list[int], latencies: list[list[float]]) -> None:
    step = max(int(event.at_ms // BUCKET_MS), 0)
    throughput[step] += 1
    if waiting is not None:
        latencies[step].append(event.at_ms - waiting)


class ResultsFile:
    """Writes results as they come."""

    def __init__(self, path: Path, header: ResultsHeader) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb")
        except OSError as error:
            raise EnvironmentProblem(f"cannot write {path}: {error.strerror}", hint="choose another --out") from error
        self._count = 0
        self._write(header)

    def put(self, result: Result) -> None:
        """One more."""
        self._count += 1
        self._write(result)

    def finish(self) -> None:
        """Write the footer and close."""
        self._write(ResultsFooter(results=self._count))
        self._file.close()

    def _write(self, row: ResultsHeader | Result | ResultsFooter) -> None:
        self._file.write(msgspec.json.encode(row) + b"\n")
        self._file.flush()


def read_results(path: Path) -> tuple[ResultsHeader, list[Result], bool]:
    """Header, results, and whether the file is complete. Raises UsageProblem for what is no results file."""
    try:
        rows = [_DECODER.decode(row) for row in path.read_bytes().splitlines()]
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageProblem(f"{path} is no file of chaos results: {error}") from error
    if not rows or not isinstance(rows[0], ResultsHeader):
        raise UsageProblem(f"{path} has no header")
    results = [row for row in rows if isinstance(row, Result)]
    return rows[0], results, isinstance(rows[-1], ResultsFooter)


def any_failed(results: Iterable[Result]) -> bool:
    """Whether anything speaks against a client."""
    return any(result.failed or not result.reached for result in results)
