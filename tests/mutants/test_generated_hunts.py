"""Generated mutants meet cases: one is noticed, a harmless one is not, one that hangs is ended; what is kept."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from conformance.environment.clients import find_toolchain
from conformance.environment.drivers import RestartableDriver
from conformance.findings import Finding
from conformance.mutants.generated import case_runner, hunt
from conformance.mutants.generated.case_runner import CaseRun, CaseRunner, CaseRunnerSetting
from conformance.mutants.generated.catalogue import REFERENCE, Catalogue
from conformance.mutants.generated.change import Edit, GeneratedMutant, Place
from conformance.mutants.generated.command import quick_cases
from conformance.mutants.generated.driver import UNCHANGED, launch_of
from conformance.mutants.generated.hunt import HuntedCase, HuntedMutant, Hunter, Likelihood, stems, telling
from conformance.mutants.generated.judgements import Judgement, judgement_of
from conformance.mutants.generated.outcome import JudgedMutant, SweepOutcome
from conformance.mutants.generated.page import kill_matrix_page
from conformance.mutants.generated.rates import KillRate
from conformance.mutants.generated.reach import CaseReach, case_names, reaching
from conformance.mutants.generated.record import KillMatrixRecord, read_record, write_record
from conformance.mutants.generated.recording import Recorder
from conformance.mutants.generated.store import Store, fingerprint
from conformance.mutants.generated.sweep import Sweep
from conformance.mutants.matrix import ScenarioCase, all_cases
from conformance.reference_impl.scripts.runner import ScriptTexts

pytestmark = pytest.mark.long(9)

_ATTEMPTS = 5
PLAIN, LIFO = "add/a_plain_job_enters_wait_at_the_left", "add/a_lifo_job_enters_wait_at_the_right"


@pytest.fixture(scope="module")
def catalogue(scripts: ScriptTexts) -> Catalogue:
    return Catalogue.of({name: script.text for name, script in scripts.items()})


@pytest.fixture(scope="module")
def cases() -> dict[str, ScenarioCase]:
    return case_names(all_cases())


@pytest.fixture(scope="module")
def opened_runner(catalogue: Catalogue) -> Iterator[CaseRunner]:
    texts = {name: text.decode() for name, text in catalogue.scripts.items()}
    with CaseRunner(CaseRunnerSetting(oracle=find_toolchain("", print).oracle, scripts=texts)) as found:
        yield found


@pytest.fixture(scope="module")
def hunter(
    opened_runner: CaseRunner, cases: dict[str, ScenarioCase], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hunter]:
    found = Hunter(opened_runner, cases, lambda: False, str(tmp_path_factory.mktemp("hunts")))
    yield found
    found.close()


@pytest.fixture(scope="module")
def recorder(opened_runner: CaseRunner) -> Iterator[Recorder]:
    found = Recorder(opened_runner)
    yield found
    found.close()


def _hunt(hunter: Hunter, mutant: GeneratedMutant, names: list[str]) -> tuple[list[HuntedCase], str, list[str]]:
    """Hunt a mutant, again where the machine was too busy to judge."""
    for _ in range(_ATTEMPTS):
        said, broken, problems = hunter.hunt(mutant, names)
        if not any("machine" in problem for problem in problems):
            break
    return said, broken, problems


def _in_lua(catalogue: Catalogue, script: str, function: str, operator: str) -> GeneratedMutant:
    return next(
        mutant
        for mutant in catalogue.of_file(f"lua {script}")
        if (mutant.function, mutant.operator) == (function, operator)
    )


def _in_python(file: str, before: str, after: str) -> GeneratedMutant:
    """A change by hand, which no operator makes."""
    text = (REFERENCE / file).read_bytes()
    start = text.index(before.encode())
    return GeneratedMutant(
        "python",
        file,
        "f",
        1,
        "by-hand",
        Edit(start, start + len(before), after),
        (Place(file, 1, 1),),
        f"python/{file}/f",
    )


@pytest.mark.slow
def test_a_change_of_lua_is_noticed_by_the_first_case_that_looks(catalogue: Catalogue, hunter: Hunter) -> None:
    mutant = _in_lua(catalogue, "addStandardJob", "addJobInTargetList", "drop-call")
    said, broken, problems = _hunt(hunter, mutant, [LIFO, PLAIN])
    assert (broken, problems) == ("", [])
    assert [case.case for case in said] == [LIFO]
    assert said[0].requirement


@pytest.mark.slow
def test_a_mutant_is_the_client_but_for_the_change(hunter: Hunter, cases: dict[str, ScenarioCase]) -> None:
    """Also where what the client can do hangs on how it is started."""
    deep = [name for name in cases if name.startswith("edge-json/deep_data")][:2]
    assert _hunt(hunter, UNCHANGED, deep) == ([HuntedCase(name, arrived=False) for name in deep], "", [])


@pytest.mark.slow
def test_a_scenario_that_the_healthy_client_fails_too_notices_nothing(
    hunter: Hunter, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = _in_lua(catalogue, "addStandardJob", "addJobInTargetList", "drop-call")
    monkeypatch.setattr(hunter, "_healthy", RestartableDriver(launch_of(broken), 0))
    monkeypatch.setattr(hunter, "_fair", set())
    said, _, problems = _hunt(hunter, broken, [LIFO])
    hunter.close()
    assert said == []
    assert "the healthy client does not pass" in problems[0]


@pytest.mark.slow
def test_a_change_that_changes_nothing_is_not_noticed(hunter: Hunter) -> None:
    harmless = _in_python("queue.py", "from __future__", "# nothing\nfrom __future__")
    assert _hunt(hunter, harmless, [PLAIN, LIFO]) == ([HuntedCase(PLAIN), HuntedCase(LIFO)], "", [])


def _noticed(requirement: str) -> CaseRun:
    finding = Finding(
        requirement=requirement,
        source="assertion",
        kind="wrong-value",
        severity="wrong-behaviour",
        where="answer",
        key="",
        expected="1",
        actual="2",
        message=f"{requirement} is violated",
    )
    return CaseRun(finding, "fail", "", starved=False, took_ms=1.0)


NOTHING = CaseRun(None, "pass", "", starved=False, took_ms=1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("requirements", "runs", "named"),
    [
        (["", "script.keys", "", "pause.answer", "add.lifo"], 4, "pause.answer"),
        (["edge.texts", "add.lifo"], 2, "add.lifo"),
        (["script.keys", "eviction.meta", *[""] * 20], 13, "script.keys"),
        (["", ""], 2, None),
    ],
)
def test_the_rule_that_is_broken_is_looked_for(
    hunter: Hunter, monkeypatch: pytest.MonkeyPatch, requirements: list[str], runs: int, named: str | None
) -> None:
    answers = {str(case): _noticed(row) if row else NOTHING for case, row in enumerate(requirements)}
    monkeypatch.setattr(hunter, "_starts", lambda _client: True)
    monkeypatch.setattr(hunter, "_judged", lambda name, _client: answers[name])
    monkeypatch.setattr(Path, "exists", lambda _file: True)
    said, _, _ = hunter.hunt(MUTANT, list(answers))
    best = telling(said)
    assert (len(said), best and best.requirement) == (runs, named)


@pytest.mark.slow
def test_a_mutant_that_never_reaches_its_change_is_marked(hunter: Hunter, catalogue: Catalogue) -> None:
    elsewhere = _in_python("queue_admin.py", "await self.connection", "await self.connection")
    unwanted = _in_lua(catalogue, "drain", "main", "drop-call")
    for mutant in (elsewhere, unwanted):
        assert _hunt(hunter, mutant, [PLAIN]) == ([HuntedCase(PLAIN, arrived=False)], "", [])


@pytest.mark.slow
def test_a_failure_before_the_changed_code_runs_does_not_count(
    hunter: Hunter, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hunt, "launch_of", lambda mutant, _arrived: launch_of(mutant))
    said, broken, problems = hunter.hunt(
        _in_lua(catalogue, "addStandardJob", "addJobInTargetList", "drop-call"), [LIFO]
    )
    assert (said, broken) == ([], "")
    assert f"{LIFO}: the changed code never ran, but there is" in problems[0]


def test_a_hunt_that_never_reached_its_mutant_says_so(tmp_path: Path) -> None:
    store = Store({"a": "1", "b": "1"}, tmp_path)
    store.keep_sayings(MUTANT, [HuntedCase("a", arrived=False), HuntedCase("b", arrived=False)])
    reaches = {case: _reach(case, s=[4]) for case in ("a", "b")}
    with ProcessPoolExecutor(1) as pool:
        sweep = Sweep(reaches, store, pool, 1, 10, lambda _mutant: b"", Likelihood())
        [never] = sweep.hunt([MUTANT])
        assert (never.fate, never.passed) == ("unreached", 2)
        assert never.message == (
            "never reached: the script was not called in any of the 2 cases that pass it on the healthy client"
        )
        store.keep_sayings(MUTANT, [HuntedCase("b")])
        [survivor] = sweep.hunt([MUTANT])
        assert (survivor.fate, survivor.message) == ("survived", "")


def test_results_of_cases_of_another_tier_do_not_count(tmp_path: Path) -> None:
    """Else a mutant that survives them all would not be run again, without a result."""
    store = Store(dict.fromkeys("abc", "1"), tmp_path)
    store.keep_sayings(MUTANT, [HuntedCase("a"), HuntedCase("b")])
    with ProcessPoolExecutor(1) as pool:
        sweep = Sweep({"c": _reach("c", s=[4])}, store, pool, 1, 2, lambda _mutant: b"", Likelihood())
        vars(sweep)["_known"] = store.sayings()
        assert sweep._order(MUTANT) == ["c"]
        store.keep_sayings(MUTANT, [HuntedCase("c")])
        [survivor] = sweep.hunt([MUTANT])
    assert (survivor.fate, survivor.passed, survivor.reach) == ("survived", 1, 1)


CLOSED_HOLES: dict[str, str] = tomllib.loads((Path(__file__).parent / "closed_holes.toml").read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("key", CLOSED_HOLES)
def test_a_hole_that_was_closed_stays_closed(
    key: str, hunter: Hunter, catalogue: Catalogue, cases: dict[str, ScenarioCase]
) -> None:
    case = CLOSED_HOLES[key]
    assert case in cases
    said, broken, problems = _hunt(hunter, catalogue.find(key), [case])
    assert (broken, problems) == ("", [])
    assert said[0].requirement


@pytest.mark.slow
def test_a_client_that_does_not_start_is_not_a_mutant(hunter: Hunter) -> None:
    said, broken, _ = _hunt(hunter, _in_python("queue.py", "from __future__", "1 / 0\nfrom __future__"), [PLAIN])
    assert said == []
    assert "exit code 1" in broken


@pytest.mark.slow
def test_a_client_that_hangs_is_ended_and_noticed(hunter: Hunter, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not even let go of its event loop."""
    monkeypatch.setattr(case_runner, "LIMIT_S", 5.0)
    head = "    async def add("
    text = (REFERENCE / "queue_producer.py").read_text("utf-8")
    body = text.index('"""', text.index('"""', text.index(head)) + 3) + 3
    hanging = GeneratedMutant(
        "python",
        "queue_producer.py",
        "f",
        1,
        "by-hand",
        Edit(body, body, "\n        __import__('time').sleep(3600)"),
        (),
        "python/queue_producer.py/f",
    )
    said, broken, problems = _hunt(hunter, hanging, [PLAIN])
    assert (broken, problems) == ("", [])
    assert said[0].requirement


