"""An intermittent failure of a client is retried; one that occurs every time, or too often, is a failure."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from conformance.environment.starvation import StarvationRecord, StarvationWatch
from conformance.gate.flaky_failures import MOST_REPEATS, FlakyFailure, retry_flaky, too_often
from conformance.gate.known_failures import KnownFailure, excuse, load_known_file
from conformance.gate.options import RunConfig
from conformance.gate.plugin import ScenarioRunner
from conformance.gate.ratchet import entry_text, rewritten
from conformance.gate.records import ScenarioRecord, StepRecord, decode
from conformance.gate.repetition import Repeater
from conformance.gate.stop_rule import StopRule
from conformance.problems import UsageProblem

from .gate_builders import finding, item, record
from .miniature_drivers import BenchOf
from .small_scenarios import COUNTS, MiniatureDrivers

LOOP = FlakyFailure(operation="worker.*", reason="its loop fetches one more job", at_most=2, where="membership.*")
CLAIM = StepRecord(by="both", do="worker.getNextJob")
LOST = finding(where="membership.state", message="the job is active")
PASSES = record({"a.must": "pass"})
FAILS = msgspec.structs.replace(record({"a.must": "fail"}, LOST, verdict="fail"), steps=[CLAIM])


class Attempts:
    """A scenario that ends with these results, attempt by attempt."""

    def __init__(self, *attempts: ScenarioRecord) -> None:
        self._attempts = iter(attempts)
        self.made = 0

    def _run(self) -> ScenarioRecord:
        self.made += 1
        return next(self._attempts)

    def __call__(self, *entries: FlakyFailure, may_repeat: bool = True) -> ScenarioRecord:
        return retry_flaky(self._run(), self._run, entries, lambda: may_repeat)


def test_a_passing_scenario_is_run_once() -> None:
    attempts = Attempts(PASSES)
    assert attempts(LOOP) == PASSES
    assert attempts.made == 1


def test_a_scenario_that_passes_when_repeated_passes_and_the_record_says_why() -> None:
    attempts = Attempts(FAILS, PASSES)
    ended = attempts(LOOP)
    assert (ended.verdict, ended.unsteady) == ("pass", LOOP.reason)
    assert ended.repeated == ["its loop fetches one more job: fail, the job is active (expected one, actual another)"]
    assert attempts.made == 2


def test_a_scenario_that_fails_every_time_fails() -> None:
    attempts = Attempts(*[FAILS] * (MOST_REPEATS + 1))
    assert attempts(LOOP) == FAILS
    assert attempts.made == MOST_REPEATS + 1


def test_without_an_entry_or_time_nothing_is_repeated() -> None:
    assert Attempts(FAILS)() == FAILS
    assert Attempts(FAILS)(LOOP, may_repeat=False) == FAILS


def _with(**changes: object) -> ScenarioRecord:
    return msgspec.structs.replace(FAILS, **changes)


@pytest.mark.parametrize(
    "failed",
    [
        pytest.param(_with(steps=[StepRecord(by="both", do="queue.add")]), id="without the operation"),
        pytest.param(_with(steps=[StepRecord(by="oracle", do="worker.getNextJob")]), id="the oracle's operation"),
        pytest.param(_with(findings=[finding(where="job.name")]), id="elsewhere"),
        pytest.param(_with(findings=[LOST, finding(where="job.name")]), id="elsewhere as well"),
        pytest.param(_with(findings=[], reason="the oracle broke", verdict="error"), id="an error of the kit"),
    ],
)
def test_a_failure_that_the_entry_does_not_explain_is_not_repeated(failed: ScenarioRecord) -> None:
    assert Attempts(failed)(LOOP) == failed


def test_another_failure_in_the_repetition_is_not_forgiven() -> None:
    another = _with(findings=[finding(where="job.name")])
    assert Attempts(FAILS, another)(LOOP) == FAILS


def test_a_known_failure_next_to_it_stays_known() -> None:
    known = KnownFailure(requirement="a.name", reason="old", where="job.*")
    found = [LOST, finding("a.name")]
    both = _with(
        requirements={"a.must": "fail", "a.name": "fail"}, findings=found, known=excuse(found, [known], "a/one")
    )
    only_known = msgspec.structs.replace(both, verdict="pass", requirements={"a.must": "pass", "a.name": "fail"})
    assert Attempts(both, only_known)(LOOP).unsteady == LOOP.reason


def _held(name: str) -> ScenarioRecord:
    return msgspec.structs.replace(record({"a.must": "pass"}, name=name), unsteady=LOOP.reason)


def test_more_scenarios_than_the_entry_allows_are_a_problem_of_the_run() -> None:
    few = [_held("a/one"), _held("a/two"), PASSES]
    assert too_often([LOOP], few) == []
    [said] = too_often([LOOP], [*few, _held("a/three")])
    assert said.startswith("3 scenarios failed at first and held when they were repeated (a/one, a/two, a/three)")
    assert said.endswith("allows 2")


# In a run.

COUNTS_WRONGLY = FlakyFailure(operation="queue.*", reason="it counts wrongly at first", at_most=2)


class WrongCounter:
    """Returns a wrong `queue.count` that many times."""

    def __init__(self, times: int) -> None:
        self._left = times

    async def __call__(self, _handle: str | None, _args: dict[str, Any]) -> dict[str, Any]:
        self._left -= 1
        return {"count": 7 if self._left >= 0 else 1}


@pytest.fixture
def run_record(bench_of: BenchOf, mini: MiniatureDrivers) -> Callable[..., ScenarioRecord]:
    """Run a scenario as a run does, with a client that miscounts `times` times; returns its record."""

    def run_scenario(times: int, *unsteady: FlakyFailure) -> ScenarioRecord:
        bench = bench_of(mini(), mini(ops={"queue.count": WrongCounter(times)}))
        repeater = Repeater(cast("StarvationWatch", CalmMachine()))
        runner = ScenarioRunner(bench, repeater, RunConfig(), (), StopRule(), unsteady=unsteady)
        node = cast("Any", item(COUNTS, module="test_getters.py"))
        node.user_properties = []
        with suppress(pytest.fail.Exception, pytest.skip.Exception):
            runner.run(COUNTS, cast("pytest.FixtureRequest", SimpleNamespace(node=node)), {})
        if runner.is_in_doubt:
            [repeated] = runner.repeated(time.time() + 60)
            return repeated
        [(_, line)] = node.user_properties
        left = decode(line.encode())
        assert isinstance(left, ScenarioRecord)
        return left

    return run_scenario


class CalmMachine:
    """Replaces the watch: no process is starved."""

    def start(self) -> None:
        """Nothing is measured."""

    def seen(self) -> StarvationRecord:
        return StarvationRecord({})


def test_a_listed_flaky_failure_that_happens_once_is_forgiven(
    run_record: Callable[..., ScenarioRecord],
) -> None:
    assert (run_record(1).verdict, run_record(1).unsteady) == ("fail", "")
    forgiven = run_record(1, COUNTS_WRONGLY)
    assert (forgiven.verdict, forgiven.unsteady, len(forgiven.repeated)) == ("pass", COUNTS_WRONGLY.reason, 1)


def test_a_client_that_does_wrong_every_time_fails(run_record: Callable[..., ScenarioRecord]) -> None:
    failed = run_record(1000, COUNTS_WRONGLY)
    assert (failed.verdict, failed.unsteady) == ("fail", "")


# In the file.

TEXT = """# What we know.
[[known]]
requirement = "a.must"
reason = "old"

