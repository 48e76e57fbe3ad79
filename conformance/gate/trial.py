"""Running one scenario: the same steps on oracle and client, then everything that is looked at afterwards."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from conformance.driver.errors import DriverBroken, OperationFailed, OperationIndeterminate, OperationUnsupported
from conformance.findings import Finding
from conformance.gate.bench import Bench
from conformance.gate.evidence import RedisLook, steps_of
from conformance.gate.judge import ORACLE_HEALTH, Judge
from conformance.gate.records import StepRecord
from conformance.ledger.loader import Ledger
from conformance.observe.reader import read_snapshot
from conformance.observe.tables import Snapshot
from conformance.participants.caller import Role
from conformance.participants.clock import RunningClock
from conformance.participants.expect import Mismatch
from conformance.participants.marks import Scenario
from conformance.participants.participant import Participant
from conformance.participants.tap import TapMissing


@dataclass
class TrialResult:
    """What a trial brought to light.

    `error` is set when the kit or the oracle broke: then nothing is said about the client.
    """

    findings: list[Finding] = field(default_factory=list)
    reached_end: bool = True
    error: str = ""
    unsupported: str = ""
    inconclusive: str = ""
    timings_ms: dict[str, float] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    """What was done, where there are findings."""
    frozen: bool = False
    """Whether time stood still for both clients."""


def run_trial(
    scenario: Scenario, arguments: Mapping[str, Any], bench: Bench, ledger: Ledger, *, rules_off: Sequence[str] = ()
) -> TrialResult:
    """Run one scenario once and return what came to light. Never raises for what a client does.

    `rules_off`: names of canonical rules that are not applied.
    """
    started = time.perf_counter()
    trial = _Trial(scenario, dict(arguments), bench, ledger, tuple(rules_off))
    for part in (trial.run, trial.finish):
        _guarded(part, trial.result)
    trial.result.timings_ms["total"] = (time.perf_counter() - started) * 1000
    return trial.result


def _guarded(part: Callable[[], None], result: TrialResult) -> None:
    """Do a part of the trial; what breaks it becomes the trial's error, unless there already is one."""
    try:
        part()
    except DriverBroken as broken:
        result.error = result.error or f"a driver could not be used: {broken}"
    except Exception as failure:  # noqa: BLE001  (a defect of the kit is shown as such, and the run goes on)
        result.error = result.error or f"the kit itself broke: {type(failure).__name__}: {failure}"
        result.log += traceback.format_exc().splitlines()


