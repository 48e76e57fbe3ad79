"""The values that a diff works with: both sides and the rules between them, and differences as rows. No Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from conformance.observe.canonical import ALL_RULES, without
from conformance.observe.canonical_rules import OWN_PREFIX, CanonicalContext, CanonicalRule, with_prefixes_named
from conformance.observe.tables import Snapshot
from reports.snapshot.rows import as_bytes


@dataclass(frozen=True, kw_only=True)
class DiffSide:
    """Prefix of one side, and the Redis server's clock when reading ended (Unix ms): no time in it is later."""

    prefix: str
    taken_ms: int


@dataclass(frozen=True, kw_only=True)
class DiffSettings:
    """Both sides, the rules that are switched off, what rules may know, and queues whose events were trimmed.

    `trimmed`: a job of such a queue has its events compared only where both sides still have them from the first one.
    """

    expected: DiffSide
    actual: DiffSide
    switched_off: tuple[str, ...] = ()
    context: CanonicalContext = CanonicalContext()  # noqa: RUF009 - a frozen value
    trimmed: frozenset[str] = frozenset()

    @property
    def sides(self) -> tuple[DiffSide, DiffSide]:
        """Expected and actual."""
        return self.expected, self.actual

    def rules(self, *unneeded: str) -> tuple[CanonicalRule, ...]:
        """The gate's rules for workers that run by themselves, in their order, but those switched off.

        A text may mention the prefix of either side, so both are named on both.
        """
        prefixes = [side.prefix for side in self.sides]
        both = replace(OWN_PREFIX, transform=lambda snapshot, _: with_prefixes_named(snapshot, prefixes))
        rules = without(ALL_RULES, *{*self.switched_off, *unneeded})
        return tuple(both if rule is OWN_PREFIX else rule for rule in rules)

    def has_rule(self, name: str) -> bool:
        """Whether a rule is switched on."""
        return any(rule.name == name for rule in self.rules())


DIFFERENCE_CLASSES: tuple[str, ...] = (
    "missing",
    "extra",
    "dangling",
    "orphan",
    "no-state",
    "two-states",
    "wrong-state",
    "type",
    "stale-lock",
    "lock",
    "order",
    "transition-without-event",
    "event-without-transition",
    "member",
    "field",
    "ttl",
    "broken",
)
"""Every semantic class, gravest first.

`missing`, `extra`: a job or key that only the expected, only the actual side has. `dangling`: a container holds an id
whose job is gone. `orphan`: a lock, log or dependency set without its job. `no-state`, `two-states`, `wrong-state`: in
which containers a job is. `stale-lock`: a lock on a job that is not active; `lock`: any other difference of a lock.
`transition-without-event`: the state is the same but an event is missing; `event-without-transition`: an event too
many. `member`: a child more or less in a parent's set, or a job in `stalled`. `order`, `field`, `type`, `ttl`: as they
say. `broken`: one side breaks a check that a single store must pass, and the rules do not see a difference.
"""

DIFFERENCE_COLUMNS = ("class", "kind", "severity", "locator", "queue", "state", "key", "field", "expected", "actual")
"""The columns of a difference. `locator`: as in a difference of the gate. `state`: the container on the expected side,
else on the actual one; empty where it is not about a job."""


@dataclass(frozen=True, kw_only=True)
class SnapshotPair:
    """The tables of both sides about one job (or about one group of keys), in canonical form.

    `as_read`: the same without values that a relative rule masks (`conformance.observe.diff.as_read`).
    """

    expected: Snapshot
    actual: Snapshot
    as_read: tuple[Snapshot, Snapshot]


def batch_of_rows(rows: Iterable[Sequence[str]]) -> pa.RecordBatch:
    """Rows of differences as one Arrow batch."""
    listed = list(rows)
    columns = [
        pa.array([readable(row[number]) for row in listed], pa.string()) for number in range(len(DIFFERENCE_COLUMNS))
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(DIFFERENCE_COLUMNS))


def readable(text: str) -> str:
    r"""The text as UTF-8 that any reader of Parquet takes: bytes that are none stand as `\xff`."""
    return as_bytes(text).decode("utf-8", "backslashreplace")