@pytest.mark.slow
def test_a_baseline_says_what_a_case_passes(
    recorder: Recorder, cases: dict[str, ScenarioCase], catalogue: Catalogue
) -> None:
    reach = recorder.record(LIFO, cases[LIFO])
    assert reach.healthy
    assert set(reach.passed) & set(catalogue.scripts) == {"addStandardJob"}
    passed = [mutant for mutant in catalogue.of_file("lua addStandardJob") if list(reaching(mutant, [reach]))]
    functions = {mutant.function for mutant in passed}
    assert {"storeJob", "addJobInTargetList"} <= functions
    assert "deduplicateJobWithoutReplace" not in functions
    lines = {(file, line) for file, all_lines in reach.passed.items() for line in all_lines}
    mutants = catalogue.of_file("python queue_producer.py")
    add = next(mutant for mutant in mutants if mutant.function == "QueueProducer.add")
    assert any((place.file, line) in lines for place in add.places for line in range(place.first, place.last + 1))


def test_quick_cases_are_one_of_each_scenario_that_is_not_slow(cases: dict[str, ScenarioCase]) -> None:
    quick = quick_cases(cases)
    assert len({case.id for case in quick.values()}) == len(quick)
    assert {case.id for case in quick.values()} == {case.id for case in cases.values() if not case.scenario.slow}
    assert not any(case.scenario.slow for case in quick.values())


