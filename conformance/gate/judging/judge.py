"""From what two participants left behind to findings: snapshots compared, invariants checked, answers compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from conformance.checkers import traffic
from conformance.checkers.snapshot_checks import check_snapshot
from conformance.gate.expect import Mismatch, shown
from conformance.gate.judging.answers import compare_answers
from conformance.gate.judging.attribution import blamed
from conformance.gate.judging.comparison import canonical_pair, chosen_rules
from conformance.gate.participants.participant import Participant
from conformance.gate.run.records import Finding
from conformance.gate.scenario import Scenario
from conformance.ledger.loader import Ledger
from conformance.observe.diff import diff
from conformance.observe.tables import Snapshot
from conformance.observe.tap.records import CommandRecord

TRAFFIC_CHECKS = frozenset(check.name for check in traffic.ALL_CHECKS)

ORACLE_HEALTH = "oracle-health"
"""The name by which a scenario switches off that Node reads what the client left."""


@dataclass(frozen=True)
class Judge:
    """Turns evidence into findings for one scenario."""

    scenario: Scenario
    ledger: Ledger
    rules_off: tuple[str, ...] = ()
    """Canonical rules that the user switched off, by name."""

    def blame(self, where: str) -> str:
        """The requirement that a finding at this locator speaks against."""
        return blamed(where, self.scenario.requirements, self.ledger)

    def mismatch(self, mismatch: Mismatch) -> Finding:
        """A statement of the scenario that does not hold."""
        own = self.ledger.owner_of(mismatch.where, among=self.scenario.requirements) if mismatch.where else None
        return Finding(
            requirement=own.id if own else self.scenario.requirements[0],
            source="assertion",
            kind="assertion",
            severity="wrong-behaviour",
            where=mismatch.where or "scenario",
            key="",
            expected=mismatch.expected,
            actual=mismatch.actual,
            message=mismatch.what,
        )

    def broken(self, kind: str, message: str) -> Finding:
        """The client's call failed, or its driver broke, where the scenario needed it to go on."""
        return Finding(
            requirement=self.scenario.requirements[0],
            source="protocol",
            kind=kind,
            severity="wrong-behaviour",
            where="driver",
            key="",
            expected="the call succeeds",
            actual=message,
            message=message,
        )

    def answers(self, oracle: Participant, client: Participant) -> list[Finding]:
        """Where the client's answers differ from the oracle's."""
        found = compare_answers(oracle, client, self.scenario.requirements[0])
        return [msgspec.structs.replace(finding, requirement=self.blame(finding.where)) for finding in found]

    def states(self, oracle: Snapshot, client: Snapshot, *, frozen: bool, managed: bool) -> list[Finding]:
        """Where the state that the client left differs from the oracle's."""
        rules = chosen_rules(frozen=frozen, managed=managed, off=self.rules_off)
        expected, actual = canonical_pair(oracle, client, rules)
        return [
            Finding(
                requirement=self.blame(difference.where),
                source="events" if difference.where.startswith("event.") else "snapshot",
                kind=difference.kind,
                severity=difference.severity,
                where=difference.where,
                key=difference.key,
                expected=shown(difference.expected),
                actual=shown(difference.actual),
                message=str(difference),
            )
            for difference in diff(expected, actual)
        ]

    def invariants(self, snapshot: Snapshot) -> list[Finding]:
        """Which invariants the state breaks, except those that the scenario switches off with a reason."""
        others = {ORACLE_HEALTH, *TRAFFIC_CHECKS}
        off = {name: reason for name, reason in self.scenario.without.items() if name not in others}
        return [
            Finding(
                requirement=self.blame(f"invariant.{violation.check}"),
                source="invariant",
                kind=violation.check,
                severity=violation.severity,
                where=f"invariant.{violation.check}",
                key=violation.key,
                expected="holds after every scenario",
                actual=violation.message,
                message=f"invariant {violation.check}: {violation.message}",
            )
            for violation in check_snapshot(snapshot, off)
        ]

    def traffic(self, commands: Sequence[CommandRecord], *, cluster: bool) -> list[Finding]:
        """Which checks the commands break that a participant has sent, except those that the scenario switches off."""
        off = {name: reason for name, reason in self.scenario.without.items() if name in TRAFFIC_CHECKS}
        found = []
        for violation in traffic.check_traffic(commands, cluster=cluster, switched_off=off):
            where = f"traffic.{violation.check}.{violation.where.removeprefix('call.')}"
            found.append(
                Finding(
                    requirement=self.blame(where),
                    source="traffic",
                    kind=violation.check,
                    severity=violation.severity,
                    where=where,
                    key=violation.key,
                    expected="holds for every command",
                    actual=violation.message,
                    message=f"traffic {violation.check}: {violation.message}",
                )
            )
        return found
