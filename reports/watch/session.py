"""The looks of a watch, one after the other: what they show, what is wrong now, and what has changed."""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from conformance.checkers.live_queues import LOOKS_AT_BUSY_WORKERS, WatchLimits
from conformance.checkers.queue_looks import QueueLook
from conformance.problems import EnvironmentProblem
from conformance.servers.connection import connect
from reports.watch.judgement import Kind, WatchFinding, judge
from reports.watch.reader import LookReader, ReadingLimits
from reports.watch.target import WatchTarget

COMMAND_TIMEOUT_S = 5.0
"""Limit of one command: a Redis that is slower is reported, and the next look tries again."""


@dataclass(frozen=True, kw_only=True)
class WatchedQueue:
    """A queue now. `claims_per_s`, `added_per_s`: since the look before; None at the first look."""

    look: QueueLook
    findings: list[WatchFinding]
    stalls_in_a_minute: int
    claims_per_s: float | None
    added_per_s: float | None


@dataclass(frozen=True, kw_only=True)
class WatchMoment:
    """The outcome of one look. `error`: why there is none; then `queues` is empty. `at_ms`: Unix ms of Redis' clock."""

    at_ms: int = 0
    queues: dict[str, WatchedQueue] = field(default_factory=dict)
    started: list[WatchFinding] = field(default_factory=list)
    ended: list[WatchFinding] = field(default_factory=list)
    error: str = ""

    @property
    def findings(self) -> list[WatchFinding]:
        """All that is wrong now."""
        return [finding for state in self.queues.values() for finding in state.findings]


class WatchSession:
    """Reads a store again and again. `interval_ms`: between two looks."""

    def __init__(
        self, target: WatchTarget, queue: str, limits: WatchLimits, reading: ReadingLimits, interval_ms: float
    ) -> None:
        self.looks = self.failures = 0
        self.totals: Counter[tuple[str, str]] = Counter()
        """Claims, stalls and adds since the start, by queue and event."""
        self.seen: Counter[Kind] = Counter()
        """Findings since the start."""
        self._target = target
        self._queue = queue
        self._limits = limits
        self._reading = reading
        self._kept_ms = limits.span_ms + LOOKS_AT_BUSY_WORKERS * interval_ms
        self._history: defaultdict[str, deque[QueueLook]] = defaultdict(deque)
        self._current: dict[tuple[str, Kind], WatchFinding] = {}
        self._reader: LookReader | None = None
        self._open = ExitStack()

    @property
    def has_queues(self) -> bool:
        """Whether any queue was there: one with a key or a worker."""
        looks = [look for history in self._history.values() for look in history]
        return any(look.exists or look.workers or any(look.sizes.values()) for look in looks)

    def close(self) -> None:
        """Close all connections."""
        self._open.close()
        self._reader = None

    def look(self) -> WatchMoment:
        """Look once. A Redis that does not answer is an `error` of the moment, and is asked again next time."""
        try:
            looks = self._read()
        except (RedisError, EnvironmentProblem) as error:
            self.close()
            self.failures += 1
            return WatchMoment(error=str(error).splitlines()[0])
        self.looks += 1
        states = {queue: self._state(queue, look) for queue, look in looks.items()}
        return self._moment(states)

    def _read(self) -> dict[str, QueueLook]:
        if self._reader is None:
            address = self._target.address()
            client = self._open.enter_context(connect(address, timeout_s=COMMAND_TIMEOUT_S))
            self._reader = LookReader(client, address, self._target.prefix, self._queue, self._reading)
            self._open.callback(self._reader.close)
        return self._reader.read()

    def _state(self, queue: str, look: QueueLook) -> WatchedQueue:
        history = self._history[queue]
        span_s = (look.at_ms - history[-1].at_ms) / 1000 if history else 0.0
        history.append(look)
        while history[0].at_ms < look.at_ms - self._kept_ms:
            history.popleft()
        events = look.events
        for name, number in (("claims", events.active), ("stalls", events.stalled), ("added", events.added)):
            self.totals[queue, name] += number
        stalls = sum(seen.events.stalled for seen in history if look.at_ms - seen.at_ms < 60_000)
        return WatchedQueue(
            look=look,
            findings=judge(queue, list(history), self._limits),
            stalls_in_a_minute=stalls,
            claims_per_s=look.events.active / span_s if span_s > 0 else None,
            added_per_s=look.events.added / span_s if span_s > 0 else None,
        )

    def _moment(self, states: dict[str, WatchedQueue]) -> WatchMoment:
        now = {(finding.queue, finding.kind): finding for state in states.values() for finding in state.findings}
        started = [finding for place, finding in now.items() if place not in self._current]
        ended = [finding for place, finding in self._current.items() if place not in now]
        self.seen.update(finding.kind for finding in started)
        self._current = now
        at_ms = max((state.look.at_ms for state in states.values()), default=int(time.time() * 1000))
        return WatchMoment(at_ms=at_ms, queues=states, started=started, ended=ended)


def paced(step: Callable[[], bool], *, every_s: float, until_s: float | None) -> None:
    """Call `step` every `every_s` seconds, until it returns False or `until_s` is over; a late call is not made up."""
    started = due = time.monotonic()
    while step():
        due = max(due + every_s, time.monotonic())
        if until_s is not None and due > started + until_s:
            time.sleep(max(0.0, started + until_s - time.monotonic()))
            # The last look is at the end, so that the whole time was watched.
            step()
            return
        time.sleep(max(0.0, due - time.monotonic()))
