"""All checks of a snapshot, and how to choose and run them.

They are judged on the raw snapshot, not on the canonical one. They also hold for queues of Node.js: each of its
exceptions is part of the check and of its documentation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from conformance.checkers import jobs, live_queues, production, queues  # noqa: F401 - they declare the checks
from conformance.checkers.base import SnapshotView, ViolationDetail, without_switched_off
from conformance.checkers.table import CHECKS, ROWS, Scope, StoreCheck
from conformance.findings import Finding
from conformance.observe.differences import natural
from conformance.observe.tables import Snapshot
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.protocol.versions import in_range

TABLE: tuple[StoreCheck, ...] = tuple(CHECKS[name] for name in ROWS)
"""Every check, in the order of the table."""

ALL_CHECKS = tuple(check for check in TABLE if not check.in_use)
"""Those that hold at every moment of a scenario."""


def checks_of(*scopes: Scope) -> tuple[StoreCheck, ...]:
    """The checks of these sections of the table."""
    return tuple(check for check in TABLE if check.scope in scopes)


def broken(view: object, checks: Sequence[StoreCheck], version: str) -> Iterator[tuple[StoreCheck, ViolationDetail]]:
    """All violations of those of these checks that hold for a version of BullMQ. `view`: what the checks see."""
    for check in checks:
        if in_range(version, check.bullmq):
            yield from ((check, detail) for detail in check.predicate(view))


def check_snapshot(
    snapshot: Snapshot, switched_off: Mapping[str, str] | None = None, *, version: str = BULLMQ_VERSION
) -> list[Finding]:
    """Run all checks that hold for a version of BullMQ, without those that are switched off.

    `switched_off`: names and reasons, for example `{"base-marker": "the scenario deletes the marker"}`. Raises
    UsageProblem for an unknown name or an empty reason.
    """
    found = broken(SnapshotView(snapshot), without_switched_off(ALL_CHECKS, switched_off), version)
    findings = [check.finding(detail) for check, detail in found]
    order = list(ROWS)
    # Natural order, so that job 10 comes after job 9.
    return sorted(findings, key=lambda each: (order.index(each.kind), natural(each.key), each.place, each.message))


def checks_table() -> list[tuple[str, str, str, str]]:
    """Name, severity, source and rule of every check, for the documentation."""
    return [(check.name, check.severity, check.source, check.doc) for check in ALL_CHECKS]


__all__ = ["ALL_CHECKS", "TABLE", "broken", "check_snapshot", "checks_of", "checks_table"]
