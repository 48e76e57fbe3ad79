"""A history indexed by calls, jobs and fault windows. It makes no judgements."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from conformance.checkers.histories.history import (
    Completion,
    EventReported,
    Fail,
    FaultEnded,
    FaultStarted,
    HandleChanged,
    History,
    HistoryLine,
    Info,
    Invoke,
    MachineStarved,
    Ok,
    PlannedJob,
    ResourceSample,
    RunEnded,
    RunPhase,
    RunStarted,
    ScriptLine,
    StreamEventLine,
)
from conformance.observe.tables import Snapshot

REMOVING = frozenset({"queue.drain", "queue.obliterate", "queue.clean", "queue.remove", "job.remove"})
"""Operations after which jobs may be gone."""
KIT = "kit"
"""The name of the kit's own process in samples."""
REDIS = "redis"
"""The name of the server that has the data, in samples."""
LATE = "kit, late"
"""In samples: by how much threads of the kit woke up too late, for any reason."""
SAMPLED_MS = 1000
"""Time between samples (ms): each sample describes the time before it."""
# Time for the reply to cross the tap, the socket and the client's event loop on a loaded machine.
HEARS_WITHIN_MS = 200
"""How long after a reply has passed the tap its client may take to act on it (ms)."""
ROUNDING_MS = 2
"""Redis reports whole ms, orders events at the end of their ms, and promotes a due job up to 1 ms early."""
LOCK = "lock"
"""The kind of the keys that are locks, as faults name it."""
RENEWING = frozenset({"extendLocks", "extendLock"})
"""Scripts that renew locks."""
STARVED = "machine.starved"
"""The name of windows in which the whole machine was starved, which is not an injected fault."""
STANDS_STILL_MS = 3000
"""Queues without an event for this long stand still: workers look for jobs every second."""
CALLS_AFTER_HEALING = 10
"""How many calls of a producer must succeed after the last fault."""
ENTRIES_AFTER_HEALING = 20
"""How many entries a reader must report after the last fault."""


@dataclass
class CallHistory:
    """The invocation of a call, and its completion, if one came."""

    invocation: Invoke
    completion: Completion | None = None


@dataclass
class JobHistory:
    """All lines about one job. An id that was reused after a loss has two histories."""

    queue: str
    id: str
    name: str = ""
    planned: PlannedJob | None = None
    acknowledged_ms: float | None = None
    lines: list[HistoryLine] = field(default_factory=list)

    @property
    def events(self) -> list[StreamEventLine]:
        """Its events in the stream of its queue, in order."""
        return [line for line in self.lines if isinstance(line, StreamEventLine)]

    @property
    def starts(self) -> list[RunStarted]:
        """The calls of its processor."""
        return [line for line in self.lines if isinstance(line, RunStarted)]

    def loses_renewal(self, started: RunStarted, until_ms: float) -> bool:
        """Whether its worker may have ended an older run of it after it had claimed it for this one.

        Workers identify the locks that they renew by the job's id: the end of the older run, whose lock was lost, also
        ends the renewal of the newer lock (upstream `classes/lock-manager.ts`, `untrackJob`).
        """
        # The claim happens in Redis before the processor is called, so an older run may end between the two.
        claimed_ms = min(
            (line.at_ms for line in self._calls_of(started) if line.claimed == self.id), default=started.at_ms
        )
        return any(
            isinstance(line, RunEnded)
            and line.process == started.process
            and line.token != started.token
            and line.at_ms <= until_ms
            and claimed_ms <= self._heard_of_end_ms(line)
            for line in self.lines
        )

    def _heard_of_end_ms(self, ended: RunEnded) -> float:
        """The latest time at which a worker stopped renewing the lock of an ended run.

        The kit records the end before it sends it to the worker. Node.js stops when its last attempt to finish the job
        gets a reply.
        """
        answered = (line.at_ms for line in self._calls_of(ended) if line.job == self.id)
        return max([ended.at_ms, *answered]) + HEARS_WITHIN_MS

    def _calls_of(self, run: RunStarted | RunEnded) -> Iterator[ScriptLine]:
        """The calls of scripts that a worker made with the token of a run."""
        return (
            line
            for line in self.lines
            if isinstance(line, ScriptLine) and (line.process, line.token) == (run.process, run.token)
        )

    @property
    def label(self) -> str:
        """For messages."""
        return f"{self.queue}:{self.id}" + (f" ({self.name})" if self.name else "")


