"""Whether a superfluous entry of a list of known failures is noticed, and only such a one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from conformance.findings import Finding
from conformance.gate.known_failures import KnownFailure
from conformance.gate.records import ScenarioRecord, Verdict, encode
from conformance.gate.verdicts import with_excuses
from conformance.ledger.loader import load_ledger
from conformance.report.run_file import Run
from tests.report.sample_runs import finding, footer, header, party, scenario

from . import tightness
from .tightness import Judgement, complaints, doubled_in, judged_with

LEDGER = load_ledger("5.62.0")
LIMIT, SIZE, PAUSED = "add.priority.limit", "add.size-limit", "pause.moves-wait"
WARNS = "job.hash.json-text"
PRODUCES = party(ops=["queue.add", "queue.addBulk"], capabilities=["clock"])


def known(requirement: str, **more: str | bool) -> KnownFailure:
    return msgspec.convert({"requirement": requirement, "reason": "seen by hand", **more}, KnownFailure)


def against(requirement: str, where: str = "answer") -> Finding:
    return finding(requirement, where, "error invalid-argument", "ok", kind="accepted", severity="wrong-behaviour")


def found(name: str, *findings: Finding, **changes: object) -> ScenarioRecord:
    verdicts: dict[str, Verdict] = {finding.requirement: "fail" for finding in findings}
    return msgspec.structs.replace(
        scenario(name, "fail"), requirements=verdicts, about=list(verdicts), findings=list(findings), **changes
    )


def run_of(*scenarios: ScenarioRecord, **options: object) -> Run:
    """A run to its end; `--min-decided`, because no profile is whole in so few scenarios."""
    asked = {"min_decided": "0", **options}
    first_line = header(client=PRODUCES, planned=len(scenarios), options=asked)
    return Run(header=first_line, scenarios=tuple(scenarios), footer=footer())


TWO = run_of(found("add/limit", against(LIMIT)), found("add/size", against(SIZE), against(SIZE, "job.opts")))


def test_a_list_each_of_whose_entries_is_needed_is_tight() -> None:
    tight = [known(LIMIT), known(SIZE)]
    assert judged_with(TWO, tight, LEDGER) == Judgement(0, frozenset())
    assert judged_with(TWO, tight[:1], LEDGER) == Judgement(1, frozenset({SIZE}))
    assert judged_with(TWO, tight[1:], LEDGER) == Judgement(1, frozenset({LIMIT}))
    assert list(complaints([TWO], tight, LEDGER)) == []


def test_a_list_of_a_client_that_leaves_requirements_undecided_can_be_tight() -> None:
    undecided = msgspec.structs.replace(TWO.header, options={})
    run = Run(header=undecided, scenarios=TWO.scenarios, footer=TWO.footer)
    tight = [known(LIMIT), known(SIZE)]
    assert judged_with(run, tight, LEDGER) == Judgement(4, frozenset())
    assert list(complaints([run], tight, LEDGER)) == []
    assert list(complaints([run], [*tight, known(SIZE)], LEDGER)) != []


@pytest.mark.parametrize(
    ("entries", "superfluous"),
    [
        pytest.param([known(LIMIT), known(SIZE), known(SIZE)], [2, 3], id="the same twice"),
        pytest.param([known(LIMIT), known(SIZE), known(SIZE, where="answer")], [3], id="within a wider one"),
        pytest.param([known(LIMIT), known(LIMIT, scenario="add/limit"), known(SIZE)], [1, 2], id="of one scenario"),
        pytest.param([known(LIMIT), known(SIZE, where="answer"), known(SIZE, where="job.*")], [], id="by parts"),
    ],
)
def test_an_entry_whose_findings_another_excuses_is_named(entries: list[KnownFailure], superfluous: list[int]) -> None:
    said = list(complaints([TWO], entries, LEDGER))
    assert [int(sentence.split()[1]) for sentence in said] == superfluous
    assert all("can be removed" in sentence for sentence in said)


def test_an_entry_that_one_of_several_runs_needs_is_needed() -> None:
    core, full = run_of(found("add/limit", against(LIMIT))), TWO
    entries = [known(LIMIT), known(SIZE)]
    assert list(complaints([core, full], entries, LEDGER)) == []
    assert list(complaints([core], entries, LEDGER)) == [f"entry 2 can be removed: {SIZE}"]


def test_an_unseen_race_is_not_a_fault_and_a_seen_one_must_be_needed() -> None:
    entries = [known(LIMIT), known(SIZE), known(PAUSED, sometimes=True)]
    assert list(complaints([TWO], entries, LEDGER)) == []
    met_twice = [known(LIMIT), known(SIZE), known(SIZE, where="answer", sometimes=True)]
    assert list(complaints([TWO], met_twice, LEDGER)) == [f"entry 3 can be removed: {SIZE} (where 'answer')"]


def test_a_warning_needs_no_entry() -> None:
    warned = found("add/options", against(WARNS, "job.opts"))
    assert LEDGER.row(WARNS).level == "SHOULD"
    entries = [known(LIMIT), known(SIZE), known(WARNS)]
    said = list(complaints([run_of(*TWO.scenarios, warned)], entries, LEDGER))
    assert said == [f"entry 3 can be removed: {WARNS}"]


def test_a_list_that_does_not_hold_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    stale = found("pause/one", against(LIMIT), against(SIZE))
    passed = msgspec.structs.replace(stale, requirements={**stale.requirements, PAUSED: "pass"})
    module = sys.modules[judged_with.__module__]
    monkeypatch.setattr(module, "whole_runs", lambda _config: lambda _tier: {passed.id})
    entries = [known(LIMIT), known(SIZE), known(PAUSED)]
    assert next(complaints([run_of(passed)], entries, LEDGER)) == "with the whole list, run sample ends with 1"


def test_a_run_that_fails_anyway_does_not_make_every_entry_needed() -> None:
    entries = [known(LIMIT), known(LIMIT, where="answer")]
    assert list(complaints([TWO], entries, LEDGER)) == [
        f"with the whole list, run sample ends with 1: {SIZE} not excused",
        f"entry 1 can be removed: {LIMIT}",
        f"entry 2 can be removed: {LIMIT} (where 'answer')",
    ]


def test_of_a_part_only_what_it_shows_is_judged() -> None:
    part = run_of(found("add/limit", against(LIMIT)), select=["add/limit"])
    tight, doubled = [known(LIMIT), known(SIZE)], known(LIMIT, scenario="add/limit")
    assert doubled_in(part, tight, LEDGER) == []
    assert doubled_in(part, [*tight, doubled], LEDGER) == [known(LIMIT), doubled]


def test_a_failure_behind_a_known_one_counts_as_soon_as_the_entry_is_gone() -> None:
    """As in the run: steps that were not reached are excused by the failure that ended the scenario, nothing else."""
    stopped = found("add/limit", against(LIMIT))
    cut = msgspec.structs.replace(stopped, requirements={**stopped.requirements, SIZE: "unchecked"})
    excused = with_excuses(cut, [known(LIMIT)], LEDGER, reached_end=False)
    assert excused.known == {LIMIT: "seen by hand", SIZE: "not reached, because of a known failure before it"}
    run = run_of(excused)
    assert judged_with(run, [known(LIMIT)], LEDGER).exit_code == 0
    assert judged_with(run, [], LEDGER).exit_code == 1


# As a command.


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    def judged(run: Run, text: str) -> int:
        (tmp_path / "run.jsonl").write_bytes(
            b"".join(encode(record) for record in (run.header, *run.scenarios, run.footer) if record)
        )
        (tmp_path / "known.toml").write_text(text, "utf-8")
        monkeypatch.setattr(sys, "argv", ["tightness", str(tmp_path / "known.toml"), str(tmp_path)])
        return tightness.main()

    return judged


ENTRY = '[[known]]\nrequirement = "{}"\nreason = "seen by hand"\n'


def test_the_command_ends_with_0_for_a_tight_list_and_with_1_for_another(
    judge: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert judge(TWO, ENTRY.format(LIMIT) + ENTRY.format(SIZE)) == 0
    assert "2 entries, tight" in capsys.readouterr().out
    assert judge(TWO, ENTRY.format(LIMIT) + ENTRY.format(SIZE) * 2) == 1
    assert f"entry 3 can be removed: {SIZE}\n" in capsys.readouterr().out


UNSTEADY = '[[unsteady]]\noperation = "worker.*"\nreason = "now and then"\nat_most = 2\n'


def test_an_unsteady_entry_that_was_not_met_is_named_and_allowed(
    judge: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    text = ENTRY.format(LIMIT) + ENTRY.format(SIZE) + UNSTEADY
    assert judge(TWO, text) == 0
    assert "not seen in these runs, which is allowed: worker.*, now and then" in capsys.readouterr().out
    held = msgspec.structs.replace(scenario("add/one", "pass"), unsteady="now and then")
    assert judge(run_of(*TWO.scenarios, held), text) == 0
    assert "not met" not in capsys.readouterr().out


def test_a_run_that_was_cut_shows_nothing(judge: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    cut = Run(header=TWO.header, scenarios=TWO.scenarios, footer=None)
    with pytest.raises(SystemExit) as ended:
        judge(cut, ENTRY.format(LIMIT))
    assert ended.value.code == 2
    assert "it has no footer" in capsys.readouterr().err
