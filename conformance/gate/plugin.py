"""The pytest side of a run: prepares it, runs each scenario on a bench, and sends the records to listeners.

With xdist the controller prepares everything once and collects the records; the workers only run scenarios.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest

from conformance.driver.messages import Ready
from conformance.environment.clients import Launch
from conformance.environment.prepare import Announce, Environment, prepare
from conformance.environment.starvation import StarvationWatch
from conformance.gate.bench import Bench, BenchPlan
from conformance.gate.conclusion import Conclusion, RunEvidence, draw_conclusion, percentage
from conformance.gate.flaky_failures import FlakyFailure, explanation, retry_flaky, too_often
from conformance.gate.judge import check_names
from conformance.gate.known_failures import (
    KnownFailure,
    judged_entries,
    load_known_file,
    stale_entries,
    unexplained,
    unmatched_entries,
    without_parameters,
)
from conformance.gate.last_phase import LastPhase
from conformance.gate.options import RunConfig, recorded
from conformance.gate.record_bounds import RecordedEvidence, readable
from conformance.gate.records import (
    FORMAT,
    KIT_VERSION,
    Party,
    Record,
    RedisInfo,
    RunFooter,
    RunHeader,
    ScenarioRecord,
    decode,
    encode,
    redacted,
)
from conformance.gate.repetition import Attempt, AttemptResult, Repeater, Series
from conformance.gate.selection import (
    NEEDS_A_CLUSTER,
    area_of,
    area_of_module,
    check_listed_scenarios,
    check_patterns,
    is_selected,
    left_out,
    may_be_selected,
    patterns_without_effect,
    requirements_not_run,
    running_order,
    scenario_id,
    scenario_of,
    selected_cases,
    whole_runs,
)
from conformance.gate.stop_rule import StopRule
from conformance.gate.trial import run_trial
from conformance.gate.verdicts import conclude, make_record
from conformance.interruption import never_dropped
from conformance.ledger.loader import examined_rows, load_ledger
from conformance.ledger.profiles import declared_names, load_profiles
from conformance.participants.marks import Scenario
from conformance.problems import NothingSelected, Problem, Undecidable, UsageProblem
from conformance.registry import unknown_name

Listener = Callable[[Record], None]
PROPERTY = "bullmq-conformance"
IN_DOUBT = "bullmq-conformance-in-doubt"
"""Properties of a pytest item: its record, or that it is repeated after all others."""
LOGS = "logs"
"""Folder in --out for the stderr of the client's drivers."""
WORKER_INPUT = "bullmq_conformance"
FOLDER_INPUT = "bullmq_conformance_folder"
STOP_RULE_INPUT = "bullmq_conformance_stop_rule"
REPEATED_OUTPUT = "bullmq_conformance_repeated"
NEED_A_CLUSTER = f"{NEEDS_A_CLUSTER} (--redis cluster:3)"


def logs_folder(config: RunConfig) -> str:
    """Return the folder for the stderr of the client's drivers; empty: not kept."""
    return str(Path(config.out, LOGS).resolve()) if config.out else ""


