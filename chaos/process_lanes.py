"""A run as one lane per process, as Jepsen draws it: what was called, what ran, and which faults were on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from conformance.checkers.histories.history import Fail, History, HistoryLine, Info, Invoke, Ok, RunEnded, RunStarted

MERGED_SHARE = 1 / 500
"""Spans of one kind that are closer than this share of the run are drawn as one: nobody could tell them apart."""
LABEL_WIDTH_PX = 6.2
"""Of one character, a little more than it takes."""


class ProcessSpan(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Calls or runs that ended alike (`ok`, `fail`, `info` for calls; the outcome for runs), from when to when (ms).

    `count`: how many of them are drawn as this one.
    """

    began_ms: float
    ended_ms: float
    ending: str
    count: int = 1


class ProcessLane(msgspec.Struct, frozen=True, kw_only=True):
    """What one process did: its `calls`, or its `runs`."""

    process: str
    kind: str
    spans: list[ProcessSpan]


def lanes_of(history: History) -> list[ProcessLane]:
    """Every process with its calls and its runs. What never ended is `open`, until the end of the history."""
    end_ms = max((line.at_ms for line in history.lines), default=0.0)
    found: dict[tuple[str, str], list[ProcessSpan]] = {}
    for process, kind, span in _spans(history.lines, end_ms):
        found.setdefault((process, kind), []).append(span)
    return [
        ProcessLane(process=process, kind=kind, spans=_merged(spans, end_ms * MERGED_SHARE))
        for (process, kind), spans in sorted(found.items())
    ]


def _spans(lines: Iterable[HistoryLine], end_ms: float) -> Iterator[tuple[str, str, ProcessSpan]]:
    calls: dict[int, Invoke] = {}
    runs: dict[tuple[str, str, str, str], RunStarted] = {}
    for line in lines:
        if isinstance(line, Invoke):
            calls[line.call] = line
        elif isinstance(line, Ok | Fail | Info) and line.call in calls:
            began = calls.pop(line.call)
            ending = type(line).__name__.lower()
            yield line.process, "calls", ProcessSpan(began_ms=began.at_ms, ended_ms=line.at_ms, ending=ending)
        elif isinstance(line, RunStarted):
            runs[line.process, line.queue, line.job, line.token] = line
        elif isinstance(line, RunEnded):
            started = runs.pop((line.process, line.queue, line.job, line.token), None)
            if started is not None:
                span = ProcessSpan(began_ms=started.at_ms, ended_ms=line.at_ms, ending=line.outcome)
                yield line.process, "runs", span
    for call in calls.values():
        yield call.process, "calls", ProcessSpan(began_ms=call.at_ms, ended_ms=end_ms, ending="open")
    for run in runs.values():
        yield run.process, "runs", ProcessSpan(began_ms=run.at_ms, ended_ms=end_ms, ending="open")


def _merged(spans: list[ProcessSpan], gap_ms: float) -> list[ProcessSpan]:
    kept: dict[str, list[ProcessSpan]] = {}
    for span in sorted(spans, key=lambda span: span.began_ms):
        alike = kept.setdefault(span.ending, [])
        near = alike and span.began_ms - alike[-1].ended_ms <= gap_ms and span.ended_ms - span.began_ms <= gap_ms
        alike.append(_joined(alike.pop(), span) if near else span)
    return sorted((span for alike in kept.values() for span in alike), key=lambda span: span.began_ms)


def _joined(last: ProcessSpan, span: ProcessSpan) -> ProcessSpan:
    ended_ms = max(last.ended_ms, span.ended_ms)
    return ProcessSpan(began_ms=last.began_ms, ended_ms=ended_ms, ending=span.ending, count=last.count + 1)


def label_rows(labels: Sequence[tuple[float, str]]) -> list[int]:
    """In which row each label (where it begins, in px, and its text) stands, so that none covers another."""
    ends: list[float] = []
    rows = []
    for begins, text in labels:
        row = next((row for row, end in enumerate(ends) if end <= begins), len(ends))
        if row == len(ends):
            ends.append(0.0)
        ends[row] = begins + (len(text) + 1) * LABEL_WIDTH_PX
        rows.append(row)
    return rows
