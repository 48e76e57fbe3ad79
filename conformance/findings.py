"""A violation of a requirement, from the checker that finds it to the report that shows it."""

from __future__ import annotations

from typing import Literal

import msgspec

Severity = Literal["lost-jobs", "breaks-others", "wrong-behaviour", "missing", "cosmetic"]
"""In this order: a job is lost; other clients break on it; the client behaves wrongly; an event or field is missing; it
only looks odd."""

Source = Literal["snapshot", "answer", "events", "assertion", "invariant", "oracle-health", "protocol", "traffic"]
"""The observer that found it."""


NOBODY_BLAMED = ""
"""The requirement of a finding until the gate has attributed it."""


PREFIX = "<prefix>"
"""Replaces the key prefix of a participant in records of a scenario."""


class RedisReading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The replies of both sides to a read-only command, right after the scenario.

    `command`: its words, keys start with PREFIX. `expected`: the reply on the oracle's prefix, empty if the two
    clients shared one; `actual`: on the client's. If the client stopped early, `expected` is empty and `at_end` is the
    reply on the oracle's prefix after its remaining steps. A reply is a text as it is, `(nil)`, or JSON for several.
    """

    command: list[str]
    expected: str = ""
    actual: str = ""
    at_end: str = ""


Evidence = Literal["certain", "timed"]
"""`certain`: waiting would not change it, so it counts on any machine. `timed`: a late process may cause it."""


class Timing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How late a process has to be to cause a timed finding.

    Starvation of `slack_ms` or more within any `within_ms` can cause it; less cannot. `both_sides`: starvation of the
    oracle's driver as well, because its actions were compared or took place on the same queue.
    """

    within_ms: int
    slack_ms: int
    both_sides: bool = False

    @staticmethod
    def of_wait(within_ms: int) -> Timing:
        """Return the timing of a condition that did not hold within `within_ms`: half of this time is enough for it."""
        return Timing(within_ms=within_ms, slack_ms=within_ms // 2)


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One violation and its place.

    `requirement` is the ledger id that it violates, or NOBODY_BLAMED. `kind` is the class
    of the difference (`missing-job`, `wrong-value`, ...) or the name of the check. `where` is a locator such as
    `job.timestamp`, `event.added`, `membership.wait.order` or `invariant.base-marker`, which a ledger row may own;
    `place` is more exact about the place that a check names (`lock.ttl`). `key`: the Redis key or job id. `expected`
    is what the oracle did or the scenario states, `actual` what the client did, both as short texts. `redis`: what is
    in Redis at this place, on both sides. `times`: the number of findings that this one
    represents, if others of its kind were folded into it. `timing`: only of timed evidence; certain evidence has none.
    """

    requirement: str
    source: Source
    kind: str
    severity: Severity
    where: str
    key: str
    expected: str
    actual: str
    message: str
    place: str = ""
    redis: list[RedisReading] = []
    times: int = 1
    timing: Timing | None = None

    @property
    def evidence(self) -> Evidence:
        """How sure the finding is on a starved machine."""
        return "certain" if self.timing is None else "timed"
