"""A run as one lane per process, as Jepsen draws it: calls, runs and faults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from conformance.checkers.histories.history import Fail, History, HistoryLine, Info, Invoke, Ok, RunEnded, RunStarted

MERGED_SHARE = 1 / 500
"""Spans of one kind that are closer than this share of the run are drawn as one: they would look like one."""
LABEL_WIDTH_PX = 6.2
"""Width of one character in px, rounded up."""


class ProcessSpan(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Calls or runs that ended in the same way, from start to end (ms).

    The end is `ok`, `fail` or `info` for calls, and the outcome for runs. `count`: how many are drawn as one span.
    """

    began_ms: float
    ended_ms: float
    ending: str
    count: int = 1


class ProcessLane(msgspec.Struct, frozen=True, kw_only=True):
    """The `calls` or the `runs` of one process."""

    process: str
    kind: str
    spans: list[ProcessSpan]


def lanes_of(history: History) -> list[ProcessLane]:
    """Every process with its calls and its runs. Unfinished ones are `open` until the end of the history."""
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
            invocation = calls.pop(line.call)
            ending = type(line).__name__.lower()
            yield line.process, "calls", ProcessSpan(began_ms=invocation.at_ms, ended_ms=line.at_ms, ending=ending)
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
    """The row of each label (its left edge in px, and its text), so that no label covers another."""
    ends: list[float] = []
    rows = []
    for left_edge, text in labels:
        row = next((row for row, end in enumerate(ends) if end <= left_edge), len(ends))
        if row == len(ends):
            ends.append(0.0)
        ends[row] = left_edge + (len(text) + 1) * LABEL_WIDTH_PX
        rows.append(row)
    return rows