def _reach(case: str, took_ms: float = 10.0, **passed: list[int]) -> CaseReach:
    return CaseReach(case=case, passed=passed, whole=[], took_ms=took_ms, healthy=True)


MUTANT = GeneratedMutant(
    "lua", "s", "main", 1, "negate", Edit(4, 6, "x"), (Place("s", 4, 4),), "lua/pause/main/negate/1"
)


def test_only_cases_that_pass_the_place_are_run() -> None:
    whole = CaseReach(case="own", passed={}, whole=["s"], took_ms=1.0, healthy=True)
    sick = CaseReach(case="sick", passed={"s": [4]}, whole=[], took_ms=1.0, healthy=False)
    found = reaching(MUTANT, [_reach("there", s=[1, 4, 9]), _reach("elsewhere", s=[3, 5]), _reach("no"), whole, sick])
    assert [reach.case for reach in found] == ["there", "own"]


def test_the_likeliest_case_is_run_first_and_every_area_has_its_turn() -> None:
    reaches = [_reach("a/x", 1.0), _reach("a/y", 2.0), _reach("b/z[1]", 3.0), _reach("b/z[2]", 4.0)]
    likelihood, text = Likelihood(), b"if x then return end"
    assert [reach.case for reach in likelihood.ordered(MUTANT, reaches, text)] == ["a/x", "b/z[1]", "a/y", "b/z[2]"]
    kill = likelihood.note(MUTANT, "b/z[2]")
    assert next(reach.case for reach in likelihood.ordered(MUTANT, reaches, text)) == "b/z[2]"
    assert next(reach.case for reach in Likelihood([kill]).ordered(MUTANT, reaches, text)) == "b/z[2]"


