"""Which canonical rules a comparison uses, and why."""

from __future__ import annotations

from collections.abc import Collection

from conformance.observe.canonical import ALL_RULES, DEFAULT_RULES, FROZEN_CLOCK_RULES, canonicalise, without
from conformance.observe.rules.base import Context, Rule
from conformance.observe.rules.wakeups import WORKER_TRACES
from conformance.observe.tables import Snapshot


def chosen_rules(*, frozen: bool, managed: bool, off: Collection[str] = ()) -> tuple[Rule, ...]:
    """The rules of a comparison, without those that are switched off.

    `frozen`: both clocks were set by the kit, so times are compared exactly. `managed`: a worker's own loop ran, so
    which wake-up marker is left over depends on who was faster; that it is there when needed is an invariant.
    """
    rules = FROZEN_CLOCK_RULES if frozen else DEFAULT_RULES
    return tuple(rule for rule in (*rules, *((WORKER_TRACES,) if managed else ())) if rule.name not in off)


def check_names(off: Collection[str]) -> None:
    """Raise UsageProblem for a name that no canonical rule has."""
    without(ALL_RULES, *off)


def canonical_pair(oracle: Snapshot, client: Snapshot, rules: tuple[Rule, ...]) -> tuple[Snapshot, Snapshot]:
    """Both snapshots in canonical form."""
    # Durations of locks are a requirement of their own: scenarios use all kinds of them.
    context = Context(lock_duration_ms=None)
    return canonicalise(oracle, rules, context), canonicalise(client, rules, context)
