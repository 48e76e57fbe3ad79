"""A trial: one scenario run on oracle and client, and the result judged."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from conformance.driver.errors import DriverBroken
from conformance.gate.bench import Bench
from conformance.gate.decidability import can_count_against, is_decided, why_never_decided, why_undecided
from conformance.gate.endings import Endings
from conformance.gate.execution import Execution
from conformance.gate.inspection import Inspection
from conformance.gate.judge import Judge
from conformance.gate.time_limit import TimeLimit
from conformance.gate.trial_result import TrialResult
from conformance.gate.version_change import change_text, shows_change
from conformance.ledger.loader import Ledger
from conformance.ledger.operations import load_operations
from conformance.participants.cancellation import Cancelled
from conformance.participants.marks import Scenario
from conformance.participants.participant import Participant
from conformance.participants.stand_in import PerformedOperations
from conformance.protocol.versions import is_supported

JudgeOf = Callable[..., Judge]

BUSY = "Redis was busy with a script that did not end"


def run_trial(
    scenario: Scenario,
    arguments: Mapping[str, Any],
    bench: Bench,
    ledger: Ledger,
    *,
    rules_off: Sequence[str] = (),
    limit: TimeLimit | None = None,
) -> TrialResult:
    """Run one scenario once and return the result. Never raises because of a client.

    `rules_off`: names of canonical rules that are not applied. `limit`: overrides the scenario's own time limit.

    If two clients share a queue, the oracle does not run the steps alone, so nothing shows that its version does as
    the scenario says. A failure on an unsupported version is therefore repeated with two drivers of the oracle.
    """
    started = time.perf_counter()
    bench.cpu_ms()  # what follows is this scenario's
    judge_of = partial(Judge, scenario, ledger, rules_off=tuple(rules_off), oracle_version=bench.oracle_version)

    def attempt() -> TrialResult:
        result = TrialResult()
        execution = Execution(scenario, dict(arguments), bench, limit or TimeLimit.of(scenario))
        # Cleaning up runs even if the steps raised: the next scenario needs an empty Redis and no open rules.
        scripts = partial(_account_for_scripts, execution, judge_of)
        flood = partial(_account_for_flood, execution, judge_of)
        for part in (partial(_run, execution, judge_of), scripts, execution.clean_up, flood):
            _guarded(part, result)
        if bench.scripts_of_client.ended:
            result.error = ""  # in a Redis of the user nothing can be removed as long as the script runs
        if result.error and bench.scripts_of_client.explains(result.error):
            # The script of another process's scenario: nothing of this one has sent it.
            result = TrialResult(reached_end=False, inconclusive=BUSY, doubt=BUSY)
        return result

    result = attempt()
    doubtful = scenario.style != "differential" and (result.findings or result.error)
    if doubtful and not is_supported(bench.oracle_version):
        # Only the oracle's own drivers take part, so the client causes nothing that breaks now.
        with bench.oracle_in_place_of_the_client():
            rehearsal = attempt()
        if rehearsal.findings or rehearsal.error:
            message = rehearsal.error or rehearsal.findings[0].message
            # The client's findings are dropped: the version breaks the scenario on its own.
            result = TrialResult(reached_end=False, changed=change_text(bench.oracle_version, message))
    result.cpu_ms = bench.cpu_ms()
    result.timings_ms["total"] = (time.perf_counter() - started) * 1000
    return result


def _guarded(part: Callable[[TrialResult], None], result: TrialResult) -> None:
    """Run a part of the trial. An exception becomes the trial's error, unless there already is one."""
    try:
        part(result)
    except DriverBroken as broken:
        # The first error stays: errors while cleaning up are usually its consequences.
        result.error = result.error or f"a driver could not be used: {broken}"
    except Exception as failure:  # noqa: BLE001  (a defect of the kit is reported, and the run goes on)
        result.error = result.error or f"the kit itself broke: {type(failure).__name__}: {failure}"
        result.log += traceback.format_exc().splitlines()


def _run(execution: Execution, judge_of: JudgeOf, result: TrialResult) -> None:
    scenario, client = execution.scenario, execution.bench.client.handshake()
    # Checked before anything runs: a scenario that decides nothing would only cost time.
    obstacle = execution.miscast() or why_never_decided(scenario, client, load_operations().about)
    if obstacle:
        result.reached_end, result.unsupported = False, obstacle
        result.undecided = frozenset(scenario.requirements)
        return
    execution.bench.begin()
    style = _side_by_side if scenario.style == "differential" else _together
    participant = style(execution, judge_of, result)
    _leave_out_undecided(scenario, participant.performed, result)


