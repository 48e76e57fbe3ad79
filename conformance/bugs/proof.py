"""The proof that the kit catches a bug: its requirement fails with the bug, and passes with the fix.

The bug and the fix are two releases of the client that had it. If they cannot be installed, a mutant with the same
defect and the reference client take their places.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.version import Version

from conformance.bugs.corpus import RELEASES, Bug, load_corpus
from conformance.gate.records import Record, ScenarioRecord, Verdict, worst
from conformance.gate.separate_run import StoredRuns
from conformance.problems import UsageProblem
from conformance.protocol.scripts import BULLMQ_VERSION

CLIENT_OF_PORT = {"node": "node", "python": "python-official"}
"""The clients of the kit of which it can install any release, by port."""

ATTEMPTS = 3
"""Runs until one is conclusive: on a busy machine, deadlines of the kit may expire before a defect shows."""


@dataclass(frozen=True)
class BugProof:
    """The result of the scenarios of the requirement, with the bug and with the fix.

    `scenario`: one that fails with the bug and passes with the fix, empty if there is none; `seen`: its first finding.
    `with_bug`, `with_fix`: the verdicts of the requirement in all scenarios that were run.
    """

    bug: Bug
    scenario: str
    seen: str
    with_bug: Verdict
    with_fix: Verdict

    @property
    def holds(self) -> bool:
        """Whether the kit catches the bug. A requirement that only warns does not count."""
        return bool(self.scenario)


@dataclass(frozen=True)
class Prover:
    """Proves bugs by runs, which are stored until a release, a scenario or the kit changes."""

    runs: StoredRuns

    def prove(self, bug: Bug) -> BugProof:
        """Run the scenarios of the proof with the bug, and, if one fails, with the fix.

        Raises UsageProblem for a bug without a requirement or without a way to prove it, EnvironmentProblem if a run
        does not end, for example because a release cannot be installed.
        """
        if same := load_corpus().get(bug.proof):
            return replace(self.prove(same), bug=bug)
        with_bug, with_fix = clients_of(bug)
        damaged = self._judged(bug, f"{bug.id} with the bug", with_bug)
        if all(judged.verdict != "fail" for judged in damaged.values()):
            # Without a failure that could be gone, a run with the fix shows nothing.
            return BugProof(bug, "", _first_seen(damaged), _verdict(damaged), "unchecked")
        fixed = self._judged(bug, f"{bug.id} with the fix", with_fix)
        # By scenario, because an older release may break the requirement elsewhere as well.
        shows = next((name for name in damaged if _shows(damaged[name], fixed.get(name))), "")
        seen = damaged[shows].seen if shows else _first_seen(damaged)
        return BugProof(bug, shows, seen, _verdict(damaged), _verdict(fixed))

    def _judged(self, bug: Bug, title: str, client: Sequence[str]) -> dict[str, JudgedScenario]:
        words = ["--no-known", "--format", "json", "--tier", "full", "--oracle", oracle_of(bug)]
        words += ["--redis", bug.redis] if bug.redis else []
        words += ["--select", bug.select or bug.requirement, *client]
        for attempt in range(ATTEMPTS):
            judged = judged_scenarios(bug.requirement, self.runs.records(title, words, again=attempt > 0))
            verdicts = {each.verdict for each in judged.values()}
            if "fail" in verdicts or "inconclusive" not in verdicts:
                break
        return judged


@dataclass(frozen=True)
class JudgedScenario:
    """The verdict of one requirement in one scenario, and the first finding against it (empty if there is none)."""

    verdict: Verdict
    seen: str


def judged_scenarios(requirement: str, records: Sequence[Record]) -> dict[str, JudgedScenario]:
    """Return what each scenario of a run shows about a requirement, by the id of the scenario."""
    scenarios = [record for record in records if isinstance(record, ScenarioRecord)]
    return {
        scenario.id: JudgedScenario(
            scenario.requirements[requirement],
            next((finding.message for finding in scenario.findings if finding.requirement == requirement), ""),
        )
        for scenario in scenarios
        if requirement in scenario.requirements
    }


def _shows(with_bug: JudgedScenario, with_fix: JudgedScenario | None) -> bool:
    return with_fix is not None and (with_bug.verdict, with_fix.verdict) == ("fail", "pass")


def _verdict(scenarios: Mapping[str, JudgedScenario]) -> Verdict:
    """The worst verdict; `unsupported` if no scenario was run, perhaps because the release lacks its operations."""
    return worst(judged.verdict for judged in scenarios.values()) if scenarios else "unsupported"


def _first_seen(scenarios: Mapping[str, JudgedScenario]) -> str:
    return next((judged.seen for judged in scenarios.values() if judged.seen), "")


def clients_of(bug: Bug) -> tuple[list[str], list[str]]:
    """Return the words of a run for the client with the bug, and for the one with the fix.

    Raises UsageProblem if there is no such client.
    """
    if not bug.requirement:
        raise UsageProblem(
            f"bug {bug.id} violates no requirement of the ledger", hint="`bugs list` shows which bugs do"
        )
    if bug.proof not in {"", RELEASES}:
        mutant = ["--", sys.executable, "-m", "conformance.mutants.driver", bug.proof]
        return mutant, ["--client", "reference"]
    client = CLIENT_OF_PORT.get(bug.port)
    if client is None or not (bug.before and bug.fixed):
        raise UsageProblem(
            f"bug {bug.id} cannot be proven by releases: the kit installs none of {bug.port}"
            if client is None
            else f"bug {bug.id} cannot be proven by releases: there is none with a fix",
            hint="plant the same defect as a mutant, and name it as `proof`",
        )
    return ["--client", f"{client}@{bug.before}"], ["--client", f"{client}@{bug.fixed}"]


def oracle_of(bug: Bug) -> str:
    """Return the release of Node.js BullMQ to compare with: one that does not have the bug itself."""
    if bug.oracle:
        return bug.oracle
    by_releases = bug.port == "node" and bug.proof in {"", RELEASES}
    return bug.fixed if by_releases and Version(bug.fixed) > Version(BULLMQ_VERSION) else BULLMQ_VERSION