class ScenarioRunner:
    """The fixture `runner` of scenarios: runs and judges them on the bench of this process."""

    def __init__(
        self,
        bench: Bench,
        repeater: Repeater,
        config: RunConfig,
        known: Sequence[KnownFailure],
        stop_rule: StopRule,
        *,
        unsteady: Sequence[FlakyFailure] = (),
    ) -> None:
        self.bench, self.repeater, self.config, self.known = bench, repeater, config, known
        self.stop_rule, self.unsteady = stop_rule, unsteady
        self._in_doubt: list[tuple[Series, Attempt]] = []

    def run(self, scenario: Scenario, request: pytest.FixtureRequest, arguments: dict[str, Any]) -> None:
        """Run a scenario, attach its record to the pytest item, and raise pytest's outcome.

        A scenario in doubt is skipped without a record, and `repeated` returns it after all others. Once the run is
        stopping, scenarios are skipped as well, and count as not run.
        """
        # Checked per scenario, because another process may have failed or used up the budget meanwhile.
        if reason := self.stop_rule.reason:
            pytest.skip(f"not run: {reason}")
        ledger = load_ledger(self.config.oracle_version)

        def attempt() -> AttemptResult:
            result = run_trial(scenario, arguments, self.bench, ledger, rules_off=self.config.no_rule)
            judged = make_record(request.node, scenario, result, config=self.config, known=self.known, ledger=ledger)
            return AttemptResult(record=judged, frozen=result.frozen, doubt=result.doubt)

        series = self.repeater.first(attempt)
        if series.is_open or explanation(series.record, self.unsteady):
            self._in_doubt.append((series, attempt))
            # As a property of the item, because that is what xdist sends to the controller.
            request.node.user_properties.append((IN_DOUBT, scenario_id(request.node)))
            pytest.skip("in doubt: it is repeated after all other scenarios")
        request.node.user_properties.append((PROPERTY, encode(series.record).decode()))
        # Before `conclude`, which raises.
        self._note(series.record)
        conclude(series.record)

    @property
    def is_in_doubt(self) -> bool:
        """Whether scenarios of this process have to be repeated."""
        return bool(self._in_doubt)

    def repeated(self, ends_s: float) -> Iterator[ScenarioRecord]:
        """Repeat the doubtful scenarios until `ends_s` (Unix s), and yield their records; some may not be repeated."""

        def may_repeat() -> bool:
            return time.time() < ends_s and not self.stop_rule.reason

        # The quick ones first: they decide the most in this time.
        for series, attempt in sorted(self._in_doubt, key=lambda doubtful: doubtful[0].spent_ms):
            yield self._settled(series, attempt, may_repeat)

    def _settled(self, series: Series, attempt: Attempt, may_repeat: Callable[[], bool]) -> ScenarioRecord:
        def again() -> ScenarioRecord:
            return self.repeater.settle(self.repeater.first(attempt), attempt, may_repeat)

        # The machine first: a flaky failure counts only after starvation has been excluded as its cause.
        first = self.repeater.settle(series, attempt, may_repeat)
        record = retry_flaky(first, again, self.unsteady, may_repeat)
        self._note(record)
        return record

    def _note(self, record: ScenarioRecord) -> None:
        if record.verdict == "fail":
            self.stop_rule.note_failure()


