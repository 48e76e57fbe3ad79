"""What a comparison needs to know about both sides; small, and sent to every executor. No Spark."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.observe.canonical import ALL_RULES, canonicalise, without
from conformance.observe.canonical_rules import CanonicalContext, CanonicalRule
from conformance.observe.tables import Snapshot

RENAMING = ("generated-uuids",)
"""Rules that number ids over a whole queue. Queues with such ids are compared as a whole (see `reports.diff.plan`)."""


@dataclass(frozen=True, kw_only=True)
class SideFacts:
    """Prefix of one side, and the Redis server's clock when it was read (Unix ms)."""

    prefix: str
    taken_ms: int


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Both sides, the rules that are switched off, what rules may know, and queues whose events were trimmed.

    `trimmed`: a job of such a queue has its events compared only where both sides still have them from the first one.
    """

    expected: SideFacts
    actual: SideFacts
    switched_off: tuple[str, ...] = ()
    context: CanonicalContext = CanonicalContext()  # noqa: RUF009 - a frozen value
    trimmed: frozenset[str] = frozenset()

    @property
    def sides(self) -> tuple[SideFacts, SideFacts]:
        """Expected and actual."""
        return self.expected, self.actual

    def rules(self, *unneeded: str) -> tuple[CanonicalRule, ...]:
        """The gate's rules for workers that run by themselves, in their order, but those switched off."""
        return without(ALL_RULES, *{*self.switched_off, *unneeded})

    def canonical(self, snapshot: Snapshot, *unneeded: str) -> Snapshot:
        """The snapshot in canonical form."""
        return canonicalise(snapshot, self.rules(*unneeded), self.context)

    def has_rule(self, name: str) -> bool:
        """Whether a rule is switched on."""
        return any(rule.name == name for rule in self.rules())
