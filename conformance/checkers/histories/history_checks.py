"""All invariants over a history, and how to run them."""

from __future__ import annotations

from conformance.checkers.histories import (
    end_state,
    guarantees,
    job_lives,
    job_options,
    recovery,
    renewals,
    run_outcomes,
    timing,
)
from conformance.checkers.histories.base import CheckResult, HistoryCheck
from conformance.checkers.histories.evidence import Evidence
from conformance.checkers.histories.history import History
from conformance.observe.tables import Snapshot

ALL_CHECKS: tuple[HistoryCheck, ...] = (
    *end_state.KEEPING_CHECKS,
    *job_lives.RUN_CHECKS,
    *run_outcomes.OUTCOME_CHECKS,
    *renewals.RENEWAL_CHECKS,
    *timing.ORDER_CHECKS,
    *timing.TIMING_CHECKS,
    *timing.LIMIT_CHECKS,
    *job_lives.TRANSITION_CHECKS,
    *guarantees.GUARANTEE_CHECKS,
    *job_options.OPTION_CHECKS,
    *recovery.RECOVERY_CHECKS,
    *end_state.REST_CHECKS,
)
"""Every check, in the order in which they are reported."""


def check_history(history: History, snapshot: Snapshot | None = None) -> list[CheckResult]:
    """Judge a history, and the snapshot taken after it, by every check."""
    evidence = Evidence(history, snapshot)
    return [check.run(evidence) for check in ALL_CHECKS]
