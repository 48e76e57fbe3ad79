"""The one shape of what is not as required, from the checker that sees it to the report that shows it."""

from __future__ import annotations

from typing import Literal

import msgspec

Severity = Literal["lost-jobs", "breaks-others", "wrong-behaviour", "missing", "cosmetic"]
"""In this order: a job that had to be done is in no place where anybody would find it; others break on it; the client
behaves wrongly; an event or field is missing; it only looks odd."""

Source = Literal["snapshot", "answer", "events", "assertion", "invariant", "oracle-health", "protocol", "traffic"]
"""Which observer saw it."""


NOBODY_BLAMED = ""
"""The requirement of a finding until the gate has attributed it."""


PREFIX = "<prefix>"
"""Stands in what is kept of a scenario for the key prefix on which a participant worked."""


class RedisReading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a command that only reads gave on both sides, right after the scenario.

    `command`: its words, keys beginning with PREFIX. `expected`: the reply on the oracle's prefix, empty where the two
    clients shared one; `actual`: on the client's. A reply is a text as it is, `(nil)`, or JSON for several.
    """

    command: list[str]
    expected: str = ""
    actual: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is not as required, located.

    `requirement` is the ledger id that it speaks against, or NOBODY_BLAMED. `kind` is the class
    of the difference (`missing-job`, `wrong-value`, ...) or the name of the check. `where` is a locator such as
    `job.timestamp`, `event.added`, `membership.wait.order` or `invariant.base-marker`, to which a ledger row may lay
    claim; `place` says more exactly where a check was broken (`lock.ttl`). `key`: the Redis key or job id. `expected`
    is what the oracle did or the scenario states, `actual` what the client did, both as short texts. `redis`: what is
    in Redis at this place, on both sides.
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
