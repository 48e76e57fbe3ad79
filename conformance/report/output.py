"""All reports by name, and writing them: from a run file, or while the run goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from conformance.gate.records import Record, RunFooter, RunHeader, ScenarioRecord
from conformance.ledger.loader import examined_rows
from conformance.ledger.profiles import ProfileTable, load_profiles
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.report import json_summary, junit, markup, specification, terminal, workflow_commands
from conformance.report.bug_report import FOLDER, bug_reports
from conformance.report.run_file import Run, RunWriter, find_run, read_run
from conformance.report.summary import RequirementRows, Summary, summarise
from conformance.report.terminal import LiveProgress, print_summary
from conformance.speed.records import SPEED_FILE, SpeedReport, read_speed


@dataclass(frozen=True, kw_only=True)
class ReportFormat:
    """One kind of report: its name on the command line, the file it is written to, and how it is made."""

    name: str
    file_name: str
    render: Callable[[Summary], str]


FORMATS: dict[str, ReportFormat] = {
    report.name: report
    for report in (
        ReportFormat(name="terminal", file_name="report.txt", render=terminal.render_terminal),
        ReportFormat(name="junit", file_name="junit.xml", render=junit.render_junit),
        ReportFormat(name="json", file_name="summary.json", render=json_summary.render_json),
        ReportFormat(name="markdown", file_name="summary.md", render=markup.render_markdown),
        ReportFormat(name="html", file_name="report.html", render=markup.render_html),
        ReportFormat(name="specification", file_name="specification.html", render=specification.render_specification),
        ReportFormat(
            name="specification-markdown",
            file_name="specification.md",
            render=specification.render_specification_markdown,
        ),
        ReportFormat(name="badge", file_name="badge.json", render=json_summary.render_badge),
        ReportFormat(name="annotations", file_name="annotations.txt", render=workflow_commands.render_annotations),
    )
}


def load_summary(
    run_path: Path,
    rows: RequirementRows | None = None,
    profiles: ProfileTable | None = None,
    also: Sequence[Path] = (),
) -> Summary:
    """Read and summarise a run; without `rows` and `profiles`, both come from the ledger of this kit.

    `also`: folders of further runs and of `bench`, of the same client. Raises UsageProblem for a file that is not a run
    and for results of another client.
    """
    run = read_run(run_path)
    rows = examined_rows(run.header.requirement_set) if rows is None else rows
    summary = summarise(run, rows, profiles or load_profiles())
    benches = [folder / SPEED_FILE for folder in also if (folder / SPEED_FILE).exists()]
    others = [find_run(folder) for folder in also if folder / SPEED_FILE not in benches]
    return replace(
        summary,
        others=tuple(_of_the_same(run, path, load_summary(path, rows, profiles)) for path in others),
        benches=tuple(_bench_of_the_same(run, path) for path in benches),
    )


def _of_the_same(run: Run, path: Path, other: Summary) -> Summary:
    header = other.run.header
    _require_same(run, path, header.client.text, header.oracle.text)
    return other


def _bench_of_the_same(run: Run, path: Path) -> SpeedReport:
    report = read_speed(path)
    _require_same(run, path, report.client, report.oracle)
    return report


def _require_same(run: Run, path: Path, client: str, oracle: str) -> None:
    """Raise UsageProblem if results are of another client or oracle than the run."""
    expected = (run.header.client.text, run.header.oracle.text)
    for ours, theirs in zip(expected, (client, oracle), strict=True):
        if ours != theirs:
            raise UsageProblem(f"{path} is of {theirs}, the run of {ours}", hint="--also takes results of one client")


def write_reports(
    run_path: Path,
    out_dir: Path,
    formats: Sequence[str],
    *,
    rows: RequirementRows | None = None,
    profiles: ProfileTable | None = None,
    also: Sequence[Path] = (),
) -> list[Path]:
    """Render a run in each of the formats into a folder, and return the files in that order.

    The folder `causes` gets a text for a bug tracker about each cause.

    Raises UsageProblem for an unknown format or a file that is not a run, EnvironmentProblem for an unwritable folder.
    """
    chosen = [find_format(name) for name in formats]
    summary = load_summary(run_path, rows, profiles, also)
    written = [write_text(out_dir / report.file_name, report.render(summary)) for report in chosen]
    for name, text in bug_reports(summary).items():
        write_text(out_dir / FOLDER / name, text)
    return written


def find_format(name: str) -> ReportFormat:
    """Look up a format. Raises UsageProblem, listing all, for an unknown name."""
    if name not in FORMATS:
        raise UsageProblem(f"unknown report format {name!r}", hint=f"choose from {', '.join(FORMATS)}")
    return FORMATS[name]


def write_text(path: Path, text: str) -> Path:
    """Write a file in one step, its folders included. Raises EnvironmentProblem where that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Replacing in one step: a reader never sees half a report.
        unfinished = path.with_name(f"{path.name}.part")
        # Reports are valid UTF-8 for any client data; newlines stay as rendered on every system.
        unfinished.write_bytes(text.encode("utf-8", "backslashreplace"))
        unfinished.replace(path)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write the report {path}: {error.strerror}", hint="choose a folder that you may write to"
        ) from error
    return path