class GatePlugin:
    """One run. `listeners` get the header, every scenario and the footer; `announce` gets messages about slow steps.

    A program that prepares the run itself calls `use`; otherwise the plugin prepares it once there are scenarios.
    """

    def __init__(self, config: RunConfig, listeners: Sequence[Listener], announce: Announce) -> None:
        self.config = config
        self.listeners = listeners
        self.announce = announce
        # Checked at the start: an invalid option must not cost the time of a set-up.
        check_names(config.no_rule)
        check_demands(config)
        self._client_login = config.client_login
        self._reproduction = config.reproduction_text
        file = load_known_file(config.known_path, load_ledger())
        self.known, self.unsteady = file.known, file.unsteady
        check_listed_scenarios(self.known, config.known_path)
        self.records: list[ScenarioRecord] = []
        self.exit_code: int | None = None
        """The run's exit code; None if it did not finish, or had nothing to do."""
        self.problem: Problem | None = None
        """Why recording the run failed; None if it did not."""
        self._stack = ExitStack()
        # Taken before the set-up, so that --budget includes it.
        self._started_ms = _now_ms()
        self._environment: Environment | None = None
        # Whether pytest was called by a user, whose own selection (`-k`) narrows the run, and not by `run`.
        self._is_typed = True
        self._header: RunHeader | None = None
        self._planned = 0
        self._evidence = RecordedEvidence()
        self._loss = ""
        self._runner: ScenarioRunner | None = None
        self._bench_open = ExitStack()
        self._postponed = ExitStack()
        self._in_doubt = 0

    def use(self, environment: Environment) -> None:
        """Run on an environment of the caller, who closes it. Raises Undecidable if a profile cannot be decided."""
        insist_on_profiles(self.config, environment)
        self._environment = environment
        self._is_typed = False

    # Collection.

    def pytest_pycollect_makeitem(
        self, collector: pytest.Module | pytest.Class, obj: object
    ) -> list[pytest.Item] | None:
        """Make no items of scenarios that the run does not take, unless pytest prints how many are deselected."""
        scenario = getattr(obj, "scenario", None)
        if not isinstance(scenario, Scenario) or not self._is_quiet(collector.config):
            return None
        name = f"{area_of(collector)}/{scenario.name}"
        return None if may_be_selected(name, scenario, self.config, load_ledger(self.config.oracle_version)) else []

    def _is_quiet(self, config: pytest.Config) -> bool:
        """Whether pytest prints nothing: the caller prepared the run, or this is a worker of xdist."""
        return self._environment is not None or _is_xdist_worker(config)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the selected items, slow scenarios first."""
        ledger = load_ledger(self.config.oracle_version)
        dropped = [item for item in items if not is_selected(item, self.config, ledger)]
        if dropped:
            config.hook.pytest_deselected(items=dropped)
            chosen = set(items) - set(dropped)
            items[:] = [item for item in items if item in chosen]
        # Python's sort is stable: the other scenarios keep their order.
        items.sort(key=running_order)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without xdist: count the scenarios and prepare the run before the first one."""
        # With xdist, the controller collects nothing itself and plans at the first report of a worker.
        if not _is_xdist_worker(session.config) and not session.config.option.collectonly:
            self._plan([scenario_id(item) for item in session.items if scenario_of(item)])

    # xdist, controller side. Optional hooks: xdist is not active in every run.

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send a worker the plan of its bench, the shared folder and the stop rule."""
        node.workerinput[WORKER_INPUT] = self._bench_plan().encode()
        node.workerinput[FOLDER_INPUT] = self._shared_folder
        node.workerinput[STOP_RULE_INPUT] = msgspec.json.encode(self._stop_rule).decode()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Prepare the run at the first report; every worker collects the same scenarios."""
        # Only the first report: every further one would send another header.
        if self._header is None:
            self._plan([name for name in map(scenario_of_node, ids) if name])

    # Running.

    def pytest_configure(self, config: pytest.Config) -> None:
        """Let the fixture `runner` find this run."""
        config.stash[GATE] = self

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep interruptions from being dropped, also in the controller; pytest has installed its own hook by now."""
        # At the start of the session, because pytest installs its own hook between configuring and this.
        stack = ExitStack()
        stack.enter_context(never_dropped())
        session.config.add_cleanup(stack.close)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Run the scenarios of this process, then repeat the doubtful ones, and close the bench."""
        with self._bench_open, self._postponed:
            result = yield
            # Released before `alone` is asked for: the other processes of the run wait for it.
            self._postponed.close()
            if self._runner is not None and self._runner.is_in_doubt:
                self._repeat(self._runner, session.config)
            return result

    def runner(self, config: pytest.Config) -> ScenarioRunner:
        """Return what runs the scenarios of this process; opens its bench at the first call."""
        if self._runner is None:
            self._postponed.enter_context(self._last_phase(config).postponed())
            self._runner = self._bench_open.enter_context(self._opened(config))
        return self._runner

    def _last_phase(self, config: pytest.Config) -> LastPhase:
        # The folder comes from the controller: locks only work between processes that use the same files.
        return LastPhase(Path(getattr(config, "workerinput", {}).get(FOLDER_INPUT) or self._shared_folder))

    @contextmanager
    def _opened(self, config: pytest.Config) -> Iterator[ScenarioRunner]:
        sent = getattr(config, "workerinput", {})
        given, rule = sent.get(WORKER_INPUT), sent.get(STOP_RULE_INPUT)
        with ExitStack() as stack:
            bench = BenchPlan.decode(given).open() if given else self._bench_plan().open(self._prepared().drivers)
            # A callback right after opening: the watch below must be closed before the drivers that it observes.
            stack.callback(bench.close)
            # A separate connection, because the watch pings from its own thread.
            redis = stack.enter_context(bench.server.connect())
            watch = stack.enter_context(StarvationWatch(bench.processes, redis.ping))
            stop_rule = msgspec.json.decode(rule, type=StopRule) if rule else self._stop_rule
            yield ScenarioRunner(bench, Repeater(watch), self.config, self.known, stop_rule, unsteady=self.unsteady)

    def _repeat(self, scenario_runner: ScenarioRunner, config: pytest.Config) -> None:
        with self._last_phase(config).alone() as ends_s:
            for record in scenario_runner.repeated(ends_s):
                if _is_xdist_worker(config):
                    config.workeroutput.setdefault(REPEATED_OUTPUT, []).append(encode(record).decode())  # type: ignore[attr-defined]
                else:
                    self._take(record)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a finished scenario's record to the listeners (in the controller, or in the only process)."""
        # Only the call phase: the report of the teardown has the same properties.
        records = [str(value) for name, value in report.user_properties if name == PROPERTY]
        if report.failed and not records:
            self._note_loss(f"{report.nodeid.rpartition('/')[2]} has no record: {_last_line(report.longreprtext)}")
        if report.when != "call" or self._header is None:
            return
        for value in records:
            self._take(_decoded(value))
        self._in_doubt += any(name == IN_DOUBT for name, _ in report.user_properties)
        if self._in_doubt and len(self.records) + self._in_doubt == self._planned:
            self.announce(f"{self._in_doubt} scenarios are in doubt and are repeated one by one")

    def _take(self, record: ScenarioRecord) -> None:
        record = self._evidence.thinned(record)
        self.records.append(record)
        self._send(record)

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note why pytest breaks: the reports of this run then say it."""
        self._note_loss(f"pytest broke: {_last_line(excinfo.exconly())}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        """Take what a process of the run has repeated, or note why it ended early."""
        if error:
            self._note_loss(f"the process {node.gateway.id} of the run broke: {_last_line(str(error))}")
            return
        for value in node.workeroutput.get(REPEATED_OUTPUT, ()):
            self._take(_decoded(value))

    def _note_loss(self, reason: str) -> None:
        """Keep the first reason for which a scenario has no record; later ones are usually its consequences."""
        self._loss = self._loss or reason

    # Last, so that pytest and xdist have delivered all reports before the footer is written.
    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the footer, set pytest's exit code, and close the environment."""
        try:
            # An interrupted run gets no footer, and every report then says that it is incomplete.
            if self._header is not None and exitstatus != pytest.ExitCode.INTERRUPTED and self.problem is None:
                self._finish(session)
        finally:
            self._stack.close()

    def _finish(self, session: pytest.Session) -> None:
        left = self._planned - len(self.records)
        judged = judged_entries(self.known, self.records, whole_runs(self.config))
        verdicts = [record.verdict for record in self.records]
        footer = RunFooter(
            finished_ms=_now_ms(),
            # The conclusion needs a footer to be drawn from, so the exit code is filled in afterwards.
            exit_code=0,
            verdicts={verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))},
            stale=stale_entries(judged, self.records),
            problems=unmatched_entries(judged, self.records) + too_often(self.unsteady, self.records),
            unanswered=sorted({op for record in self.records for op in record.unanswered}),
            startup_ms=dict(self._environment.startup_ms) if self._environment else {},
            stopped=self._stop_rule.reason if left else "",
            broke=self._why_broken(session) if left and not self._stop_rule.reason else "",
        )
        self.exit_code = self._concluded(footer).exit_code
        # Other exit codes, such as an internal error of pytest, are more severe and stay.
        if self.exit_code and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            session.exitstatus = self.exit_code
        self._send(msgspec.structs.replace(footer, exit_code=self.exit_code))

    def _why_broken(self, session: pytest.Session) -> str:
        unexplained = f"pytest ended with {session.exitstatus!s} and no reason"
        return self._loss or str(session.shouldstop or session.shouldfail or unexplained)

    def _concluded(self, footer: RunFooter) -> Conclusion:
        assert self._header is not None
        levels = {name: row.level for name, row in examined_rows(self.config.oracle_version).items()}
        return draw_conclusion(
            RunEvidence(
                header=self._header, scenarios=self.records, footer=footer, levels=levels, profiles=load_profiles()
            )
        )

    # Setting up.

    def _bench_plan(self) -> BenchPlan:
        return BenchPlan.of(self._prepared(), logs_folder(self.config), self._client_login)

    @cached_property
    def _stop_rule(self) -> StopRule:
        """The stop rule of this run, which workers receive from the controller."""
        folder = Path(self._shared_folder)
        return StopRule.after(
            self.config.budget_ms, started_ms=self._started_ms, fail_fast=self.config.fail_fast, folder=folder
        )

    @cached_property
    def _shared_folder(self) -> str:
        """Folder that the processes of this run share: for its lock, and the marker of a failure."""
        return self._stack.enter_context(TemporaryDirectory(prefix="bullmq-conformance-"))

    def _prepared(self) -> Environment:
        if self._environment is None:
            try:
                environment = self._stack.enter_context(prepare(self.config, self.announce, prove=True))
                insist_on_profiles(self.config, environment)
                self._environment = environment
            except Problem as problem:
                self._stack.close()
                pytest.exit(str(problem), returncode=problem.exit_code)
        assert self._environment is not None
        return self._environment

    def _plan(self, planned: Collection[str]) -> None:
        """Send the header of a run of these scenarios (ids with parameters)."""
        self._planned = len(planned)
        if not planned:
            return
        ledger = load_ledger(self.config.oracle_version)
        by_pytest = selected_cases(self.config, ledger).difference(planned) if self._is_typed else set()
        environment = self._prepared()
        server = environment.server
        self._header = RunHeader(
            format=FORMAT,
            kit=KIT_VERSION,
            run=uuid.uuid4().hex[:12],
            started_ms=_now_ms(),
            seed=self.config.seed,
            tier=self.config.tier,
            command=redacted(self.config.invocation),
            requirement_set=self.config.oracle_version,
            client=party_of(environment.client, environment.handshakes["client"], by_name=not self.config.command),
            oracle=party_of(environment.oracle, environment.handshakes["oracle"], by_name=True),
            redis=RedisInfo(source=server.source, version=server.version, mode=server.mode, settings=server.settings),
            environment={**environment.facts(), **self._not_run(), **self._known_in_use()},
            planned=len(planned),
            options=recorded(self.config),
            not_run=requirements_not_run(self.config, ledger, without=_scenarios(by_pytest) - _scenarios(planned)),
            deselected=len(by_pytest),
            partner=_partner_in(environment),
            reproduction=self._reproduction,
        )
        self._send(self._header)

    def _not_run(self) -> dict[str, str]:
        """Announce scenarios and patterns that this run cannot take, and return them for the header."""
        reasons = reasons_not_run(self.config)
        if not reasons:
            return {}
        self.announce(f"not run: {'; '.join(reasons)}")
        return {"not run": "; ".join(reasons)}

    def _known_in_use(self) -> dict[str, str]:
        """Announce the known.toml in use, which no option may have named, and return it for the header."""
        path = self.config.known_path
        if path is None:
            return {}
        to_do = unexplained(self.known)
        facts = f"{path}: {len(self.known)} entries" + (f", {to_do} without a reason so far" if to_do else "")
        self.announce(f"known failures: {facts}")
        return {"known failures": facts}

    def _send(self, record: Record) -> None:
        """Send a record to the listeners. A listener that fails, for example on a full disk, ends the run."""
        # A scenario's record is readable since it was made.
        record = record if isinstance(record, ScenarioRecord) else readable(record)
        try:
            for listener in self.listeners:
                listener(record)
        except Problem as problem:
            # Kept, so that the session's end does not write a footer after a lost record.
            self.problem = problem
            pytest.exit(str(problem), returncode=problem.exit_code)


