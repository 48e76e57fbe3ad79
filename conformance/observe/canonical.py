"""Canonical form: the named rules, and their application to a snapshot. Pure.

Two participants work under different prefixes, with different tokens and, where they have no settable clock, at
different times. Each rule removes one such difference and says why it is none; everything else is compared exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from conformance.observe.rules.base import Context, Rule
from conformance.observe.rules.clock import WORKER_CLOCK
from conformance.observe.rules.lifetimes import DEDUPLICATION_TTL, LIMITER_TTL, LOCK_TTL, STALLED_CHECK_TTL
from conformance.observe.rules.names import GENERATED_UUIDS, LIBRARY_VERSION, LOCK_TOKEN, OWN_PREFIX
from conformance.observe.rules.texts import OPTS_PARSED_JSON, STACK_TRACE_TEXT, STREAM_IDS
from conformance.observe.rules.wakeups import WORKER_TRACES
from conformance.observe.tables import Snapshot
from conformance.problems import UsageProblem

FROZEN_CLOCK_RULES: tuple[Rule, ...] = (
    OPTS_PARSED_JSON,
    OWN_PREFIX,
    GENERATED_UUIDS,
    LOCK_TOKEN,
    LOCK_TTL,
    DEDUPLICATION_TTL,
    LIMITER_TTL,
    STALLED_CHECK_TTL,
    STREAM_IDS,
    STACK_TRACE_TEXT,
    LIBRARY_VERSION,
)
"""For participants whose clocks the kit has set: times are compared exactly. In the order of application."""

DEFAULT_RULES: tuple[Rule, ...] = (*FROZEN_CLOCK_RULES, WORKER_CLOCK)
"""For participants of which at least one has no settable clock."""

ALL_RULES: tuple[Rule, ...] = (*DEFAULT_RULES, WORKER_TRACES)
"""Every rule that there is; `worker-traces` is only for participants whose workers run by themselves."""


def canonicalise(snapshot: Snapshot, rules: Iterable[Rule] = DEFAULT_RULES, context: Context | None = None) -> Snapshot:
    """Apply the rules in order. The result is a fixed point: applying the same rules again changes nothing."""
    for rule in rules:
        snapshot = rule.apply(snapshot, context or Context())
    return snapshot


def without(rules: Sequence[Rule], *names: str) -> tuple[Rule, ...]:
    """The rules with some switched off. Raises UsageProblem for a name that no rule has."""
    known = [rule.name for rule in rules]
    for name in names:
        if name not in known:
            raise UsageProblem(f"there is no canonical rule {name!r}", hint=f"the rules are: {', '.join(known)}")
    return tuple(rule for rule in rules if rule.name not in names)


def rules_table() -> list[tuple[str, str]]:
    """Name and reason of every rule, for the documentation."""
    return [(rule.name, rule.reason) for rule in ALL_RULES]


__all__ = [
    "ALL_RULES",
    "DEFAULT_RULES",
    "FROZEN_CLOCK_RULES",
    "Context",
    "Rule",
    "canonicalise",
    "rules_table",
    "without",
]
