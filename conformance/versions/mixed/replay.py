"""Replay files of `versions mixed`: a header, the steps of one feature, and who has which version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from conformance.problems import UsageProblem
from conformance.steps.records import feature_step
from conformance.steps.shapes import FeatureStep
from conformance.versions.mixed.judging import Word
from conformance.versions.mixed.record import MixedCell, MixedRecord, Row

FORMAT = 2
HINT = "name a file that `versions mixed --out` wrote"


class MixedHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`older`, `newer`: both clients, as for `--client`. `roles`: those of the newer one. `options`: of workers."""

    mixed: int
    feature: str
    older: str
    newer: str
    roles: list[str]
    word: Word
    detail: str = ""
    options: dict[str, Any] = {}


@dataclass(frozen=True)
class MixedReplay:
    """A file's content."""

    header: MixedHeader
    steps: tuple[FeatureStep, ...]


def is_mixed_replay(path: Path) -> bool:
    """Whether the first line of a file is the header of one; False for a file that cannot be read."""
    try:
        with path.open(encoding="utf-8") as file:
            first = msgspec.json.decode(file.readline())
    except (OSError, ValueError):
        return False
    return isinstance(first, dict) and "mixed" in first


def read_mixed_replay(path: Path) -> MixedReplay:
    """Read a file. Raises UsageProblem with the number of the line that is wrong."""
    number = 1
    try:
        lines = path.read_text("utf-8").splitlines()
        header = msgspec.json.decode(lines[0], type=MixedHeader)
        steps: list[FeatureStep] = []
        for number, line in enumerate(lines[1:], start=2):  # noqa: B007 - named in the error
            steps.append(feature_step(msgspec.json.decode(line, type=dict[str, Any])))
    except (OSError, ValueError, IndexError) as error:
        raise UsageProblem(f"{path}, line {number}: {error}", hint=HINT) from error
    if header.mixed != FORMAT:
        raise UsageProblem(f"{path} has format {header.mixed}, this kit reads {FORMAT}", hint="record it again")
    if not steps:
        raise UsageProblem(f"{path} has no steps", hint=HINT)
    return MixedReplay(header, tuple(steps))


def write_mixed_replays(record: MixedRecord, folder: Path) -> list[Path]:
    """Write a file for each unsafe cell. Raises UsageProblem for a folder that cannot be written."""
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for row, cell in unsafe_cells(record):
            path = folder / replay_name(row.feature, cell)
            header = MixedHeader(
                mixed=FORMAT,
                feature=row.feature,
                older=record.clients[0],
                newer=record.clients[1],
                roles=cell.newer,
                word=cell.word,
                detail=cell.detail,
                options=row.options,
            )
            lines = [msgspec.json.encode(part).decode() for part in (header, *row.steps)]
            path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
            written.append(path)
    except OSError as error:
        raise UsageProblem(f"cannot write to {folder}: {error.strerror}", hint="choose another --out") from error
    return written


def unsafe_cells(record: MixedRecord) -> Iterator[tuple[Row, MixedCell]]:
    """Every cell in which something happens to jobs."""
    for row in record.rows:
        yield from ((row, cell) for cell in row.cells.values() if cell.word != "nothing")


def replay_name(feature: str, cell: MixedCell) -> str:
    """The name of a cell's file; cells with the same assignment share it."""
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', feature).strip('-')}.{'-'.join(sorted(cell.newer))}.jsonl"
