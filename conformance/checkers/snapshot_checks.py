"""All invariants over one snapshot, and how to run them.

They are judged on the raw snapshot, not on the canonical one, and hold for Node's own queues too: every exception that
Node makes is part of the check and of its documentation.
"""

from __future__ import annotations

from collections.abc import Mapping

from conformance.checkers import events, fields, flows, queues, states
from conformance.checkers.base import Check, View, Violation
from conformance.observe.differences import natural
from conformance.observe.tables import Snapshot
from conformance.problems import UsageProblem

ALL_CHECKS: tuple[Check[View], ...] = (
    *states.CHECKS,
    *fields.CHECKS,
    *queues.CHECKS,
    *flows.CHECKS,
    *events.CHECKS,
)
"""Every check, in the order in which they are run."""


def check_snapshot(snapshot: Snapshot, switched_off: Mapping[str, str] | None = None) -> list[Violation]:
    """Run all checks but those switched off.

    `switched_off`: names and reasons, for example `{"base-marker": "the scenario deletes the marker"}`. Raises
    UsageProblem for an unknown name or an empty reason.
    """
    off = switched_off or {}
    _refuse_bad_switches(off)
    view = View(snapshot)
    return [
        violation
        for check in ALL_CHECKS
        if check.name not in off
        for violation in sorted(check.run(view), key=lambda found: (natural(found.key), found.where, found.message))
    ]


def checks_table() -> list[tuple[str, str, str, str]]:
    """Name, severity, source and rule of every check, for the documentation."""
    return [(check.name, check.severity, check.source, check.doc) for check in ALL_CHECKS]


def _refuse_bad_switches(switched_off: Mapping[str, str]) -> None:
    known = [check.name for check in ALL_CHECKS]
    for name, reason in switched_off.items():
        if name not in known:
            raise UsageProblem(f"there is no check {name!r}", hint=f"the checks are: {', '.join(known)}")
        if not reason.strip():
            raise UsageProblem(f"the check {name!r} is switched off without a reason", hint="say why it does not apply")


__all__ = ["ALL_CHECKS", "Check", "Violation", "check_snapshot", "checks_table"]
