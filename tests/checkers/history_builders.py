"""Small histories, written by hand."""

from __future__ import annotations

from typing import Any

from conformance.checkers.histories.base import Judgement
from conformance.checkers.histories.history import History, in_order
from conformance.checkers.histories.history_checks import check_history
from conformance.checkers.histories.lines import (
    Bounds,
    Event,
    FaultBegan,
    FaultEnded,
    Header,
    Info,
    Invoke,
    Line,
    Ok,
    Phase,
    PlannedJob,
    RunEnded,
    RunStarted,
    Script,
)
from conformance.observe import handmade
from conformance.observe.handmade import ADDED, Zset
from conformance.observe.tables import Snapshot


def planned(name: str = "a", queue: str = "q", **options: Any) -> PlannedJob:
    return PlannedJob(name=name, queue=queue, **options)


def added(at: float, job: str = "1", name: str = "a", queue: str = "q", **options: Any) -> list[Line]:
    """A call that adds a job, its events and its answer."""
    return [
        Invoke(at_ms=at - 1, process="p", call=int(job), op="queue.add", jobs=[planned(name, queue, **options)]),
        event(at, "added", job, queue=queue, name=name),
        Ok(at_ms=at + 1, process="p", call=int(job), ids={name: job}),
    ]


def event(at: float, what: str, job: str = "1", queue: str = "q", order: int = 0, **fields: str) -> Event:
    return Event(at_ms=at, queue=queue, entry=f"{int(at)}-{order}", name=what, job=job, fields=fields)


def ran(start: float, end: float, outcome: str = "complete", job: str = "1", name: str = "a") -> list[Line]:
    """A processor that was called and ended."""
    common: dict[str, Any] = {"process": "w", "queue": "q", "job": job, "name": name, "token": f"t{start:g}"}
    return [RunStarted(at_ms=start, **common), RunEnded(at_ms=end, outcome=outcome, **common)]


def script(at: float, what: str, token: str, job: str = "1", **fields: Any) -> Script:
    claimed = job if what == "moveToActive" else ""
    own = "" if claimed else job
    values: dict[str, Any] = {"sent_ms": at - 0.5, "job": own, "claimed": claimed, **fields}
    return Script(at_ms=at, process="w", script=what, queue="q", token=token, **values)


def completed_life(at: float = 10, job: str = "1", name: str = "a", **options: Any) -> list[Line]:
    """The whole life of a plain job."""
    return [
        *added(at, job, name, **options),
        event(at, "waiting", job, order=1),
        event(at + 10, "active", job, prev="waiting"),
        *ran(at + 11, at + 19, job=job, name=name),
        event(at + 20, "completed", job, returnvalue="null", prev="active"),
    ]


def fault(began: float, ended: float | None, what: str = "worker.kill", **details: Any) -> list[Line]:
    lost, torn = details.pop("lost_since_ms", None), details.pop("torn", False)
    lines: list[Line] = [FaultBegan(at_ms=began, number=int(began), fault=what, **details)]
    if ended is not None:
        lines.append(FaultEnded(at_ms=ended, number=int(began), fault=what, lost_since_ms=lost, torn=torn))
    return lines


def quiescent(at: float = 9000) -> Line:
    return Phase(at_ms=at, name="quiescent")


def info(at: float, job: str = "1", name: str = "a") -> list[Line]:
    """A call without an answer that anybody understands."""
    invoke = Invoke(at_ms=at - 1, process="p", call=int(job), op="queue.add", jobs=[planned(name)])
    return [invoke, Info(at_ms=at + 1, process="p", call=int(job), error="connection lost")]


def end_state(*jobs: str, container: str = "completed", **fields: str) -> Snapshot:
    """A queue `q` whose jobs (`id=name`) are all in one container, as a finished run leaves them."""
    names = dict(each.split("=") for each in jobs)
    finished = {"processedOn": str(ADDED), "finishedOn": str(ADDED), "ats": "1", "atm": "1", "returnvalue": "null"}
    keys: dict[str, Any] = {
        f"q:{job}": handmade.job(name=name, **{**finished, **fields}) for job, name in names.items()
    }
    members: Any = list(names) if container in {"wait", "active"} else Zset(dict.fromkeys(names, float(ADDED)))
    return handmade.snapshot({**keys, f"q:{container}": members, "q:id": "99999"})


def judged(
    check: str, lines: list[Line], snapshot: Snapshot | None = None, *, offset: float = 0, **bounds: Any
) -> Judgement:
    """What one check says."""
    header = Header(bounds=Bounds(**bounds), unix_offset_ms=offset)
    found = check_history(History(header, in_order(lines)), snapshot)
    return next(judgement for judgement in found if judgement.check == check)


END = end_state("1=a")
"""The job of `completed_life`, completed."""
