"""Small values for the tests of the gate: findings, records, a ledger with one row per level, pytest items."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest

from conformance.findings import Finding, Severity, Timing
from conformance.gate.records import ScenarioRecord, Verdict
from conformance.ledger.loader import Ledger, Requirement
from conformance.participants.marks import Scenario, Tier

Level = Literal["MUST", "SHOULD", "MAY"]


def finding(
    requirement: str = "a.must",
    *,
    where: str = "job.name",
    message: str = "the name differs",
    severity: Severity = "wrong-behaviour",
    timing: Timing | None = None,
) -> Finding:
    return Finding(
        requirement=requirement,
        source="snapshot",
        kind="wrong-value",
        severity=severity,
        where=where,
        key="1",
        expected="one",
        actual="another",
        message=message,
        timing=timing,
    )


def record(
    requirements: dict[str, Verdict], *findings: Finding, name: str = "a/one", verdict: Verdict = "pass"
) -> ScenarioRecord:
    return ScenarioRecord(
        id=name,
        title="One.",
        area="a",
        tier="core",
        verdict=verdict,
        requirements=requirements,
        findings=list(findings),
    )


def row(name: str, level: Level = "MUST", *owns: str) -> Requirement:
    return Requirement(
        id=name, area="a", level=level, statement="It holds.", source="x.lua", oracle="", claims=(), owns=owns
    )


def levels() -> Ledger:
    """A ledger with a row of each level; the MUSTs own parts of the job hash."""
    rows = [row("a.must", "MUST"), row("a.name", "MUST", "job.name"), row("a.should", "SHOULD"), row("a.may", "MAY")]
    return Ledger(rows, {"a": "An area"})


def made(*requirements: str, tier: Tier = "core", slow: bool = False) -> Scenario:
    def test_something(client: Any) -> None:
        """Something holds.

        And this is why.
        """

    return Scenario(
        function=test_something,
        requirements=requirements,
        style="differential",
        tier=tier,
        clock="frozen",
        slow=slow,
    )


def item(scenario: Scenario | None = None, *, module: str = "test_job_hash.py", name: str = "test_it") -> pytest.Item:
    """The parts of a pytest item that the gate reads; an ordinary test without a scenario."""
    function: Callable[[], None] = lambda: None  # noqa: E731 - it gets an attribute below
    if scenario is not None:
        function.scenario = scenario  # type: ignore[attr-defined]  # as the decorator does
    return cast("pytest.Item", SimpleNamespace(function=function, path=Path("scenarios") / module, name=name))