def test_a_case_about_the_same_is_run_early() -> None:
    reaches = [_reach("add/x", 1.0), _reach("deduplication/an_id_is_freed", 2.0)]
    ordered = Likelihood().ordered(MUTANT, reaches, b"removeDeduplicationKeyIfNeeded(jobKey)")
    assert [reach.case for reach in ordered] == ["deduplication/an_id_is_freed", "add/x"]
    assert stems("removeDeduplicationKey jobKey") == {"remo", "dedu"}


def test_cases_have_names_of_their_own(cases: dict[str, ScenarioCase]) -> None:
    assert len(cases) == len(all_cases())
    assert all(name.isprintable() and name.encode() for name in cases)


def test_kept_results_hold_until_the_scenario_changes(tmp_path: Path) -> None:
    store = Store({"a": "1", "b": "1"}, tmp_path)
    store.keep_reach(_reach("a"))
    store.keep_sayings(MUTANT, [HuntedCase("a"), HuntedCase("b", "row", "message")])
    store.keep_kill(Likelihood().note(MUTANT, "b"))
    again = Store({"a": "1", "b": "2"}, tmp_path)
    assert again.reaches() == {"a": _reach("a")}
    assert again.sayings() == {fingerprint(MUTANT): {"a": HuntedCase("a")}}
    [kill] = again.kills()
    assert (kill.case, kill.near[-1]) == ("b", "s")


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    store = Store({"a": "1"}, tmp_path)
    store.keep_reach(_reach("a"))
    [file] = tmp_path.iterdir()
    file.write_bytes(file.read_bytes() + b'{"scenario":"1","rea')
    assert store.reaches() == {"a": _reach("a")}


