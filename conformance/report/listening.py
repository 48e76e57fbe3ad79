"""What happens to the records of a run while it goes: written to the run file, shown live, and rendered at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from conformance.gate.records import Record, RunFooter, RunHeader, ScenarioRecord
from conformance.report.formats import FORMATS, find_format, write_reports
from conformance.report.progress import LiveProgress
from conformance.report.rows import examined_rows
from conformance.report.run_file import Run, RunWriter
from conformance.report.summary import summarise
from conformance.report.terminal import print_summary

Listener = Callable[[Record], None]
RUN_FILE = "run.jsonl"


def listeners_for(out: Path | None, formats: Sequence[str], *, live: bool) -> list[Listener]:
    """The listeners of one run. Raises a Problem for an unknown format or an `out` that cannot be written.

    `out`: the folder for the run file and the reports (all formats if none is named). `live`: show the run while it
    goes and its summary at the end.
    """
    chosen = [find_format(name).name for name in formats] or list(FORMATS)
    listeners: list[Listener] = []
    if out is not None:
        listeners.append(_Writing(out, chosen).hear)
    if live:
        listeners.append(_Showing(Console(), Console(stderr=True)).hear)
    return listeners


class _Writing:
    """Appends each record to the run file; after the last one the reports are rendered from it."""

    def __init__(self, out: Path, formats: Sequence[str]) -> None:
        self._out, self._formats = out, formats
        self._writer = RunWriter(out / RUN_FILE)

    def hear(self, record: Record) -> None:
        self._writer.write(record)
        if isinstance(record, RunFooter):
            self._writer.close()
            write_reports(self._writer.path, self._out, self._formats)


class _Showing:
    """The live view, and the summary after the last record."""

    def __init__(self, console: Console, live_console: Console) -> None:
        self._console = console
        self._progress = LiveProgress(live_console, examined_rows())
        self._header: RunHeader | None = None
        self._scenarios: list[ScenarioRecord] = []

    def hear(self, record: Record) -> None:
        match record:
            case RunHeader():
                self._header = record
                self._progress.start(record.planned)
            case ScenarioRecord():
                self._scenarios.append(record)
                self._progress.scenario(record)
            case RunFooter():
                self._progress.stop()
                assert self._header is not None
                run = Run(header=self._header, scenarios=tuple(self._scenarios), footer=record)
                print_summary(summarise(run, examined_rows()), self._console)