def _account_for_scripts(execution: Execution, judge_of: JudgeOf, result: TrialResult) -> None:
    """Replace all results that an endless script may have caused by one about the script."""
    scripts, client = execution.bench.scripts_of_client, execution.client
    # Once more: the scenario may have ended together with its script.
    scripts.look_now()
    if client is None:
        return
    # No tap is in front of a private Redis, so nothing keeps a script from it that did not end before.
    unstopped = scripts.known if client.transcript.on_private_redis and result.findings else ""
    if not (scripts.ended or scripts.refused or scripts.hurt or unstopped):
        return
    if not scripts.wait():
        # The reset of a driver would wait for Redis until its deadline.
        execution.kill()
    result.findings, result.reached_end = [], False
    result.error = result.unsupported = result.inconclusive = result.doubt = ""
    if scripts.ended:
        result.findings = [judge_of(client).endless_script(scripts.ended)]
    elif scripts.refused or unstopped:
        result.given_up = scripts.refused or f"{unstopped} of the client did not end before"
    else:
        result.inconclusive = result.doubt = BUSY


def _account_for_flood(execution: Execution, judge_of: JudgeOf, result: TrialResult) -> None:
    """End a flood that the end of the scenario has not ended, and report it."""
    if execution.client is not None and (sent := execution.bench.ends_flood()):
        result.findings.append(judge_of(execution.client).flood(sent))
        result.doubt = ""


def _side_by_side(execution: Execution, judge_of: JudgeOf, result: TrialResult) -> Participant:
    """Oracle and client take the same steps, each on its own prefix, and are compared. Returns the client."""
    bench = execution.bench
    # Frozen only if both can: a running clock on one side would make all times differ.
    frozen = result.frozen = execution.scenario.clock == "frozen" and bench.both_have_clock()
    # Before the threads start: if one of them had to start a driver, the other would run ahead.
    oracle = execution.participant("oracle", bench.names("oracle"), frozen=frozen)
    client = execution.participant("client", bench.names("client"), frozen=frozen)
    judge = judge_of(client, other=oracle)
    endings = Endings(execution, judge, result)
    inspection = Inspection(execution, endings, judge, result)
    on_oracle, on_client = execution.run_apart(oracle, client)
    if bench.scripts_of_client.refused:
        result.reached_end = False
        return client
    failure = on_oracle.failure
    # With emulated workers, a step that even the oracle cannot take needs a manual worker.
    if oracle.used_loop_workers and failure is not None and not isinstance(failure, Cancelled):
        endings.needs_manual_worker(failure)
        return client
    if failure is not None and execution.is_unsupported_oracle and shows_change(failure):
        endings.oracle_differs(failure, on_client.failure)
        inspection.compare(oracle, client, frozen=frozen)
        return client
    # The oracle first: if it did not hold, nothing about the client can be concluded.
    endings.oracle_ended(failure)
    if not result.error:
        endings.client_ended(on_client.failure)
        inspection.compare(oracle, client, frozen=frozen)
    return client


def _together(execution: Execution, judge_of: JudgeOf, result: TrialResult) -> Participant:
    """Client and partner share a prefix; invariants and Node's view are checked. Returns the client."""
    bench = execution.bench
    names = bench.names()
    client = execution.participant("client", names, frozen=False)
    other = execution.participant(bench.second, names, frozen=False)
    judge = judge_of(client, other=other)
    endings = Endings(execution, judge, result)
    failure = execution.run_together(client, other).failure
    if bench.scripts_of_client.refused:
        result.reached_end = False
        return client
    if client.used_loop_workers and failure is not None and (control := execution.control_failure()):
        endings.needs_manual_worker(control)
        return client
    # Only the driver shows who broke: both participants are in the same thread of steps.
    if isinstance(failure, DriverBroken) and bench.driver_of(other.role).is_dead():
        endings.oracle_ended(failure, who=other.role)
    else:
        endings.client_ended(failure)
    Inspection(execution, endings, judge, result).check_shared(client, other)
    return client


def _leave_out_undecided(scenario: Scenario, performed: PerformedOperations, result: TrialResult) -> None:
    """Drop findings and requirements that are about operations of a stand-in, and not of the client."""
    about = load_operations().about
    decided = partial(is_decided, performed=performed, operations_of=about)
    counts = partial(can_count_against, performed=performed, operations_of=about)
    left_out = [finding for finding in result.findings if not counts(finding.requirement)]
    result.findings = [finding for finding in result.findings if counts(finding.requirement)]
    result.log += [f"left out, {why_undecided(performed)}: {finding.message}" for finding in left_out]
    # After an abort, the client might still have done the operation: such a requirement is unchecked.
    shown = decided if result.reached_end else counts
    failing = {finding.requirement for finding in result.findings}
    result.undecided = frozenset(row for row in scenario.requirements if not shown(row)) - failing
    if result.undecided == {*scenario.requirements}:
        result.unsupported = result.unsupported or why_undecided(performed)