@dataclass
class RunHistory:
    """A run of a job: the call of its processor, and its end, if it came."""

    started: RunStarted
    ended: RunEnded | None = None

    @property
    def ended_ms(self) -> float:
        """When the processor ended; infinite if it did not."""
        return self.ended.at_ms if self.ended is not None else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultWindow:
    """The time from the injection of a fault to its healing (infinite if it was never healed)."""

    fault: str
    target: str
    began_ms: float
    ended_ms: float
    skew_ms: float = 0
    resume_ms: float | None = None
    lost_since_ms: float | None = None
    torn: bool = False
    processes: frozenset[str] | None = None
    keys: frozenset[str] = frozenset()

    def hurts(self, process: str = "") -> bool:
        """Whether it touches a process; without a name, whether it touches any."""
        # A fault that only deletes keys touches no process.
        return self.processes is None or (process in self.processes if process else bool(self.processes))

    def touches(self, since_ms: float, until_ms: float, *, margin_ms: float = 0) -> bool:
        """Whether it was on at some time in the interval, or up to `margin_ms` before it."""
        # The margin covers events whose time was rounded to the end of a ms.
        return self.began_ms <= until_ms and self.ended_ms + margin_ms >= since_ms


def window_of(start: FaultStarted, ended: FaultEnded | None) -> FaultWindow:
    """The window of a fault; infinite if it was never healed."""
    return FaultWindow(
        fault=start.fault,
        target=start.target,
        began_ms=start.at_ms,
        ended_ms=ended.at_ms if ended else math.inf,
        skew_ms=start.skew_ms,
        resume_ms=start.resume_ms,
        lost_since_ms=ended.lost_since_ms if ended else None,
        torn=ended is not None and ended.torn,
        processes=None if start.processes is None else frozenset(start.processes),
        keys=frozenset(start.keys),
    )


def server_ms(event: StreamEventLine) -> int:
    """When Redis wrote the entry, Unix ms by its own clock."""
    return int(event.entry.partition("-")[0])


def entry_number(entry: str) -> tuple[int, int]:
    """The id of a stream entry as a pair of numbers, for comparison."""
    milliseconds, _, sequence = entry.partition("-")
    return int(milliseconds), int(sequence or 0)


