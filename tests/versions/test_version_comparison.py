"""A whole comparison on simulated versions: its findings, in which release, and its open questions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import Version

from conformance.findings import Finding
from conformance.gate.records import ScenarioRecord
from conformance.problems import EnvironmentProblem
from conformance.upstream.declarations import Declarations
from conformance.upstream.manifest import RawScript
from conformance.versions.changes import VersionDiff
from conformance.versions.comparison import Comparison
from conformance.versions.pair_runner import PairResult, PairRunner
from tests.report.sample_runs import finding, scenario

RELEASES = ["5.62.0", "5.70.0", "5.81.5", "6.0.0", "6.0.1", "6.7.0"]
PARKED, BESIDE = "pause/pausing_parks_the_waiting_jobs", "pause/pausing_leaves_the_waiting_jobs"
FIELD = "add/a_field"
ROW = "pause.moves-wait"


def differs(requirement: str, where: str) -> Finding:
    return finding(requirement, where, "old", "new", source="snapshot", kind="wrong-value")


@dataclass(frozen=True, kw_only=True)
class PaperPlayer(PairRunner):
    """Pauses differ since 6.0.0, and one field since 5.70.0. `broken`: versions that cannot be run."""

    broken: Collection[str] = ()
    asked: list[tuple[str, str]] = field(default_factory=list)

    def run(self, oracle: str, client: str, select: Collection[str] = (), *, again: bool = False) -> PairResult:
        assert not again or client in self.broken  # nothing else is left open
        self.asked.append((oracle, client))
        if client in self.broken:
            raise EnvironmentProblem(f"{client} is broken")
        names = [*([BESIDE] if Version(oracle) >= Version("6.0.0") else [PARKED]), FIELD]
        records = [self._record(name, oracle, client) for name in names if ROW in select or name in select]
        new = frozenset({"queue.add", "job.new"})
        old = frozenset({"queue.add", "job.old"})
        return PairResult(
            scenarios=tuple(records),
            oracle_ops=new if oracle == "6.7.0" else old,
            client_ops=new if client == "6.7.0" else old,
        )

    def _record(self, name: str, oracle: str, client: str) -> ScenarioRecord:
        release, row = ("5.70.0", "job.hash.data") if name == FIELD else ("6.0.0", ROW)
        sides = [Version(version) >= Version(release) for version in (oracle, client)]
        found = [] if sides[0] == sides[1] else [differs(row, "job.data")]
        return scenario(name, "fail" if found else "pass", row, findings=found)


def scripts(version: str) -> Mapping[str, RawScript]:
    newer = Version(version) >= Version("6.0.1")
    return {"called": RawScript(keys=2 if newer else 1, text=""), "same": RawScript(keys=1, text=version)}


def types(version: str) -> Declarations:
    new = {"JobsOptions.new": "boolean"} if version == "6.7.0" else {"JobsOptions.old": "boolean"}
    return Declarations(options=new, methods={"Queue.add"})


def compared(*, releases: Collection[str] = (), broken: Collection[str] = ()) -> tuple[VersionDiff, PaperPlayer]:
    runner = PaperPlayer(runs=Path(), announce=lambda _text: None, broken=broken)
    comparison = Comparison(
        runner=runner,
        scripts=scripts,
        types=types,
        announce=lambda _text: None,
        older="5.62.0",
        newer="6.7.0",
        select=[ROW],
        releases=list(releases),
    )
    return comparison.compare(), runner


def test_both_directions_are_run_and_become_changes() -> None:
    found, runner = compared()
    assert runner.asked == [("5.62.0", "6.7.0"), ("6.7.0", "5.62.0")]
    assert [(change.requirement, change.states, change.before, change.after) for change in found.changes] == [
        (ROW, "older", "old", "new"),
        ("job.hash.data", "older", "old", "new"),
        (ROW, "newer", "new", "old"),
    ]
    assert [script.name for script in found.scripts] == ["called"]
    assert found.scripts_with_other_text == ["same"]
    assert (found.methods_gone, found.methods_new) == (["job.old"], ["job.new"])
    assert (found.declared_gone, found.declared_new) == (["JobsOptions.old"], ["JobsOptions.new"])
    assert {change.release for change in found.changes} == {""}


def test_each_change_gets_its_release_and_the_one_before() -> None:
    found, _ = compared(releases=RELEASES)
    assert [(change.last_before, change.release) for change in found.changes] == [
        ("5.81.5", "6.0.0"),
        ("5.62.0", "5.70.0"),
        ("5.81.5", "6.0.0"),
    ]
    assert [(script.last_before, script.release) for script in found.scripts] == [("6.0.0", "6.0.1")]


def test_a_release_that_cannot_be_run_leaves_the_question_open() -> None:
    found, _ = compared(releases=RELEASES, broken={"6.0.0"})
    pause = [change for change in found.changes if change.requirement == ROW]
    assert [(change.release, change.unknown) for change in pause] == [("", "with 6.0.0 it is not clear")] * 2