RecordListener = Callable[[Record], None]
RUN_FILE = "run.jsonl"


def listeners_for(out: Path | None, formats: Sequence[str], *, live: bool) -> list[RecordListener]:
    """Return the listeners of one run, which get each record as it is made.

    `out`: the folder for the run file and the reports (all formats if none is named). `live`: show the run while it
    goes and its summary at the end. Raises a Problem for an unknown format or an `out` that cannot be written.
    """
    chosen = [find_format(name).name for name in formats] or list(FORMATS)
    listeners: list[RecordListener] = []
    if out is not None:
        listeners.append(_RunRecorder(out, chosen).record)
    if live:
        listeners.append(_LiveView(Console(), Console(stderr=True)).record)
    return listeners


class _RunRecorder:
    """Appends each record to the run file; after the last one the reports are rendered from it."""

    def __init__(self, out: Path, formats: Sequence[str]) -> None:
        self._out, self._formats = out, formats
        # Opened and closed to prove that it can be written. A run that never starts leaves no file behind.
        self._writer = RunWriter(out / RUN_FILE)
        self._writer.close()

    def record(self, record: Record) -> None:
        if isinstance(record, RunHeader):
            self._writer = RunWriter(self._writer.path)
        self._writer.write(record)
        if isinstance(record, RunFooter):
            # Closed first, because the reports are rendered from the file.
            self._writer.close()
            write_reports(self._writer.path, self._out, self._formats)


class SummaryCollector:
    """A listener that keeps the records of a run. `summary`: set after the last record."""

    def __init__(self) -> None:
        self.summary: Summary | None = None
        self._header: RunHeader | None = None
        self._scenarios: list[ScenarioRecord] = []

    def record(self, record: Record) -> None:
        """Take the next record of the run."""
        match record:
            case RunHeader():
                self._header = record
            case ScenarioRecord():
                self._scenarios.append(record)
            case RunFooter():
                assert self._header is not None
                run = Run(header=self._header, scenarios=tuple(self._scenarios), footer=record)
                self.summary = summarise(run, examined_rows(run.header.requirement_set), load_profiles())


class _LiveView:
    """The live view, and the summary after the last record."""

    def __init__(self, console: Console, live_console: Console) -> None:
        self._console = console
        self._progress = LiveProgress(live_console, examined_rows(""))
        self._collector = SummaryCollector()

    def record(self, record: Record) -> None:
        self._collector.record(record)
        match record:
            case RunHeader():
                self._progress.start(record.planned)
            case ScenarioRecord():
                self._progress.scenario(record)
            case RunFooter():
                self._progress.stop()
                assert self._collector.summary is not None
                print_summary(self._collector.summary, self._console)
