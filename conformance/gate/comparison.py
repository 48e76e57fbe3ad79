"""Which canonical rules a comparison uses, and why."""

from __future__ import annotations

from conformance.observe.canonical import DEFAULT_RULES, FROZEN_CLOCK_RULES, canonicalise
from conformance.observe.rules.base import Context
from conformance.observe.rules.wakeups import WORKER_TRACES
from conformance.observe.tables import Snapshot


def canonical_pair(oracle: Snapshot, client: Snapshot, *, frozen: bool, managed: bool) -> tuple[Snapshot, Snapshot]:
    """Both snapshots in canonical form.

    `frozen`: both clocks were set by the kit, so times are compared exactly. `managed`: a worker's own loop ran, so
    which wake-up marker is left over depends on who was faster; that it is there when needed is an invariant.
    """
    rules = FROZEN_CLOCK_RULES if frozen else DEFAULT_RULES
    if managed:
        rules = (*rules, WORKER_TRACES)
    # Durations of locks are a requirement of their own: scenarios use all kinds of them.
    context = Context(lock_duration_ms=None)
    return canonicalise(oracle, rules, context), canonicalise(client, rules, context)