def test_the_interval_is_wilsons() -> None:
    low, high = KillRate(82, 114).interval
    assert (round(KillRate(82, 114).percent), round(low), round(high)) == (72, 63, 79)
    assert KillRate(0, 0).interval == (0.0, 100.0)
    assert KillRate(20, 25).is_below(85)
    assert not KillRate(20, 25).is_below(85, significant=True), "91 % are as likely, of so few"
    assert KillRate(15, 25).is_below(85, significant=True)
    assert str(KillRate(10, 10)) == "10 of 10, 100 % (72 to 100)"


def _judged(fate: hunt.Fate, judgement: Judgement | None = None, *, warns: bool = False) -> JudgedMutant:
    hunted = HuntedMutant(key=MUTANT.key, fate=fate, case="area/case[x|y]", requirement="row", warns=warns)
    return JudgedMutant(hunted, MUTANT.line, judgement)


EQUIVALENT = Judgement(("lua/pause/*",), "equivalent", "no client reads it")
OUTCOME = SweepOutcome(
    7,
    "full",
    3,
    [
        _judged("killed"),
        _judged("killed", warns=True),
        _judged("survived"),
        _judged("unreached"),
        _judged("survived", EQUIVALENT),
        _judged("undecided"),
        _judged("broken"),
    ],
)


def test_unnoticeable_and_undecided_mutants_do_not_count() -> None:
    assert OUTCOME.rate == KillRate(2, 4)
    assert OUTCOME.by_language == {"lua": KillRate(2, 4)}
    assert (len(OUTCOME.holes), len(OUTCOME.judged("equivalent")), OUTCOME.only_warned) == (2, 1, 1)
    assert OUTCOME.misjudged == []


def test_a_judgement_that_a_case_refutes_is_reported() -> None:
    refuted = SweepOutcome(7, "full", 3, [_judged("killed", EQUIVALENT)])
    assert len(refuted.misjudged) == 1
    assert refuted.rate == KillRate(1, 1)


def test_the_page_has_the_numbers_and_names_and_no_text_of_a_script() -> None:
    page = kill_matrix_page([OUTCOME], "bullmq-conformance mutants --seed 7")
    assert "| 7 | full | 7 | 2 of 4, 50 % (15 to 85) | 1 | 1 | 0 | 2 | 1 | 1 |" in page
    assert "| lua | 2 of 4, 50 % (15 to 85) |" in page
    assert "| `lua/pause/main/negate/1` | " in page


def test_the_page_is_written_from_its_record(tmp_path: Path) -> None:
    record = KillMatrixRecord.of([OUTCOME], "bullmq-conformance mutants --seed 7")
    page = tmp_path / "kill-matrix.md"
    write_record(record, page)
    again = read_record(page.with_suffix(".json"))
    assert again == record
    assert again.page == page.read_text("utf-8")
    # There is no judgement of this mutant.
    assert "| 7 | full | 7 | 2 of 5, 40 %" in again.page


def test_a_judgement_may_hold_for_some_lines_only() -> None:
    judgement = Judgement(("lua/pause/*",), "unreachable", "no client gets there", ((1, 3), (9, 9)))
    about = [line for line in range(12) if judgement_of(MUTANT.key, line, judgements=[judgement])]
    assert about == [1, 2, 3, 9]
    assert not judgement_of("lua/drain/main/negate/1", 1, judgements=[judgement])


def test_a_judgement_may_hold_for_some_code_only() -> None:
    judgement = Judgement(("python/queue.py/*",), "unreachable", "no client gets there", code=("await ready()",))
    key = "python/queue.py/Queue.add/drop-call/1"
    assert judgement_of(key, 1, "value = await ready()", [judgement]) == judgement
    assert judgement_of(key, 1, "value = await add()", [judgement]) is None
    text = (REFERENCE / "queue.py").read_bytes()
    assert _in_python("queue.py", "class Queue(", "class Q(").code(text).startswith("class Queue(")
    assert MUTANT.code(b"local a") == ""


def test_the_committed_page_is_that_of_its_record() -> None:
    """`make generate` writes it again, with the judgements of today."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "kill-matrix.md"
    text = page.read_text("utf-8")
    assert read_record(page.with_suffix(".json")).page == text
    assert len(text.splitlines()) <= 80
