"""When a job scheduler runs, and the options of its jobs.

`every` runs at once, and then each time the period has passed since the run before; runs that were missed are left out.
`pattern` runs at the times of a cron pattern. The id of an iteration is `repeat:SCHEDULER:TIME`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from conformance.model import cron
from conformance.model.calls import NotModelled, refuse
from conformance.model.options import JobOptions, is_number
from conformance.model.texts import joined_number


def iteration_id(scheduler: str, time: float) -> str:
    """The id of the iteration at this time (ms)."""
    return f"repeat:{scheduler}:{joined_number(time)}"


def every_next(previous: float | None, every: float, now_ms: int, phase: float, start: float | None) -> int:
    """When a scheduler with a period runs next (ms): one period after the last run, or at the next slot after now."""
    if previous is None:
        return math.floor(max(start or now_ms, now_ms))
    following = previous + every
    if following < now_ms:
        following = math.floor(now_ms / every) * every + every + phase
    return math.floor(following)


def _pattern_next(repeat: Mapping[str, Any], after_ms: float, now_ms: int) -> float | None:
    """When a scheduler with a pattern runs next (ms); None: never again."""
    if repeat.get("tz") is not None:
        raise NotModelled("time zones of schedulers")
    start, end = repeat.get("startDate"), repeat.get("endDate")
    from_ms = max(start, after_ms) if start else after_ms
    following = cron.next_time(repeat["pattern"], from_ms)
    if repeat.get("immediately"):
        return max(now_ms, after_ms)
    if following is None or (end and following > end):
        return None
    return max(following, after_ms)


def check_repeat(repeat: Mapping[str, Any], now_ms: int) -> None:
    """What Node refuses before it sends anything: an end in the past, neither or both of pattern and period."""
    if any(not is_number(repeat.get(name) or 0) for name in ("startDate", "endDate", "every", "limit", "count")):
        raise NotModelled("a date or number of a scheduler that is given as text")
    if repeat.get("endDate") and repeat["endDate"] < now_ms:
        refuse("the end date has passed")
    if bool(repeat.get("pattern")) == bool(repeat.get("every")):
        refuse("either pattern or every")
    if repeat.get("immediately") and repeat.get("startDate"):
        refuse("immediately and startDate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A scheduler as one call sees it. `template`: options for its jobs; `iteration`: number of the next run."""

    id: str
    name: str
    data_raw: str
    repeat: Mapping[str, Any]
    template: Mapping[str, Any]

    @property
    def iteration(self) -> float:
        """The number of the next run, counted from 1."""
        done: float = self.repeat.get("count") or 0
        return done + 1

    def is_over(self, now_ms: int) -> bool:
        """Whether the limit of runs or the end date forbids another iteration."""
        if "limit" in self.repeat and self.iteration > (self.repeat["limit"] or 0):
            return True
        return bool(self.repeat.get("endDate")) and now_ms > self.repeat["endDate"]

    def pattern_time(self, now_ms: int) -> float | None:
        """When the pattern wants the next run (ms); None: never, or there is no pattern."""
        if not self.repeat.get("pattern"):
            return None
        return _pattern_next(self.repeat, max(self.template.get("prevMillis") or 0, now_ms), now_ms)

    def job_options(self, time: float | None, now_ms: int) -> JobOptions:
        """The options of an iteration: those of the template, and what the worker needs to make the next one."""
        dates = {name: self.repeat[name] for name in ("startDate", "endDate") if self.repeat.get(name)}
        dropped = {"immediately", "offset", "startDate", "endDate"}
        kept = {name: value for name, value in self.repeat.items() if name not in dropped}
        options = {name: value for name, value in self.template.items() if name not in {"prevMillis", "delay", "jobId"}}
        options |= {
            "repeat": {**kept, "count": self.iteration, **dates},
            "jobId": f"repeat:{self.id}:{'undefined' if time is None else joined_number(time)}",
            "timestamp": now_ms,
            "repeatJobKey": self.id,
        }
        if time is not None:
            options |= {"delay": max(time - now_ms, 0), "prevMillis": time}
        return options
