"""A history cut by job: which lines are about which jobs, and which are about all of them. Pure, no Spark.

A line that speaks about several jobs becomes one line for each, which names no other. Faults, phases, moments without
a machine and calls that remove jobs are needed by every job; there are few of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from conformance.checkers.histories.evidence import REMOVING
from conformance.checkers.histories.history import (
    FaultBegan,
    FaultEnded,
    HistoryLine,
    Invoke,
    MachineStarved,
    Ok,
    RunEnded,
    RunPhase,
    RunStarted,
    ScriptLine,
    StreamEventLine,
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A line of one job. It is known by its `queue` and `job` (its id), by its `name`, or by both."""

    line: HistoryLine
    queue: str = ""
    job: str = ""
    name: str = ""


_DECODER: msgspec.json.Decoder[HistoryLine] = msgspec.json.Decoder(HistoryLine)


def decode_line(text: str) -> HistoryLine:
    """A line from its JSON. A function of its own: executors import it, a decoder cannot be sent to them."""
    return _DECODER.decode(text)


def is_shared(line: HistoryLine) -> bool:
    """Whether a line is about all jobs."""
    if isinstance(line, Invoke):
        return line.op in REMOVING
    return isinstance(line, FaultBegan | FaultEnded | RunPhase | MachineStarved)


def pieces_of(line: HistoryLine) -> Iterator[Piece]:
    """The line once for every job that it speaks about."""
    if isinstance(line, RunStarted | RunEnded):
        yield Piece(line, queue=line.queue, job=line.job, name=line.name)
    elif isinstance(line, StreamEventLine) and line.job:
        name = line.fields.get("name", "") if line.name == "added" else ""
        yield Piece(line, queue=line.queue, job=line.job, name=name)
    elif isinstance(line, ScriptLine):
        yield from _pieces_of_script(line)
    elif isinstance(line, Invoke) and not is_shared(line):
        for planned in line.jobs:
            yield Piece(msgspec.structs.replace(line, jobs=[planned]), queue=planned.queue, name=planned.name)
    elif isinstance(line, Ok):
        for name, job in line.ids.items():
            yield Piece(msgspec.structs.replace(line, ids={name: job}), job=job, name=name)


def _pieces_of_script(line: ScriptLine) -> Iterator[Piece]:
    for job in sorted({line.job, line.claimed, *line.jobs} - {""}):
        own = msgspec.structs.replace(
            line,
            job=job if line.job == job else "",
            claimed=job if line.claimed == job else "",
            jobs=[job] if job in line.jobs else [],
        )
        yield Piece(own, queue=line.queue, job=job)


def shared_lines(lines: Iterable[HistoryLine]) -> list[HistoryLine]:
    """The lines about all jobs."""
    return [line for line in lines if is_shared(line)]
