"""Canonical form: the named rules, and their application to a snapshot. Pure.

Two participants work under different prefixes, with different tokens and, where they have no settable clock, at
different times. Each rule removes one such difference and says why it is none; everything else is compared exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from conformance.observe.canonical_rules import (
    DEDUPLICATION_TTL,
    GENERATED_UUIDS,
    LIBRARY_VERSION,
    LIMITER_TTL,
    LOCK_TOKEN,
    LOCK_TTL,
    OPTS_PARSED_JSON,
    OWN_PREFIX,
    STACK_TRACE_TEXT,
    STALLED_CHECK_TTL,
    STREAM_IDS,
    WORKER_TRACES,
    CanonicalContext,
    CanonicalRule,
)
from conformance.observe.tables import Snapshot
from conformance.observe.worker_clock import ITERATION_IDS, WORKER_CLOCK
from conformance.registry import unknown_name

FROZEN_CLOCK_RULES: tuple[CanonicalRule, ...] = (
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

DEFAULT_RULES: tuple[CanonicalRule, ...] = (*FROZEN_CLOCK_RULES, WORKER_CLOCK, ITERATION_IDS)
"""For participants of which at least one has no settable clock."""

ALL_RULES: tuple[CanonicalRule, ...] = (*DEFAULT_RULES, WORKER_TRACES)
"""Every rule that there is; `worker-traces` is only for participants whose workers run by themselves."""


def canonicalise(
    snapshot: Snapshot, rules: Iterable[CanonicalRule] = DEFAULT_RULES, context: CanonicalContext | None = None
) -> Snapshot:
    """Apply the rules in order. The result is a fixed point: applying the same rules again changes nothing."""
    for rule in rules:
        snapshot = rule.apply(snapshot, context or CanonicalContext())
    return snapshot


def without(rules: Sequence[CanonicalRule], *names: str) -> tuple[CanonicalRule, ...]:
    """The rules with some switched off. Raises UsageProblem for a name that no rule has."""
    known = [rule.name for rule in rules]
    for name in names:
        if name not in known:
            raise unknown_name("canonical rule", name, known)
    return tuple(rule for rule in rules if rule.name not in names)


def rules_table() -> list[tuple[str, str]]:
    """Name and reason of every rule, for the documentation."""
    return [(rule.name, rule.reason) for rule in ALL_RULES]


__all__ = [
    "ALL_RULES",
    "DEFAULT_RULES",
    "FROZEN_CLOCK_RULES",
    "canonicalise",
    "rules_table",
    "without",
]