class _Trial:
    def __init__(
        self, scenario: Scenario, arguments: dict[str, Any], bench: Bench, ledger: Ledger, rules_off: tuple[str, ...]
    ) -> None:
        self.scenario, self.arguments, self.bench = scenario, arguments, bench
        self._judge_of = partial(Judge, scenario, ledger, rules_off=rules_off)
        self.result = TrialResult()
        self.participants: list[Participant] = []

    def run(self) -> None:
        self.bench.begin()
        if self.scenario.style == "differential":
            self._side_by_side()
        else:
            self._together()

    def finish(self) -> None:
        self.bench.heal()
        for driver in self.bench.drivers:
            driver.reset()
        self.bench.clear(sorted({prefix for participant in self.participants for prefix in participant.prefixes}))
        for participant in self.participants:
            name, spent = participant.role, participant.busy_seconds * 1000
            self.result.timings_ms[name] = self.result.timings_ms.get(name, 0.0) + spent

    # Differential: one prefix each, compared.

    def _side_by_side(self) -> None:
        frozen = self.scenario.clock == "frozen" and self.bench.both_have_clock()
        self.result.frozen = frozen
        # Before the threads: starting a driver anew inside of one would let the other run ahead.
        oracle = self._participant("oracle", self.bench.prefix(), frozen=frozen)
        client = self._participant("client", self.bench.prefix(), frozen=frozen)
        self.judge = self._judge_of(client)
        with ThreadPoolExecutor(max_workers=2) as pool:
            on_oracle = pool.submit(self._steps, {"client": oracle})
            on_client = pool.submit(self._steps, {"client": client})
        self._settle()
        self._judge_oracle(on_oracle.exception())
        if not self.result.error:
            self._judge_client(on_client.exception())
            self._observe(oracle, client, frozen=frozen)

    def _observe(self, oracle: Participant, client: Participant, *, frozen: bool) -> None:
        started = time.perf_counter()
        if self.result.reached_end and not self.result.error:
            self.result.findings += self.judge.worker_errors(oracle, client)
        # A worker that is still open would go on while its snapshot is read.
        self._close_handles()
        self._traffic()
        theirs, ours = self._snapshot(oracle), self._snapshot(client)
        broken = self.judge.invariants(theirs)
        if broken:
            self.result.error = f"Node itself breaks an invariant of the kit: {broken[0].message}"
        if self.result.reached_end:
            self.result.findings += self.judge.answers(oracle, client)
            if self.scenario.compare:
                managed = oracle.managed or client.managed
                self.result.findings += self.judge.states(theirs, ours, frozen=frozen, managed=managed)
        self._judge_left_behind(ours, client.prefix)
        self._keep_evidence(client, oracle, paired=True)
        self.result.timings_ms["observe"] = (time.perf_counter() - started) * 1000

    # Hand-over and shared: one prefix, no comparison; the invariants and Node's health judge.

    def _together(self) -> None:
        prefix = self.bench.prefix()
        client = self._participant("client", prefix, frozen=False)
        self.judge = self._judge_of(client)
        oracle = self._participant("oracle", prefix, frozen=False)
        failure = _caught(lambda: self._steps(self._roles(client, oracle)))
        self._settle()
        if isinstance(failure, DriverBroken) and self.bench.oracle.is_dead():
            self._judge_oracle(failure)
        else:
            self._judge_client(failure)
        started = time.perf_counter()
        self._close_handles()
        self._traffic()
        self._judge_left_behind(self._snapshot(client), prefix)
        self._keep_evidence(client, oracle, paired=False)
        self.result.timings_ms["observe"] = (time.perf_counter() - started) * 1000

    def _roles(self, client: Participant, oracle: Participant) -> dict[str, Participant]:
        if self.scenario.style == "shared":
            return {"client": client, "oracle": oracle}
        if self.arguments.pop("direction") == "client-to-oracle":
            return {"producer": client, "consumer": oracle}
        return {"producer": oracle, "consumer": client}

    # Both.

    def _participant(self, role: Role, prefix: str, *, frozen: bool) -> Participant:
        participant = self.bench.participant(role, prefix, self.bench.clock(frozen=frozen))
        self.participants.append(participant)
        return participant

    def _steps(self, roles: dict[str, Participant]) -> None:
        self.scenario.function(**roles, **self.arguments)

    def _settle(self) -> None:
        """Nothing is disturbed any more, and what was begun comes to its end: also after a failure."""
        # Heal first: a call that a tap still holds would be waited for in vain.
        self.bench.heal()
        for participant in self.participants:
            participant.settle()

    def _close_handles(self) -> None:
        """Close all handles, so that nobody writes while the kit reads."""
        for driver in self.bench.drivers:
            driver.reset()

    def _snapshot(self, participant: Participant) -> Snapshot:
        return read_snapshot(self.bench.redis, participant.prefix)

    def _traffic(self) -> None:
        """What both have sent must be well-formed."""
        cluster = self.bench.server.mode == "cluster"
        broken = self.judge.traffic(self.bench.traffic("oracle"), cluster=cluster)
        if broken:
            self.result.error = f"Node itself breaks a check of the kit: {broken[0].message}"
        self.result.findings += self.judge.traffic(self.bench.traffic("client"), cluster=cluster)

    def _judge_left_behind(self, snapshot: Snapshot, prefix: str) -> None:
        """What the client left must keep the invariants, and Node must be able to read it."""
        self.result.findings += self.judge.invariants(snapshot)
        if ORACLE_HEALTH not in self.scenario.without:
            reader = self.bench.participant("oracle", prefix, RunningClock())
            self.result.findings += self.judge.health(reader, snapshot.queues)

    def _keep_evidence(self, client: Participant, oracle: Participant, *, paired: bool) -> None:
        """What people need to understand the findings, while it is still in Redis."""
        if self.result.findings:
            self.result.steps = steps_of(
                oracle.transcript, client.transcript, oracle.prefix, client.prefix, paired=paired
            )
            # Where the client stopped on its way, Node went on: what it left then is no longer the same moment.
            expected_prefix = oracle.prefix if paired and self.result.reached_end else ""
            look = RedisLook(self.bench.redis, expected_prefix, client.prefix)
            self.result.findings = look.with_readings(self.result.findings)

    def _judge_oracle(self, failure: BaseException | None) -> None:
        if isinstance(failure, TapMissing):
            return  # the client has none either, which will be said
        if failure is not None:
            self.result.error = (
                f"the oracle itself did not do as the scenario says: {type(failure).__name__}: {failure}"
            )

    def _judge_client(self, failure: BaseException | None) -> None:
        self.result.reached_end = failure is None
        match failure:
            case None:
                return
            case Mismatch():
                self.result.findings.append(self.judge.mismatch(failure))
            case OperationUnsupported():
                self.result.unsupported = str(failure)
            case OperationIndeterminate():
                self.result.inconclusive = str(failure)
            case OperationFailed():
                self.result.findings.append(self.judge.failed(failure))
            case DriverBroken():
                self.result.findings.append(self.judge.driver_broken(failure))
                connection = self.bench.client.connection
                self.result.log += connection.log_tail() if connection else []
                log_file = self.bench.client.log_file
                self.result.log += [f"all of it: {log_file.parent.name}/{log_file.name}"] if log_file else []
            case _ if self.scenario.style == "differential":
                # The oracle went through the same steps: the client left something that nobody expects.
                seen = f"the scenario could not go on: {type(failure).__name__}: {failure}"
                self.result.findings.append(self.judge.unexpected(seen))
            case _:
                self.result.error = f"the scenario itself broke: {type(failure).__name__}: {failure}"


def _caught(action: Callable[[], None]) -> BaseException | None:
    try:
        action()
    except Exception as failure:  # noqa: BLE001  (whatever it is, it is evidence)
        return failure
    return None
