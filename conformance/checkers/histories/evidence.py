"""A history sorted by what it is about: calls, jobs, fault windows. Built in two passes, and nothing is judged here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from conformance.checkers.histories.history import History
from conformance.checkers.histories.lines import (
    Answer,
    Event,
    Fail,
    FaultBegan,
    FaultEnded,
    Info,
    Invoke,
    Line,
    Ok,
    Phase,
    PlannedJob,
    RunEnded,
    RunStarted,
    Script,
    Starved,
)
from conformance.checkers.histories.stories import CallStory, JobStory, Window, entry_number, window_of
from conformance.observe.tables import Snapshot

REMOVING = frozenset({"queue.drain", "queue.obliterate", "queue.clean", "queue.remove", "job.remove"})
"""Operations after which jobs may rightly be gone."""


class Evidence:
    """A history with its lookups, and the snapshot taken after it (None: there is none)."""

    def __init__(self, history: History, snapshot: Snapshot | None = None) -> None:
        self.history = history
        self.snapshot = snapshot
        self.bounds = history.header.bounds
        self.calls: dict[int, CallStory] = {}
        self.stories: list[JobStory] = []
        self.windows: list[Window] = []
        self.phases: list[Phase] = []
        self.planned: dict[str, PlannedJob] = {}
        self.invoked_ms: dict[str, float] = {}
        """When the call began that wants a job, by the job's name."""
        self.removals: dict[str, float] = {}
        """When somebody last asked to remove jobs of a queue, by queue."""
        self._current: dict[tuple[str, str], JobStory] = {}
        self._named: dict[tuple[str, str, str], JobStory] = {}
        self._open_faults: dict[int, FaultBegan] = {}
        for line in history.lines:
            if isinstance(line, Invoke):
                self._take_call(line)
        for line in history.lines:
            self._take(line)
        self.windows += [window_of(began, None) for began in self._open_faults.values()]
        self.windows.sort(key=lambda window: window.began_ms)

    @cached_property
    def calls_by_job(self) -> dict[str, CallStory]:
        """The call that wanted a job, by the job's name."""
        return {job.name: call for call in self.calls.values() for job in call.invoke.jobs}

    @cached_property
    def by_name(self) -> dict[str, list[JobStory]]:
        """The stories of each planned job, by its name: one, unless a job was added twice or never."""
        found: defaultdict[str, list[JobStory]] = defaultdict(list)
        for story in self.stories:
            if story.name:
                found[story.name].append(story)
        return dict(found)

    @cached_property
    def events_by_queue(self) -> dict[str, list[tuple[Event, JobStory | None]]]:
        """The event streams, each in its own order, with the story of the event's job."""
        owner = {id(line): story for story in self.stories for line in story.lines if isinstance(line, Event)}
        found: defaultdict[str, list[tuple[Event, JobStory | None]]] = defaultdict(list)
        for line in self.history.lines:
            if isinstance(line, Event):
                found[line.queue].append((line, owner.get(id(line))))
        for rows in found.values():
            rows.sort(key=lambda row: entry_number(row[0].entry))
        return dict(found)

    @cached_property
    def rollbacks(self) -> list[tuple[float, float]]:
        """Intervals whose writes may be gone."""
        return [(window.lost_since_ms, window.ended_ms) for window in self.windows if window.lost_since_ms is not None]

    @property
    def at_rest(self) -> bool:
        """Whether nothing moved any more when the snapshot was taken; otherwise it cannot be compared with events."""
        return not any(phase.name == "stuck" for phase in self.phases)

    @property
    def is_torn(self) -> bool:
        """Whether keys went away one by one: then nothing need fit together at the end."""
        return any(window.torn for window in self.windows)

    def may_be_lost(self, story: JobStory) -> bool:
        """Whether a loss that a fault allows touches anything that is known of the job."""
        return any(since <= line.at_ms <= until for since, until in self.rollbacks for line in story.lines)

    def may_be_removed(self, story: JobStory) -> bool:
        """Whether somebody has asked, after it was there, to remove jobs of its queue."""
        asked = self.removals.get(story.queue)
        return asked is not None and story.lines[0].at_ms <= asked

    def certain(self) -> Iterator[JobStory]:
        """The stories of planned jobs that no allowed loss has touched."""
        return (story for story in self.stories if story.planned is not None and not self.may_be_lost(story))

    def excused(self, since_ms: float, until_ms: float, *, margin_ms: float = 0) -> bool:
        """Whether a fault (or a machine that let nobody run) explains trouble in an interval."""
        return any(window.touches(since_ms, until_ms, margin_ms=margin_ms) for window in self.windows)

    def skew_ms(self, since_ms: float, until_ms: float) -> float:
        """How far clocks were off at most in an interval."""
        return max((abs(each.skew_ms) for each in self.windows if each.touches(since_ms, until_ms)), default=0.0)

    def unix_ms(self, at_ms: float) -> float:
        """A time of the history as Unix ms."""
        return at_ms + self.history.header.unix_offset_ms

    def _take(self, line: Line) -> None:
        if isinstance(line, Ok | Fail | Info):
            self._take_answer(line)
        elif isinstance(line, RunStarted | RunEnded):
            self._tell(line.queue, line.job, line, line.name)
        elif isinstance(line, Event):
            self._take_event(line)
        elif isinstance(line, Script):
            for job in {line.job, line.claimed, *line.jobs} - {""}:
                self._tell(line.queue, job, line)
        elif isinstance(line, FaultBegan):
            self._open_faults[line.number] = line
        elif isinstance(line, FaultEnded):
            self.windows.append(window_of(self._open_faults.pop(line.number), line))
        elif isinstance(line, Starved):
            self.windows.append(
                Window(fault="machine.starved", target="", began_ms=line.since_ms, ended_ms=line.at_ms, resume_ms=0)
            )
        elif isinstance(line, Phase):
            self.phases.append(line)

    def _take_call(self, line: Invoke) -> None:
        """Before everything else: times of events are whole ms, so an event may seem to come before its cause."""
        self.calls[line.call] = CallStory(line)
        self.planned.update({job.name: job for job in line.jobs})
        self.invoked_ms.update({job.name: line.at_ms for job in line.jobs})
        if line.op in REMOVING:
            self.removals[str(line.args.get("queue", ""))] = line.at_ms

    def _take_answer(self, line: Answer) -> None:
        call = self.calls.get(line.call)
        if call is None:
            return
        call.answer = line
        if isinstance(line, Ok):
            for name, job in line.ids.items():
                planned = self.planned.get(name)
                story = self._tell(planned.queue if planned else "", job, line, name)
                story.acknowledged_ms = line.at_ms

    def _take_event(self, line: Event) -> None:
        if not line.job:
            return
        is_new, name = line.name == "added", line.fields.get("name", "")
        known = self._current.get((line.queue, line.job))
        if is_new and known is not None and any(event.name == "added" for event in known.events):
            del self._current[line.queue, line.job]  # the id is in use again
            if known.name == name:
                self._named.pop((line.queue, line.job, name), None)
        story = self._tell(line.queue, line.job, line, name if is_new else "")
        if is_new:
            self._current[line.queue, line.job] = story

    def _tell(self, queue: str, job: str, line: Line, name: str = "") -> JobStory:
        """Give a line to the story of this name, or else to the one that has the id now.

        After a loss ids begin anew, and whoever was still at a job of before may tell of it by the same id.
        """
        story = self._named.get((queue, job, name)) or self._current.get((queue, job))
        if story is None or (name and story.name and story.name != name):
            story = JobStory(queue, job)
            self._current[queue, job] = story
            self.stories.append(story)
        if name and not story.name:
            story.name, story.planned = name, self.planned.get(name)
        if story.name:
            self._named[queue, job, story.name] = story
        story.lines.append(line)
        return story
