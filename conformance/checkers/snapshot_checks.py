"""All invariants over one snapshot, and how to run them.

They are judged on the raw snapshot, not on the canonical one. They also hold for queues of Node.js: each of its
exceptions is part of the check and of its documentation.
"""

from __future__ import annotations

from collections.abc import Mapping

from conformance.checkers import jobs, queues
from conformance.checkers.base import InvariantCheck, SnapshotView, without_switched_off
from conformance.findings import Finding
from conformance.observe.differences import natural
from conformance.observe.tables import Snapshot
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.protocol.versions import in_range

ALL_CHECKS: tuple[InvariantCheck[SnapshotView], ...] = (
    *jobs.STATE_CHECKS,
    *jobs.FIELD_CHECKS,
    *queues.QUEUE_CHECKS,
    *jobs.FLOW_CHECKS,
    *queues.EVENT_CHECKS,
)
"""Every check, in the order in which they are run."""


def check_snapshot(
    snapshot: Snapshot, switched_off: Mapping[str, str] | None = None, *, version: str = BULLMQ_VERSION
) -> list[Finding]:
    """Run all checks that hold for a version of BullMQ, without those that are switched off.

    `switched_off`: names and reasons, for example `{"base-marker": "the scenario deletes the marker"}`. Raises
    UsageProblem for an unknown name or an empty reason.
    """
    view = SnapshotView(snapshot)
    return [
        finding
        for check in without_switched_off(ALL_CHECKS, switched_off)
        if in_range(version, check.bullmq)
        # Natural order, so that job 10 comes after job 9.
        for finding in sorted(check.run(view), key=lambda found: (natural(found.key), found.place, found.message))
    ]


def checks_table() -> list[tuple[str, str, str, str]]:
    """Name, severity, source and rule of every check, for the documentation."""
    return [(check.name, check.severity, check.source, check.doc) for check in ALL_CHECKS]


__all__ = ["ALL_CHECKS", "check_snapshot", "checks_table"]
