"""Small histories, written by hand."""

from __future__ import annotations

from typing import Any

from conformance.checkers.histories.base import CheckResult
from conformance.checkers.histories.history import (
    FaultEnded,
    FaultStarted,
    History,
    HistoryBounds,
    HistoryHeader,
    HistoryLine,
    Info,
    Invoke,
    Ok,
    PlannedJob,
    RunEnded,
    RunPhase,
    RunStarted,
    ScriptLine,
    StreamEventLine,
    in_order,
)
from conformance.checkers.histories.history_checks import check_history
from conformance.observe.tables import Snapshot
from tests.observe import snapshot_builders
from tests.observe.snapshot_builders import ADDED, Zset


def planned(name: str = "a", queue: str = "q", **options: Any) -> PlannedJob:
    return PlannedJob(name=name, queue=queue, **options)


def added(at: float, job: str = "1", name: str = "a", queue: str = "q", **options: Any) -> list[HistoryLine]:
    """A call that adds a job, its events and its answer."""
    return [
        Invoke(at_ms=at - 1, process="p", call=int(job), op="queue.add", jobs=[planned(name, queue, **options)]),
        event(at, "added", job, queue=queue, name=name),
        Ok(at_ms=at + 1, process="p", call=int(job), ids={name: job}),
    ]


def event(at: float, what: str, job: str = "1", queue: str = "q", order: int = 0, **fields: str) -> StreamEventLine:
    return StreamEventLine(at_ms=at, queue=queue, entry=f"{int(at)}-{order}", name=what, job=job, fields=fields)


def ran(start: float, end: float, outcome: str = "complete", job: str = "1", name: str = "a") -> list[HistoryLine]:
    """A processor that was called and ended."""
    common: dict[str, Any] = {"process": "w", "queue": "q", "job": job, "name": name, "token": f"t{start:g}"}
    return [RunStarted(at_ms=start, **common), RunEnded(at_ms=end, outcome=outcome, **common)]


def script(at: float, what: str, token: str, job: str = "1", **fields: Any) -> ScriptLine:
    claimed = job if what == "moveToActive" else ""
    own = "" if claimed else job
    values: dict[str, Any] = {"process": "w", "sent_ms": at - 0.5, "job": own, "claimed": claimed, **fields}
    return ScriptLine(at_ms=at, script=what, queue="q", token=token, **values)


def completed_life(at: float = 10, job: str = "1", name: str = "a", **options: Any) -> list[HistoryLine]:
    """The whole life of a plain job."""
    return [
        *added(at, job, name, **options),
        event(at, "waiting", job, order=1),
        event(at + 10, "active", job, prev="waiting"),
        *ran(at + 11, at + 19, job=job, name=name),
        event(at + 20, "completed", job, returnvalue="null", prev="active"),
    ]


def fault(started: float, ended: float | None, what: str = "worker.kill", **details: Any) -> list[HistoryLine]:
    lost, torn = details.pop("lost_since_ms", None), details.pop("torn", False)
    lines: list[HistoryLine] = [FaultStarted(at_ms=started, number=int(started), fault=what, **details)]
    if ended is not None:
        lines.append(FaultEnded(at_ms=ended, number=int(started), fault=what, lost_since_ms=lost, torn=torn))
    return lines


def quiescent(at: float = 9000) -> HistoryLine:
    return RunPhase(at_ms=at, name="quiescent")


def info(at: float, job: str = "1", name: str = "a") -> list[HistoryLine]:
    """A call whose result cannot be parsed."""
    invoke = Invoke(at_ms=at - 1, process="p", call=int(job), op="queue.add", jobs=[planned(name)])
    return [invoke, Info(at_ms=at + 1, process="p", call=int(job), error="connection lost")]


def end_state(*jobs: str, container: str = "completed", **fields: str) -> Snapshot:
    """A queue `q` whose jobs (`id=name`) are all in one container, as a finished run leaves them."""
    names = dict(job.split("=") for job in jobs)
    finished = {"processedOn": str(ADDED), "finishedOn": str(ADDED), "ats": "1", "atm": "1", "returnvalue": "null"}
    keys: dict[str, Any] = {
        f"q:{job}": snapshot_builders.job(name=name, **{**finished, **fields}) for job, name in names.items()
    }
    members: Any = list(names) if container in {"wait", "active"} else Zset(dict.fromkeys(names, float(ADDED)))
    return snapshot_builders.snapshot({**keys, f"q:{container}": members, "q:id": "99999"})


def judged(
    check: str, lines: list[HistoryLine], snapshot: Snapshot | None = None, *, offset: float = 0, **bounds: Any
) -> CheckResult:
    header = HistoryHeader(bounds=HistoryBounds(**bounds), unix_offset_ms=offset)
    found = check_history(History(header, in_order(lines)), snapshot)
    return next(result for result in found if result.check == check)


END = end_state("1=a")
"""The job of `completed_life`, completed."""
