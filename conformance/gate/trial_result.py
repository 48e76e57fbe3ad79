"""The result of a trial: one execution of a scenario, judged."""

from __future__ import annotations

from dataclasses import dataclass, field

from conformance.findings import Finding
from conformance.gate.records import StepRecord


@dataclass
class TrialResult:
    """The result of a trial. If `error` is set, the kit or the oracle broke, and nothing counts against the client."""

    findings: list[Finding] = field(default_factory=list)
    reached_end: bool = True
    error: str = ""
    unsupported: str = ""
    inconclusive: str = ""
    undecided: frozenset[str] = frozenset()
    """Requirements of the scenario that stay open because the oracle, not the client, did what they are about."""
    changed: str = ""
    """How an oracle of an unsupported version differs from what the scenario or a check expects."""
    doubt: str = ""
    """Why a finding may be the machine's fault; it then counts only if it appears in every repetition."""
    given_up: str = ""
    """Why the scenario stopped without a new result: an operation that it needs has hung before."""
    timings_ms: dict[str, float] = field(default_factory=dict)
    cpu_ms: dict[str, float] = field(default_factory=dict)
    """CPU time that the drivers of `oracle` and `client` have used."""
    log: list[str] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    """The steps that were taken; only recorded if there are findings."""
    frozen: bool = False
    """Whether both clients ran on a frozen clock."""
    unanswered: list[str] = field(default_factory=list)
    """Operations that the client performs without returning a result."""
