"""Which requirement a finding speaks against, and which verdict follows for each requirement of a scenario."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.gate.run.records import Finding, Verdict
from conformance.ledger.loader import Ledger

WORST_FIRST: tuple[Verdict, ...] = ("error", "fail", "inconclusive", "unsupported", "warn", "pass")


def blamed(where: str, requirements: tuple[str, ...], ledger: Ledger) -> str:
    """The owner of the locator, else the scenario's first requirement."""
    owner = ledger.owner_of(where)
    return owner.id if owner else requirements[0]


def verdict_of(finding: Finding, ledger: Ledger) -> Verdict:
    """A MUST fails, a SHOULD warns, a MAY only informs; what is merely cosmetic never fails."""
    level = ledger.row(finding.requirement).level
    if level == "MAY":
        return "pass"
    return "warn" if level == "SHOULD" or finding.severity == "cosmetic" else "fail"


def requirement_verdicts(
    requirements: tuple[str, ...], findings: Iterable[Finding], ledger: Ledger, *, reached_end: bool
) -> dict[str, Verdict]:
    """Verdict per requirement: the scenario's own, and those that its findings are attributed to.

    When the scenario stopped half-way, its own requirements without a finding were not fully looked at: inconclusive.
    """
    verdicts: dict[str, Verdict] = dict.fromkeys(requirements, "pass" if reached_end else "inconclusive")
    for finding in findings:
        verdict = verdict_of(finding, ledger)
        before = verdicts.get(finding.requirement, "pass")
        untouched = finding.requirement in requirements and before == "inconclusive"
        verdicts[finding.requirement] = verdict if untouched else worst([before, verdict])
    return verdicts


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The gravest of several verdicts; pass if there are none."""
    present = set(verdicts)
    return next((verdict for verdict in WORST_FIRST if verdict in present), "pass")
