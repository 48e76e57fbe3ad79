"""Writes and reads run files: append-only JSONL of `conformance.gate.records`.

A run can be cut at any byte (a killed CI job, a full disk). The writer hands every record to the operating system as
one line, so at most the last line is torn; the reader drops a torn last line and the run counts as incomplete.
"""

from __future__ import annotations

import os
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from conformance.gate.records import FORMAT, Record, RunFooter, RunHeader, ScenarioRecord, decode, encode
from conformance.problems import EnvironmentProblem, UsageProblem


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run as it was written down. `footer` is None for a run that was cut."""

    header: RunHeader
    scenarios: tuple[ScenarioRecord, ...]
    footer: RunFooter | None


class RunWriter:
    """Appends records to a new run file; usable from several threads and as a context manager.

    The file is created at once, so that an unwritable path is known before the first scenario and not after the last.
    Closing removes it if no record was written.
    Raises EnvironmentProblem where the path cannot be written, UsageProblem where it already holds something: a run is
    evidence and is never overwritten.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # Several listeners may write from different threads.
        self._lock = threading.Lock()
        self._descriptor: int | None = _create(path)

    def write(self, record: Record) -> None:
        """Append one record. Raises EnvironmentProblem when the disk refuses it."""
        line = encode(record)
        # A write may be short and continued: another thread in between would tear the line.
        with self._lock:
            if self._descriptor is None:
                raise ValueError(f"{self.path} is already closed")
            try:
                _write_all(self._descriptor, line)
            except OSError as error:
                raise EnvironmentProblem(
                    f"cannot write to the run file {self.path}: {error.strerror}",
                    hint="free some space, or choose another output folder",
                ) from error

    def close(self) -> None:
        """Close the file, and remove it if nothing was written; closing twice is fine."""
        with self._lock:
            if self._descriptor is not None:
                file = os.fstat(self._descriptor)
                # A device such as /dev/full is always empty, and belongs to the user.
                is_empty = stat.S_ISREG(file.st_mode) and not file.st_size
                os.close(self._descriptor)
                self._descriptor = None
                if is_empty:
                    self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_run(path: Path) -> Run:
    """Read a run file. Raises UsageProblem, naming the line, for a file that is not a run."""
    records: list[Record] = []
    for number, line in enumerate(_whole_lines(path), start=1):
        record = _decode_line(path, number, line)
        _check_place(path, number, record, records)
        records.append(record)
    if not records or not isinstance(records[0], RunHeader):
        raise UsageProblem(f"{path} holds no run", hint="the run was cut before its first record was written")
    return Run(
        header=records[0],
        scenarios=tuple(record for record in records if isinstance(record, ScenarioRecord)),
        footer=records[-1] if isinstance(records[-1], RunFooter) else None,
    )


def find_run(path: Path) -> Path:
    """Find the run file that a path means: itself, `run.jsonl` in a folder, or the only `*.jsonl` there.

    Raises UsageProblem where there is none or more than one.
    """
    if not path.is_dir():
        return path
    if (path / "run.jsonl").is_file():
        return path / "run.jsonl"
    # Sorted, so that the names in the message are always in the same order.
    candidates = sorted(path.glob("*.jsonl"))
    if not candidates:
        raise UsageProblem(f"there is no run file (*.jsonl) in {path}", hint="name the folder that the run wrote to")
    if len(candidates) > 1:
        names = ", ".join(candidate.name for candidate in candidates)
        raise UsageProblem(f"{path} holds several run files: {names}", hint="name one of them")
    return candidates[0]


def _create(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write the run file {path}: {error.strerror}", hint="choose an output folder that you may write to"
        ) from error
    if os.fstat(descriptor).st_size:
        os.close(descriptor)
        raise UsageProblem(f"{path} already holds a run", hint="choose another output folder, or move the file away")
    return descriptor


def _write_all(descriptor: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _whole_lines(path: Path) -> list[bytes]:
    """All lines, without a torn last one: it has no newline and is not a whole record."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageProblem(
            f"cannot read the run file {path}: {error.strerror}", hint="name a run.jsonl that a run wrote"
        ) from error
    *lines, last = content.split(b"\n")
    return [*lines, last] if last and _is_record(last) else lines


def _is_record(line: bytes) -> bool:
    try:
        decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _decode_line(path: Path, number: int, line: bytes) -> Record:
    try:
        return decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageProblem(
            f"{path}, line {number}: not a record of a run ({error})", hint="name a run.jsonl that a run wrote"
        ) from error


def _check_place(path: Path, number: int, record: Record, before: list[Record]) -> None:
    """One header first, one footer last. Raises UsageProblem for anything else, and for a format of another kit."""
    if isinstance(record, RunHeader) and record.format != FORMAT:
        raise UsageProblem(
            f"{path}: a run of format {record.format}, and this kit reads format {FORMAT}",
            hint=f"render it with the kit that wrote it ({record.kit})",
        )
    if isinstance(record, RunHeader) == bool(before):
        raise UsageProblem(
            f"{path}, line {number}: {'a second header' if before else 'a record before the header'}",
            hint="a run file holds exactly one run",
        )
    if before and isinstance(before[-1], RunFooter):
        raise UsageProblem(f"{path}, line {number}: a record after the footer", hint="a run file holds exactly one run")