[[unsteady]]
operation = "worker.*"  # any claim
reason = "its loop fetches one more job"
at_most = 2
where = "membership.*"

[[known]]
requirement = "a.name"
reason = "too"
"""
OLD, TOO = (KnownFailure(requirement=name, reason=reason) for name, reason in (("a.must", "old"), ("a.name", "too")))


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], tuple[FlakyFailure, ...]]:
    def written(text: str) -> tuple[FlakyFailure, ...]:
        (tmp_path / "known.toml").write_text(text, "utf-8")
        return load_known_file(tmp_path / "known.toml", ("a.must", "a.name")).unsteady

    return written


def test_it_is_listed_with_the_known_failures(read: Callable[[str], tuple[FlakyFailure, ...]]) -> None:
    assert read(TEXT) == (LOOP,)
    assert read(entry_text(LOOP)) == (LOOP,)


@pytest.mark.parametrize("line", ["operation", "reason", "at_most"])
def test_operation_reason_and_number_are_required(read: Callable[[str], tuple[FlakyFailure, ...]], line: str) -> None:
    whole = entry_text(LOOP).splitlines(keepends=True)
    with pytest.raises(UsageProblem, match=line):
        read("".join(text for text in whole if not text.startswith(line)))
    with pytest.raises(UsageProblem, match="has no reason"):
        read(entry_text(msgspec.structs.replace(LOOP, reason=" ")))


def test_a_rewritten_list_keeps_it() -> None:
    assert rewritten(TEXT, [OLD, TOO], []) == TEXT
    assert "any claim" in rewritten(TEXT, [TOO], [])
    assert "any claim" in rewritten(TEXT, [], [OLD])
    in_one_line = 'known = [{requirement = "a.must", reason = "old"}]\n' + entry_text(LOOP)
    assert entry_text(LOOP) in rewritten(in_one_line, [OLD], [TOO])
