"""Times that take part in a scenario: a state can differ because one of them ran out while a process was late.

Locks, limits and deduplication end on the server and stalled checks, polls and retries by timers, so these times pass
on every clock. Delays, repetitions and ages pass on the client's clock, which does not run if it is frozen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from conformance.environment.starvation import STARVED_MS
from conformance.findings import Finding, Timing
from conformance.observe.differences import APPROXIMATELY
from conformance.participants.transcript import KitAct, RecordedCall

ALWAYS_RUNNING = {
    **dict.fromkeys(("lockDuration", "lockRenewTime", "stalledInterval", "runRetryDelay", "duration", "ttl", "ms"), 1),
    **dict.fromkeys(("duration_ms", "expire_ms", "ttl_ms", "maximumRateLimitDelay"), 1),
    **dict.fromkeys(("leaseDuration", "retain_ms"), 1),
    "drainDelay": 1000,
}
"""Arguments of operations that are such times, with their unit in ms."""
ON_CLIENTS_CLOCK = {**dict.fromkeys(("delay", "delay_ms", "backoff", "every", "grace_ms"), 1), "age": 1000}
RECURRING = frozenset({"pattern", "cron"})
"""Arguments with a calendar expression, on the client's clock: any second may be the next date."""
SHORTEST_MS = 1000
"""Shorter times are judged by the worst second."""
RECONNECTING_MS = 5000
"""Time in which a client reconnects after a disturbance."""
SLACK = STARVED_MS / SHORTEST_MS
"""Share of a time that starvation has to take before the order of its end and a step can change."""

BY_SPEED = ("event.*", "membership.*.order")
"""Locators of states that depend on the order of independent processes."""
CHANGED_BY_TIME = (
    *("", "driver", "scenario", "worker.error", "measured.*", "close.*", "client.*"),
    # The place of a job, and all that a claim, end, retry, stalled check or removal writes, may be early or late.
    *("job", "membership.*", "lock", "lock.*", "marker", "marker.*", "limiter*", "stalled*", "dedup*", "expiry*"),
    *("job.atm", "job.ats", "job.stc", "job.processedOn", "job.finishedOn", "job.failedReason", "job.returnvalue"),
    *("job.stacktrace", "job.progress", "job.delay", "job.pb", "job.defa"),
    *("dependency*", "scheduler*", "metrics*", "log*", "counter.*", "handover.*", "invariant.*", "oracle.*"),
    # Whether an event is there, and its due time; its other fields are those of the event that was written.
    *("event", "event.*.delay"),
    "answer.*",
)
"""Locators (patterns) of what a late process can change, if a short time takes part; all others are certain.

An event itself (`event.NAME`) is one of them.
"""
STATIC_IN_ANSWERS = frozenset({"id", "name", "data_raw", "opts", "timestamp", "parent", "parent_key", "queue"})
"""Fields of a job in an answer that are written once."""
MEASURED = "job.delay"
"""Locator of the time that is compared with a tolerance if the client's clock runs (`observe/worker_clock.py`)."""
_DECIDES_WHAT_IS_ADDED = frozenset({"every", "pattern", "cron", "ttl"})


def shortest_ms(steps: Iterable[RecordedCall | KitAct], *, frozen: bool) -> float | None:
    """Return the shortest time (ms) that took part; None if there was none. `frozen`: the client's clock is frozen."""
    return min((time_ms for step in steps for time_ms in _times(step, frozen=frozen)), default=None)


def timing_of(time_ms: float, *, both_sides: bool) -> Timing:
    """Return the timing of a state that depends on whether this time (ms) has run out."""
    within_ms = max(time_ms, SHORTEST_MS)
    return Timing(within_ms=round(within_ms), slack_ms=round(SLACK * within_ms), both_sides=both_sides)


def is_certain(where: str, steps: Iterable[RecordedCall | KitAct]) -> bool:
    """Whether no late process can change what is at a locator."""
    words = where.split(".")
    is_event = words[0] == "event" and len(words) == 2
    is_static = words[0] == "answer" and words[-1] in STATIC_IN_ANSWERS
    if is_event or (not is_static and any(fnmatchcase(where, pattern) for pattern in CHANGED_BY_TIME)):
        return False
    # With these, time decides which job is added, or whether one is.
    names = {name for step in steps if isinstance(step, RecordedCall) for name, _ in _arguments(step.args)}
    return not names & _DECIDES_WHAT_IS_ADDED


def is_measured(finding: Finding) -> bool:
    """Whether the finding is about two times of which one is only known approximately."""
    return finding.where == MEASURED and APPROXIMATELY in finding.expected + finding.actual


def depends_on_speed(finding: Finding) -> bool:
    """Whether the finding may be about the order of independent processes."""
    return any(fnmatchcase(finding.where, pattern) for pattern in BY_SPEED)


def runs_by_itself(steps: Iterable[RecordedCall | KitAct]) -> bool:
    """Whether the scenario opened a worker with a loop of its own, which acts between the steps."""
    # Loops that emulate a manual worker are not among the steps: the kit waits for each of their acts.
    opened = (step.args for step in steps if isinstance(step, RecordedCall) and step.op == "open")
    return any(args.get("role") == "worker" and args.get("processor") not in (None, "manual") for args in opened)


def _times(step: RecordedCall | KitAct, *, frozen: bool) -> Iterator[float]:
    if isinstance(step, KitAct):
        yield from _times_of_kit(step)
        return
    units = ALWAYS_RUNNING if frozen else {**ALWAYS_RUNNING, **ON_CLIENTS_CLOCK}
    for name, value in _arguments(step.args):
        if name in units and isinstance(value, int | float) and value > 0:
            yield value * units[name]
        elif not frozen and name in RECURRING and value:
            yield SHORTEST_MS


def _times_of_kit(act: KitAct) -> Iterator[float]:
    if act.words[0] == "network":
        yield RECONNECTING_MS
    elif "PX" in act.words[:-1]:
        yield float(act.words[act.words.index("PX") + 1])


def _arguments(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every named value, at any depth."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield name, item
            yield from _arguments(item)
    elif isinstance(value, list):
        for item in value:
            yield from _arguments(item)
