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
    clients shared one; `actual`: on the client's. A reply is a text as it is, `(nil)`, or JSON for several.
    """

    command: list[str]
    expected: str = ""
    actual: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One violation and its place.

    `requirement` is the ledger id that it violates, or NOBODY_BLAMED. `kind` is the class
    of the difference (`missing-job`, `wrong-value`, ...) or the name of the check. `where` is a locator such as
    `job.timestamp`, `event.added`, `membership.wait.order` or `invariant.base-marker`, which a ledger row may own;
    `place` is more exact about the place that a check names (`lock.ttl`). `key`: the Redis key or job id. `expected`
    is what the oracle did or the scenario states, `actual` what the client did, both as short texts. `redis`: what is
    in Redis at this place, on both sides. `times`: the number of findings that this one
    represents, if others of its kind were folded into it.
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
