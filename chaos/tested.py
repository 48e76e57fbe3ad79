"""Which invariants a fault is meant to test: of those a run has to be certain, `unknown` is not enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chaos.faults.base import Fault
from conformance.checkers.histories.history_checks import ALL_CHECKS

WITHOUT_FAULTS = frozenset(check.name for check in ALL_CHECKS)
"""The workload alone reaches every limit, and lasts long enough for memory."""
ALWAYS = frozenset({"progress", "recovery"})
"""Even where keys go one by one, and nothing need fit together."""
JOBS = ALWAYS | {
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
    "evict.allkeys-lru": ALWAYS,
    "evict.allkeys-lfu": ALWAYS,
    "evict.allkeys-random": ALWAYS,
    "clock.worker-hour-ahead": JOBS,
    "clock.worker-jumps": JOBS,
    "redis.client-kill": CONNECTIONS | {"renewals", "rate"},
    "network.outage-all": CONNECTIONS | {"renewals", "rate"},
    "network.brief-silence": CONNECTIONS | {"renewals"},
}
"""Where a fault means more, or less, than its group."""


def invariants_tested_by(faults: Sequence[Fault]) -> frozenset[str]:
    """What a run with these faults has to be certain of; with several what all of them leave possible."""
    if not faults:
        return WITHOUT_FAULTS
    each = [OF_FAULT.get(fault.name, OF_GROUP[fault.group]) for fault in faults]
    return frozenset.intersection(*each)
