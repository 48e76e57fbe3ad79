"""All invariants over a history, and how to run them."""

from __future__ import annotations

from conformance.checkers.histories import bounds, keeping, ordering, resting, running, timing, transitions
from conformance.checkers.histories.base import Finding, HistoryCheck, Judgement
from conformance.checkers.histories.evidence import Evidence
from conformance.checkers.histories.history import History
from conformance.observe.tables import Snapshot

ALL_CHECKS: tuple[HistoryCheck, ...] = (
    *keeping.CHECKS,
    *running.CHECKS,
    *ordering.CHECKS,
    *timing.CHECKS,
    *bounds.CHECKS,
    *transitions.CHECKS,
    *resting.CHECKS,
)
"""Every check, in the order in which they are reported."""


def check_history(history: History, snapshot: Snapshot | None = None) -> list[Judgement]:
    """Judge a history, and the snapshot that was taken after it, by every check."""
    evidence = Evidence(history, snapshot)
    return [check.run(evidence) for check in ALL_CHECKS]


__all__ = ["ALL_CHECKS", "Finding", "HistoryCheck", "Judgement", "check_history"]
