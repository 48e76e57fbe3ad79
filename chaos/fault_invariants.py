"""Which invariants a fault is meant to test: of those a run has to be certain, `unknown` is not enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chaos.faults.base import Fault
from conformance.checkers.histories.history_checks import ALL_CHECKS

WITHOUT_FAULTS = frozenset(check.name for check in ALL_CHECKS)
"""The workload alone reaches every limit, and lasts long enough for memory."""
TORN = frozenset({"recovery"})
"""Where keys go one by one nothing need fit together, and work that needed them may be left undone."""
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
    "network.brief-silence": CONNECTIONS | {"renewals"},
}
"""Where a fault means more, or less, than its group: after 20 s away Node may have no job to close upon for 18 s."""


def invariants_tested_by(faults: Sequence[Fault]) -> frozenset[str]:
    """What a run with these faults has to be certain of; with several what all of them leave possible."""
    if not faults:
        return WITHOUT_FAULTS
    each = [OF_FAULT.get(fault.name, OF_GROUP[fault.group]) for fault in faults]
    return frozenset.intersection(*each)
