"""Delays and due times in relation to the job: `T = time of the call + delay`, score `T * 4096` plus a tie-break.

The score is computed in the Lua scripts (upstream `includes/getDelayedScore.lua`): up to 4095 jobs of the same
millisecond follow each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from conformance.observe.rules.base import CLOCK_TOLERANCE_MS, PLAUSIBLE_SINCE_MS
from conformance.observe.tables import Job, as_number

SCORE_STEPS = 4096
"""How many scores one millisecond has in `delayed`."""

DUE = "<timestamp + delay, or later>"
UNTIL_OWN_TIME = "<until own time>"

_ITERATION_TIME = re.compile(r"repeat:.+:(\d+)")
_MOST_DOUBLINGS = 64


def chosen_timestamp(job: Job) -> float | None:
    """The job's timestamp where the user chose it (option `timestamp`); None where the client's clock did."""
    timestamp = job.number("timestamp")
    return timestamp if "rjk" not in job.fields and timestamp == as_number(job.opts.get("timestamp")) else None


def due_label(job: Job, score: float, taken_ms: int) -> str | None:
    """How a score in `delayed` follows from the job's fields; None where it does not, or needs no clock.

    Added jobs are due at timestamp + delay, jobs that were moved back (retry, changeDelay) at the time of that call +
    delay, and that call lies between the timestamp and now. The two are told apart only where the user chose the
    timestamp: else a call in the very millisecond of the timestamp would look like the other kind.
    """
    timestamp, delay = job.number("timestamp"), job.number("delay")
    if timestamp is None or delay is None:
        return None
    due = (timestamp + max(delay, 0)) * SCORE_STEPS
    chosen = chosen_timestamp(job) is not None
    if due <= score < due + SCORE_STEPS:
        return None if chosen else DUE
    called = score // SCORE_STEPS - delay
    earliest = PLAUSIBLE_SINCE_MS if chosen else timestamp
    return DUE if earliest <= called <= taken_ms + CLOCK_TOLERANCE_MS else None


def masked_delay(job: Job) -> str | None:
    """A text for a delay that depends on the clock; None where the delay is one that was asked for.

    Such are the distance of a scheduler's iteration to its own time, and a move to an absolute time. The latter is
    approximate: `<about N ms>`, which the comparison meets with a tolerance.
    """
    delay, timestamp = job.number("delay"), job.number("timestamp")
    if delay is None or timestamp is None or delay in _asked_delays(job):
        return None
    if "rjk" in job.fields:
        own_time = iteration_time(job.id)
        is_until = own_time is not None and abs(timestamp + delay - own_time) <= CLOCK_TOLERANCE_MS
        return UNTIL_OWN_TIME if is_until else None
    return f"<about {delay:.0f} ms>"


def iteration_time(job_id: str) -> int | None:
    """The time in the id of a scheduler's iteration, `repeat:SCHEDULER:MS`; None for other ids."""
    found = _ITERATION_TIME.fullmatch(job_id)
    return int(found.group(1)) if found else None


def _asked_delays(job: Job) -> Iterator[float]:
    """Delays that follow from the options alone: none, `delay`, and the back-off's (fixed, doubled per attempt)."""
    yield 0.0
    asked = as_number(job.opts.get("delay"))
    if asked is not None and "rjk" not in job.fields:
        yield asked
    backoff = job.opts.get("backoff")
    step = as_number(backoff.get("delay")) if isinstance(backoff, dict) else as_number(backoff)
    if step is not None:
        yield from (step * 2.0**doubling for doubling in range(_MOST_DOUBLINGS))
