"""The invariants that each fault is meant to test: the run must decide them, `unknown` is not enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chaos.faults.base import Fault
from conformance.checkers.histories.history_checks import ALL_CHECKS

WITHOUT_FAULTS = frozenset(check.name for check in ALL_CHECKS)
"""The workload alone reaches every limit, and lasts long enough to judge memory."""
TORN = frozenset({"recovery"})
"""If keys are evicted one by one, the remaining keys may be inconsistent, and work that needs them may stay undone."""
JOBS = TORN | {
    "progress",
    "conservation",
    "durability",
    "indeterminate",
    "duplicate-runs",
    "tokens",
    "outcomes",
    "events",
    "orphans",
}
CONNECTIONS = JOBS | {"connections", "event-readers", "closing", "worker-concurrency"}
OF_GROUP: Mapping[str, frozenset[str]] = {
    "workers": JOBS,
    "producers": JOBS,
    "network": CONNECTIONS,
    "redis": CONNECTIONS,
    "topology": CONNECTIONS,
    "containers": CONNECTIONS,
    "evictions": JOBS,
    "clocks": JOBS | {"timing"},
}
OF_FAULT: Mapping[str, frozenset[str]] = {
    "evict.allkeys-lru": TORN,
    "evict.allkeys-lfu": TORN,
    "evict.allkeys-random": TORN,
    "clock.worker-hour-ahead": JOBS,
    "clock.worker-jumps": JOBS,
    "redis.away-20s": CONNECTIONS - {"closing"},
    "redis.client-kill": CONNECTIONS | {"renewals", "rate"},
    "network.outage-all": CONNECTIONS | {"renewals", "rate"},
    "network.half-open": JOBS,
    "network.brief-silence": CONNECTIONS | {"renewals"},
}
"""Faults that test more, or less, than their group. After 20 s away, Node.js may get no job for 18 s."""


def invariants_tested_by(faults: Sequence[Fault]) -> frozenset[str]:
    """The invariants that a run with these faults must decide; with several faults, those that all of them allow."""
    if not faults:
        return WITHOUT_FAULTS
    each = [OF_FAULT.get(fault.name, OF_GROUP[fault.group]) for fault in faults]
    return frozenset.intersection(*each)