GATE = pytest.StashKey[GatePlugin]()


@pytest.fixture(scope="session")
def runner(request: pytest.FixtureRequest) -> ScenarioRunner:
    """Runs every scenario of this process."""
    return request.config.stash[GATE].runner(request.config)


def party_of(launch: Launch, ready: Ready, *, by_name: bool) -> Party:
    """Return the description of a client: how it is started, and its handshake.

    `by_name`: use the name of the kit's own client; otherwise the name in the handshake.
    """
    return Party(
        name=launch.name if by_name else ready.client.name,
        language=ready.client.language,
        version=ready.client.version,
        targets=ready.client.targets,
        command=launch.command,
        capabilities=sorted(ready.capabilities),
        ops=sorted(ready.ops),
        fixed_prefix=ready.fixed_prefix,
        lacks=sorted(ready.lacks),
        packages=ready.client.packages,
        folder=launch.name if by_name else "",
        installed=launch.installed,
    )


def _partner_in(environment: Environment) -> Party | None:
    launch = environment.partner
    return party_of(launch, environment.handshakes["partner"], by_name=launch.named) if launch else None


def check_demands(config: RunConfig) -> None:
    """Raise a Problem for an unknown profile, a pattern that matches nothing, and an invalid percentage."""
    unknown = [name for name in config.profile if name not in load_profiles()]
    if unknown:
        raise unknown_name("profile", unknown[0], load_profiles())
    check_patterns(config.select)
    try:
        percentage(config.min_decided or "0")
    except ValueError as error:
        raise UsageProblem(
            f"invalid percentage {config.min_decided!r} for --min-decided: {error}", hint="examples: 30, 30%"
        ) from error


