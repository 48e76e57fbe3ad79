"""The outcome of a check as its reports have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from conformance.checkers.snapshot_checks import TABLE
from conformance.checkers.table import CHECKS, DamageCause, Level
from reports.check.looks import LooksAgain
from reports.check.suspicions import Suspicion, SuspicionTally
from reports.diff.values import readable
from reports.snapshot.format import SnapshotManifest

EXAMPLES_SHOWN = 20
"""Places of each cause that reports show."""


class BrokenExample(msgspec.Struct, frozen=True, kw_only=True):
    """A place at which a store breaks a check.

    `locator`: which part of the key. `other`: the key of another job that it is about. `since_ms`: it has been so at
    least since then, Unix ms, Redis' clock; `not_before_ms`: the last time in the job's own fields.
    """

    check: str
    severity: str
    key: str
    locator: str
    message: str
    cause: str = ""
    other: str = ""
    since_ms: int | None = None
    not_before_ms: int | None = None


class CauseFound(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of one cause, with the texts of its row in `conformance/ledger/store_checks.yaml`.

    `count`: places. `more`: places of the first look that were not read again. `since_ms`: of the oldest place, and
    `age_ms` its age. `repair`: calls and commands for the first example; they are not run.
    """

    cause: str
    level: Level
    count: int
    more: int = 0
    what: str
    why: str
    repair: list[str]
    since_ms: int | None = None
    age_ms: int | None = None
    examples: list[BrokenExample]


class CheckSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The places of one store that break a check, counted by check, with examples of each.

    `total`: all places, `damages` without those that are only a warning. `causes`: the worst first. `looks`: how often
    a live store was read; 1: it was at rest. `fleeting`: places that looked wrong once, and not again.
    """

    snapshot: str
    jobs: int
    total: int
    by_check: dict[str, int]
    examples: list[BrokenExample]
    damages: int = 0
    causes: list[CauseFound] = []
    checked_ms: int = 0
    looks: int = 1
    fleeting: int = 0


def summarise_checks(
    name: str, manifest: SnapshotManifest, first: SuspicionTally, again: LooksAgain | None = None
) -> CheckSummary:
    """The outcome as reports have it. `again`: of later looks, for a live store; only what stayed counts."""
    found = SuspicionTally()
    found.add(first.all_kept if again is None else again.stayed)
    left_out = Counter({cause: first.counts[cause] - len(listed) for cause, listed in first.kept_by_cause.items()})
    if again is None:
        found.counts += left_out
    now = manifest.until_ms if again is None else again.at_ms
    texts = _Texts(found.counts, Counter() if again is None else left_out, manifest.prefix, now)
    causes = sorted((texts.found(cause, listed) for cause, listed in found.kept_by_cause.items()), key=_weight)
    return CheckSummary(
        snapshot=name,
        jobs=manifest.jobs,
        total=found.total,
        damages=sum(cause.count for cause in causes if cause.level == "damage"),
        by_check=dict(sorted((first if again is None else found).by_check.items())),
        examples=sorted(
            (example for cause in causes for example in cause.examples),
            key=lambda example: (example.check, example.key, example.locator),
        ),
        causes=causes,
        checked_ms=now,
        looks=1 if again is None else 1 + again.looks,
        fleeting=0 if again is None else len(first.all_kept) - len(again.stayed),
    )


_SEVERITIES = ("lost-jobs", "breaks-others", "wrong-behaviour", "missing", "cosmetic")
_ORDER = [name for check in TABLE for name in check.damages]


def _weight(found: CauseFound) -> tuple[int, int, int]:
    severity = min(_SEVERITIES.index(example.severity) for example in found.examples)
    return int(found.level == "warning"), severity, _ORDER.index(found.cause)


@dataclass(frozen=True)
class _Texts:
    """Values that the reports of all causes need. `more`: places that were read only once."""

    counts: Counter[str]
    more: Counter[str]
    prefix: str
    now: int

    def found(self, name: str, listed: Sequence[Suspicion]) -> CauseFound:
        cause = CHECKS[listed[0].check].damages[name]
        since = min((suspicion.since_ms for suspicion in listed if suspicion.since_ms is not None), default=None)
        return CauseFound(
            cause=name,
            level=cause.level,
            count=self.counts[name],
            more=self.more[name],
            what=cause.what,
            why=cause.why,
            repair=repair_of(cause, listed[0], self.prefix),
            since_ms=None if since is None else int(since),
            age_ms=None if since is None else max(0, int(self.now - since)),
            examples=[_example(suspicion) for suspicion in listed[:EXAMPLES_SHOWN]],
        )


def _example(found: Suspicion) -> BrokenExample:
    return BrokenExample(
        check=found.check,
        severity=found.severity,
        key=readable(found.key),
        locator=readable(found.place),
        message=readable(found.message),
        cause=found.cause,
        other=readable(found.other),
        since_ms=None if found.since_ms is None else int(found.since_ms),
        not_before_ms=None if found.not_before_ms is None else int(found.not_before_ms),
    )


def repair_of(cause: DamageCause, found: Suspicion, prefix: str) -> list[str]:
    """The calls and commands that repair one place."""
    own = found.key.startswith(f"{prefix}:")
    queue, _, job = (found.key.removeprefix(f"{prefix}:") if own else found.key).partition(":")
    words = {
        "base": f"{prefix}:{queue}:",
        "queue": queue,
        "job": job,
        "key": found.key if own else f"{prefix}:{found.key}",
        "other": found.other,
    }
    return [readable(call.format_map(words)) for call in cause.repair]