class Evidence:
    """A history with its lookups, built in two passes, and the snapshot taken after it (None: there is none)."""

    def __init__(self, history: History, snapshot: Snapshot | None = None) -> None:
        self.history = history
        self.snapshot = snapshot
        self.bounds = history.header.bounds
        self.calls: dict[int, CallHistory] = {}
        self.jobs: list[JobHistory] = []
        self.windows: list[FaultWindow] = []
        self.phases: list[RunPhase] = []
        self.planned: dict[str, PlannedJob] = {}
        self.invoked_ms: dict[str, float] = {}
        """When the call that adds a job started, by the job's name."""
        self.removals: dict[str, float] = {}
        """When a client last called an operation that removes jobs, by queue."""
        self.runs: list[RunHistory] = []
        self.handles: list[HandleChanged] = []
        self.reported: list[EventReported] = []
        self.samples: list[ResourceSample] = []
        self._running: dict[tuple[str, str, str, str], RunHistory] = {}
        self._current: dict[tuple[str, str], JobHistory] = {}
        self._named: dict[tuple[str, str, str], JobHistory] = {}
        self._open_faults: dict[int, FaultStarted] = {}
        # Invocations first: an event may have an earlier time than the call that caused it, because of rounding.
        for line in history.lines:
            if isinstance(line, Invoke):
                self._add_invocation(line)
        for line in history.lines:
            self._add(line)
        # A fault that was never healed excuses everything up to the end.
        self.windows += [window_of(start, None) for start in self._open_faults.values()]
        self.windows.sort(key=lambda window: window.began_ms)

    @cached_property
    def calls_by_job(self) -> dict[str, CallHistory]:
        """The call that adds a job, by the job's name."""
        return {job.name: call for call in self.calls.values() for job in call.invocation.jobs}

    @cached_property
    def by_name(self) -> dict[str, list[JobHistory]]:
        """The histories of each planned job, by its name: one, unless a job was added twice or never."""
        found: defaultdict[str, list[JobHistory]] = defaultdict(list)
        for job in self.jobs:
            if job.name:
                found[job.name].append(job)
        return dict(found)

    @cached_property
    def events_by_queue(self) -> dict[str, list[tuple[StreamEventLine, JobHistory | None]]]:
        """The event streams, each in its own order, with the history of the event's job."""
        owner = {id(line): job for job in self.jobs for line in job.lines if isinstance(line, StreamEventLine)}
        found: defaultdict[str, list[tuple[StreamEventLine, JobHistory | None]]] = defaultdict(list)
        for line in self.history.lines:
            if isinstance(line, StreamEventLine):
                found[line.queue].append((line, owner.get(id(line))))
        for rows in found.values():
            rows.sort(key=lambda row: entry_number(row[0].entry))
        return dict(found)

    @cached_property
    def _starts(self) -> dict[tuple[str, str], list[float]]:
        found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for run in self.runs:
            found[run.started.process, run.started.queue].append(run.started.at_ms)
        return dict(found)

    def starts_of(self, process: str, queue: str, since_ms: float, until_ms: float) -> int:
        """How many jobs of a queue a process started in an interval."""
        times = self._starts.get((process, queue), [])
        return bisect_right(times, until_ms) - bisect_right(times, since_ms)

    @cached_property
    def rollbacks(self) -> list[tuple[float, float]]:
        """Intervals whose writes may be lost."""
        return [(window.lost_since_ms, window.ended_ms) for window in self.windows if window.lost_since_ms is not None]

    @property
    def is_full(self) -> bool:
        """Whether the run is meant to meet the minimum that each invariant requires."""
        return self.history.header.evidence == "full"

    @property
    def faults(self) -> list[FaultWindow]:
        """The windows of faults, without those in which the machine starved."""
        return [window for window in self.windows if window.fault != STARVED]

    @property
    def healed_ms(self) -> float:
        """When the last fault was healed; infinite if one never was, 0 without faults."""
        return max((window.ended_ms for window in self.faults), default=0.0)

    @property
    def resumed_ms(self) -> float:
        """Until when, after the last fault, clients may still be recovering."""
        ends = (window.ended_ms + self.patience_ms(window) for window in self.faults)
        return max(ends, default=0.0)

    def patience_ms(self, window: FaultWindow) -> float:
        """How long work may be interrupted after the healing of a fault."""
        return self.bounds.resume_ms if window.resume_ms is None else window.resume_ms

    def starved(self, since_ms: float, until_ms: float, *, process: str) -> bool:
        """Whether a process, or Redis, or the kit, was starved at some time in the interval."""
        return any(True for _ in self._starvation(since_ms, until_ms, process))

    def starved_ms(self, since_ms: float, until_ms: float, *, process: str) -> float:
        """For how long, at most, a process, or Redis, or the kit, was starved in an interval (ms)."""
        # Only the overlap with the interval counts, because a window may reach far beyond it.
        return sum(
            min(window.ended_ms, until_ms) - max(window.began_ms, since_ms)
            for window in self._starvation(since_ms, until_ms, process)
        )

    def _starvation(self, since_ms: float, until_ms: float, process: str) -> Iterator[FaultWindow]:
        return (
            window
            for window in self.windows
            if window.fault == STARVED and window.hurts(process) and window.touches(since_ms, until_ms)
        )

    def hurt(self, since_ms: float, until_ms: float, *, process: str) -> bool:
        """Whether a fault touched a process at some time in the interval; starvation does not count."""
        return any(window.hurts(process) and window.touches(since_ms, until_ms) for window in self.faults)

    def deleted(self, kind: str, since_ms: float, until_ms: float) -> bool:
        """Whether a fault may have deleted keys of a kind (`lock`) in the interval."""
        return any(kind in window.keys and window.touches(since_ms, until_ms) for window in self.windows)

    def waited_ms(self, process: str, since_ms: float, until_ms: float) -> float:
        """Upper bound of the CPU starvation of a process, Redis and the kit in an interval, added up (ms)."""
        return sum(
            sample.waited_ms.get(who, 0.0)
            for sample in self.samples
            # Samples describe the second before them, so the one after the interval belongs to it as well.
            if sample.waited_ms and since_ms <= sample.at_ms <= until_ms + SAMPLED_MS
            # Each of the four can delay what the tap sees of a worker, and their waits may add up.
            for who in (process, KIT, REDIS, LATE)
        )

    @property
    def at_rest(self) -> bool:
        """Whether the queues were at rest when the snapshot was taken; else it cannot be compared with events."""
        return not any(phase.name == "stuck" for phase in self.phases)

    @property
    def is_moving(self) -> bool:
        """Whether jobs still moved when the snapshot was taken. Work that is stuck may stand still."""
        ends = [phase.at_ms for phase in self.phases if phase.name == "stuck"]
        events = (line.at_ms for line in self.history.lines if isinstance(line, StreamEventLine))
        return bool(ends) and any(at_ms > ends[-1] - STANDS_STILL_MS for at_ms in events)

    @property
    def is_torn(self) -> bool:
        """Whether keys were evicted one by one: the state at the end may be inconsistent."""
        return any(window.torn for window in self.windows)

    def was_lost(self, at_ms: float) -> bool:
        """Whether a write of this time may be lost."""
        return any(since <= at_ms <= until for since, until in self.rollbacks)

    def may_be_lost(self, job: JobHistory) -> bool:
        """Whether an allowed loss touches any known line of the job."""
        return any(self.was_lost(line.at_ms) for line in job.lines)

    def may_be_removed(self, job: JobHistory) -> bool:
        """Whether a client called an operation that removes jobs of its queue, after the job was added."""
        asked = self.removals.get(job.queue)
        # The first known line: a job that was added after the removal cannot have been removed by it.
        return asked is not None and job.lines[0].at_ms <= asked

    def certain(self) -> Iterator[JobHistory]:
        """The planned jobs that no allowed loss has touched."""
        return (job for job in self.jobs if job.planned is not None and not self.may_be_lost(job))

    def excused(self, since_ms: float, until_ms: float, *, process: str, margin_ms: float = 0) -> bool:
        """Whether a fault that touches a process, or its starvation, explains a problem in an interval.

        An empty name means that the process is unknown: then a fault of any process counts.
        """
        return any(
            window.hurts(process) and window.touches(since_ms, until_ms, margin_ms=margin_ms) for window in self.windows
        )

    def skew_ms(self, since_ms: float, until_ms: float) -> float:
        """The largest error of any clock in an interval (ms)."""
        # The largest one: it is unknown which client's clock a job's times come from.
        return max((abs(window.skew_ms) for window in self.windows if window.touches(since_ms, until_ms)), default=0.0)

    def unix_ms(self, at_ms: float) -> float:
        """A time of the history as Unix ms."""
        return at_ms + self.history.header.unix_offset_ms

    def _add(self, line: HistoryLine) -> None:
        """Index a line about calls and jobs."""
        if isinstance(line, Ok | Fail | Info):
            self._add_completion(line)
        elif isinstance(line, RunStarted | RunEnded):
            self._assign(line.queue, line.job, line, line.name)
            self._add_run(line)
        elif isinstance(line, StreamEventLine):
            self._add_event(line)
        elif isinstance(line, ScriptLine):
            for job_id in {line.job, line.claimed, *line.jobs} - {""}:
                self._assign(line.queue, job_id, line)
        else:
            self._add_surroundings(line)

    def _add_surroundings(self, line: HistoryLine) -> None:
        """Index a line about faults, phases, handles, readers, or samples."""
        if isinstance(line, HandleChanged):
            self.handles.append(line)
        elif isinstance(line, EventReported):
            self.reported.append(line)
        elif isinstance(line, ResourceSample):
            self.samples.append(line)
        elif isinstance(line, RunPhase):
            self.phases.append(line)
        elif isinstance(line, FaultStarted):
            self._open_faults[line.number] = line
        elif isinstance(line, FaultEnded):
            self.windows.append(window_of(self._open_faults.pop(line.number), line))
        elif isinstance(line, MachineStarved):
            # No time for recovery: a process that is let run again continues at once.
            self.windows.append(
                FaultWindow(
                    fault=STARVED,
                    target=line.process,
                    began_ms=line.since_ms,
                    ended_ms=line.at_ms,
                    resume_ms=0,
                    processes=frozenset({line.process}) if line.process else None,
                )
            )

    def _add_invocation(self, line: Invoke) -> None:
        """Indexed before other lines: times of events are whole ms, so an event may seem to come before its cause."""
        self.calls[line.call] = CallHistory(line)
        self.planned.update({job.name: job for job in line.jobs})
        self.invoked_ms.update({job.name: line.at_ms for job in line.jobs})
        if line.op in REMOVING:
            self.removals[str(line.args.get("queue", ""))] = line.at_ms

    def _add_run(self, line: RunStarted | RunEnded) -> None:
        key = (line.process, line.queue, line.job, line.token)
        if isinstance(line, RunStarted):
            self._running[key] = RunHistory(line)
            self.runs.append(self._running[key])
        elif key in self._running:
            self._running.pop(key).ended = line

    def _add_completion(self, line: Completion) -> None:
        call = self.calls.get(line.call)
        if call is None:
            return
        call.completion = line
        if isinstance(line, Ok):
            for name, job_id in line.ids.items():
                planned = self.planned.get(name)
                job = self._assign(planned.queue if planned else "", job_id, line, name)
                job.acknowledged_ms = line.at_ms

    def _add_event(self, line: StreamEventLine) -> None:
        if not line.job:
            return
        is_new, name = line.name == "added", line.fields.get("name", "")
        known = self._current.get((line.queue, line.job))
        if is_new and known is not None and any(event.name == "added" for event in known.events):
            # An id that is added again belongs to another job, because ids start again after a loss.
            del self._current[line.queue, line.job]  # the id is reused
            if known.name == name:
                self._named.pop((line.queue, line.job, name), None)
        job = self._assign(line.queue, line.job, line, name if is_new else "")
        if is_new:
            self._current[line.queue, line.job] = job

    def _assign(self, queue: str, job_id: str, line: HistoryLine, name: str = "") -> JobHistory:
        """Assign a line to the job of this name, else to the job that has the id now.

        After a loss ids start again, and a worker that still runs an old job refers to it by the same id.
        """
        # By name first, because a name is unique in the run and an id is not.
        job = self._named.get((queue, job_id, name)) or self._current.get((queue, job_id))
        if job is None or (name and job.name and job.name != name):
            # A different name under the same id is a new job, even without its `added` event.
            job = JobHistory(queue, job_id)
            self._current[queue, job_id] = job
            self.jobs.append(job)
        if name and not job.name:
            job.name, job.planned = name, self.planned.get(name)
        if job.name:
            self._named[queue, job_id, job.name] = job
        job.lines.append(line)
        return job