def insist_on_profiles(config: RunConfig, environment: Environment) -> None:
    """Raise Undecidable if the driver lacks operations of a required profile, or the run has the wrong Redis."""
    ready = environment.handshakes["client"]
    for profile in (load_profiles()[name] for name in config.profile):
        missing = profile.missing(declared_names(ready.ops, ready.capabilities, ready.lacks))
        if missing:
            raise Undecidable(
                f"the driver does not declare the profile {profile.name}: {', '.join(missing)} missing",
                hint="declare them, or require another profile (`bullmq-conformance list --profiles`)",
            )
        if profile.needs and profile.needs != environment.server.mode:
            raise Undecidable(f"the profile {profile.name} cannot be decided on one Redis", hint="--redis cluster:3")


def nothing_selected(config: RunConfig) -> NothingSelected:
    """Return the problem of a selection that matches nothing."""
    chosen = ", ".join(config.select) or f"tier {config.tier}, level {config.level}"
    reasons = reasons_not_run(config)
    if reasons:
        return NothingSelected(f"no scenario of {chosen} can run", hint="; ".join(reasons))
    return NothingSelected(f"no scenario matches {chosen}", hint="`bullmq-conformance list` prints all scenarios")


def reasons_not_run(config: RunConfig) -> list[str]:
    """Return a sentence for the scenarios that need another Redis, and for each pattern that selects nothing."""
    ledger = load_ledger(config.oracle_version)
    names = left_out(config, ledger)
    patterns = patterns_without_effect(config, ledger)
    return [
        *([f"{', '.join(names)} {NEED_A_CLUSTER}"] if names else []),
        *(
            f"--select {pattern}: its scenarios are {why}"
            for pattern, why in patterns.items()
            if why != NEEDS_A_CLUSTER
        ),
    ]


def _decoded(value: str) -> ScenarioRecord:
    record = decode(value.encode())
    assert isinstance(record, ScenarioRecord)
    return record


def _is_xdist_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _last_line(text: str) -> str:
    """Return the last line of a traceback, which names the error."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")


def scenario_of_node(node_id: str) -> str:
    """Return the id of the scenario that a pytest node is; empty for another test."""
    path, _, test = node_id.partition("::")
    folder, _, module = path.replace("\\", "/").rpartition("/")
    if folder.rpartition("/")[2] != "scenarios":
        return ""
    return f"{area_of_module(Path(module).stem)}/{test.removeprefix('test_')}"


def _scenarios(cases: Collection[str]) -> set[str]:
    return {without_parameters(case) for case in cases}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
