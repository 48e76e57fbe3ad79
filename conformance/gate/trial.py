"""Running one scenario: the same steps on oracle and client, then everything that is looked at afterwards."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from conformance.driver.errors import (
    MAY_BE_THE_MACHINE,
    DriverBroken,
    OperationFailed,
    OperationGivenUp,
    OperationIndeterminate,
    OperationUnanswered,
    OperationUnsupported,
)
from conformance.findings import NOBODY_BLAMED, Finding
from conformance.gate.bench import Bench
from conformance.gate.changed import (
    change_text,
    ended_alike,
    failure_text,
    not_also,
    other_ending,
    says_how_to_end,
    shows_change,
)
from conformance.gate.decided import is_decided, may_speak_against, why_never_decided, why_undecided
from conformance.gate.evidence import RedisLook, steps_in_order, steps_side_by_side
from conformance.gate.judge import ORACLE_HEALTH, READABLE_BY_NODE, Judge
from conformance.gate.records import StepRecord
from conformance.gate.time_limit import Side, TimeLimit, TimeLimitExceeded, play
from conformance.ledger.loader import Ledger
from conformance.ledger.operations import load_operations
from conformance.observe.tables import Snapshot
from conformance.participants.caller import Role
from conformance.participants.cancellation import Cancellation, Cancelled
from conformance.participants.clock import RunningClock
from conformance.participants.expect import Mismatch
from conformance.participants.key_translation import equally_trimmed, read_named
from conformance.participants.marks import ASSIGNMENT, Scenario
from conformance.participants.names import Names
from conformance.participants.participant import Participant
from conformance.participants.roles import Assignment, unsupported_role
from conformance.participants.stand_in import StandInBroken
from conformance.participants.tap import TapMissing
from conformance.participants.wait_limits import WaitLimits
from conformance.protocol.versions import is_supported

SETTLE_MS = 10_000
"""How long what a scenario has begun may go on after its end."""
SETTLE_FAILED_MS = 2000
"""The same where the client has failed: what is still going on then mostly never ends."""


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
    undecided: frozenset[str] = frozenset()
    """Requirements of the scenario on which the client could not show anything: the oracle did that in its place."""
    changed: str = ""
    """What the oracle, of a version that nobody prepared, does otherwise than the scenario or a check says."""
    doubt: str = ""
    """Why the machine may be behind a finding all the same: it counts only if it comes again whenever it is tried."""
    given_up: str = ""
    """Why the scenario was ended although nothing new is known: an operation that it needs has hung before."""
    timings_ms: dict[str, float] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    """What was done, where there are findings."""
    frozen: bool = False
    """Whether time stood still for both clients."""
    unanswered: list[str] = field(default_factory=list)
    """Operations that the client did without an answer."""


def run_trial(
    scenario: Scenario,
    arguments: Mapping[str, Any],
    bench: Bench,
    ledger: Ledger,
    *,
    rules_off: Sequence[str] = (),
    limit: TimeLimit | None = None,
) -> TrialResult:
    """Run one scenario once and return what came to light. Never raises for what a client does.

    Where two clients share a queue, nobody has shown that the oracle's version does as the scenario says: on one that
    nobody prepared, what does not hold is played again by two drivers of the oracle.

    `rules_off`: names of canonical rules that are not applied. `limit`: another than the scenario's own.
    """
    started = time.perf_counter()

    def attempt() -> TrialResult:
        chosen = limit or TimeLimit.of(scenario)
        trial = _Trial(scenario, dict(arguments), bench, ledger, tuple(rules_off), limit=chosen)
        for part in (trial.run, trial.finish):
            _guarded(part, trial.result)
        return trial.result

    result = attempt()
    doubtful = scenario.style != "differential" and (result.findings or result.error)
    if doubtful and not is_supported(bench.oracle_version):
        with bench.oracle_in_place_of_the_client():
            rehearsal = attempt()
        if rehearsal.findings or rehearsal.error:
            message = rehearsal.error or rehearsal.findings[0].message
            result = TrialResult(reached_end=False, changed=change_text(bench.oracle_version, message))
    result.timings_ms["total"] = (time.perf_counter() - started) * 1000
    return result


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
        self,
        scenario: Scenario,
        arguments: dict[str, Any],
        bench: Bench,
        ledger: Ledger,
        rules_off: tuple[str, ...],
        *,
        limit: TimeLimit,
    ) -> None:
        self.scenario, self.arguments, self.bench, self.limit = scenario, arguments, bench, limit
        self.assignment: Assignment | None = self.arguments.pop(ASSIGNMENT, None)
        """Who plays which roles, in a hand-over."""
        self._judge_of = partial(Judge, scenario, ledger, rules_off=rules_off, oracle_version=bench.oracle_version)
        self.result = TrialResult()
        self.participants: list[Participant] = []
        self.cancellation = Cancellation()
        self.wait_limits = WaitLimits(bench.waits, scenario.name, sides=scenario.style == "differential")
        self.cut_short = False
        """Whether the client went on without telling, where the scenario could not, or broke in the middle."""
        self.stopped_alike = False
        """Whether both sides stopped at the same statement, which does not hold on this version of the oracle."""
        self.oracle_breaks: list[Finding] = []
        """What speaks against the kit's checks on this version of the oracle."""

    @property
    def in_step(self) -> bool:
        """Whether both sides have done the same steps, so that what they left can be compared."""
        return self.result.reached_end or self.stopped_alike

    @property
    def _any_version(self) -> bool:
        """Whether nobody has prepared the scenarios for this oracle."""
        return not is_supported(self.bench.oracle_version)

    def run(self) -> None:
        client = self.bench.client.handshake()
        never = self._cannot_be_cast() or why_never_decided(self.scenario, client, load_operations().about)
        if never:
            self._leave_out(never)
            return
        self.bench.begin()
        if self.scenario.style == "differential":
            self._side_by_side()
        else:
            self._together()
        self._leave_out_undecided()

    def finish(self) -> None:
        self.bench.heal()
        self._close_handles()
        self.bench.clear(names for participant in self.participants for names in participant.places)
        silent = {op for participant in self.participants for op in participant.unanswered}
        self.result.unanswered = sorted(silent)
        for participant in self.participants:
            name, spent = participant.role, participant.busy_seconds * 1000
            self.result.timings_ms[name] = self.result.timings_ms.get(name, 0.0) + spent

    # Differential: one prefix each, compared.

    def _side_by_side(self) -> None:
        frozen = self.scenario.clock == "frozen" and self.bench.both_have_clock()
        self.result.frozen = frozen
        # Before the threads: starting a driver anew inside of one would let the other run ahead.
        oracle = self._participant("oracle", self.bench.names("oracle"), frozen=frozen)
        client = self._participant("client", self.bench.names("client"), frozen=frozen)
        self.judge = self._judge_of(client)
        on_oracle = Side(lambda: self._one_side(oracle), lambda: oracle.transcript.step)
        on_client = Side(lambda: self._one_side(client), lambda: client.transcript.step)
        self._play(on_oracle, on_client)
        self._settle(failed=on_client.failure is not None)
        failure = on_oracle.failure
        if oracle.used_loop_workers and failure is not None and not isinstance(failure, Cancelled):
            self._cannot_be_played(failure)
            return
        if failure is not None and self._any_version and shows_change(failure):
            self._judge_changed(failure, on_client.failure)
            self._observe(oracle, client, frozen=frozen)
            return
        self._judge_oracle(failure)
        if not self.result.error:
            self._judge_client(on_client.failure)
            self._observe(oracle, client, frozen=frozen)

    def _one_side(self, participant: Participant) -> None:
        """The steps of one side. Where the scenario cannot be played on it, the other need not wait for anything.

        But for an oracle that nobody prepared: what it does otherwise than the kit's checks say, the client may do.
        """
        try:
            self._steps({"client": participant})
        except (OperationUnsupported, OperationGivenUp) as ending:
            if participant.role == "oracle" or not self._any_version:
                self.cancellation.cancel(str(ending))
            raise

    def _cannot_be_played(self, failure: object) -> None:
        """The scenario asks of a manual worker what no loop can do: not even that of the oracle."""
        self.result.reached_end = False
        self.result.unsupported = f"cannot be played without a manual worker: {failure}"

    def _observe(self, oracle: Participant, client: Participant, *, frozen: bool) -> None:
        started = time.perf_counter()
        if self.in_step and not self.result.error:
            self.result.findings += self.judge.worker_errors(oracle, client)
        # A worker that is still open would go on while its snapshot is read.
        self._close_handles()
        self._traffic()
        (_, theirs), (left, ours) = self._snapshots(oracle), self._snapshots(client)
        broken = self.judge.invariants(theirs)
        # A queue of the oracle may be broken half-way; but what another version never does, it does not do half-way.
        if broken and (self._any_version or not self.cancellation.reason):
            self._oracle_breaks(broken, "an invariant")
        as_node = False
        if self.in_step and not client.names.ids_decide_order():
            self.result.findings += self.judge.answers(oracle, client)
            if self.scenario.compare:
                managed = oracle.managed or client.managed
                theirs, named = equally_trimmed(theirs, ours, client.names)
                different = self.judge.states(theirs, named, frozen=frozen, managed=managed)
                self.result.findings += different
                as_node = client.names.same and not different
        self._judge_left_behind(left, ours.queues, client.names, as_node=as_node)
        self.result.findings = not_also(self.result.findings, self.oracle_breaks)
        self._keep_evidence(client, oracle, paired=True)
        self.result.timings_ms["observe"] = (time.perf_counter() - started) * 1000

    # Hand-over and shared: one prefix, no comparison; the invariants and Node's health judge.

    def _together(self) -> None:
        names = self.bench.names()
        client = self._participant("client", names, frozen=False)
        self.judge = self._judge_of(client)
        other = self._participant(self.bench.second, names, frozen=False)
        both = Side(
            lambda: self._steps(self._roles(client, other)),
            lambda: f"{client.transcript.step} (client), {other.transcript.step} ({other.role})",
        )
        self._play(None, both)
        failure = both.failure
        self._settle(failed=failure is not None)
        if client.used_loop_workers and failure is not None and (control := self._failure_of_control()):
            self._cannot_be_played(control)
            return
        if isinstance(failure, DriverBroken) and self.bench.driver_of(other.role).is_dead():
            self._judge_oracle(failure, who=other.role)
        else:
            self._judge_client(failure)
        started = time.perf_counter()
        self._close_handles()
        self._traffic()
        left, named = self._snapshots(client)
        self._judge_left_behind(left, named.queues, names)
        self._judge_handover(left, client, other)
        self.result.findings = not_also(self.result.findings, self.oracle_breaks)
        self._keep_evidence(client, other, paired=False)
        self.result.timings_ms["observe"] = (time.perf_counter() - started) * 1000

    def _failure_of_control(self) -> BaseException | None:
        """What goes wrong as well where the oracle's loops play the client's part: then it is no fault of the client.

        Only a scenario on two prefixes is played by the oracle anyway.
        """
        self._close_handles()
        names, cancellation = Names(self.bench.prefix()), Cancellation()
        clock = self.bench.clock(frozen=False, cancellation=cancellation)
        client = self.bench.oracle_in_place_of_client(names, clock, cancellation)
        partner = self.bench.participant("oracle", names, clock, cancellation, uses_loop_workers=True)
        side = Side(lambda: self._steps(self._roles(client, partner)), lambda: client.transcript.step)
        play(None, side, self.limit, cancel=cancellation.cancel, kill=self._kill)
        self.bench.heal()
        for participant in (client, partner):
            participant.settle(within_ms=SETTLE_FAILED_MS)
        self._close_handles()
        self.bench.clear(place for participant in (client, partner) for place in participant.places)
        return side.failure

    def _judge_handover(self, snapshot: Snapshot, client: Participant, partner: Participant) -> None:
        """No job may be lost between the two, or run twice; what says less about a lost job is left out."""
        if self.assignment is None or self.result.given_up or self.cut_short:
            return
        calls = [*client.transcript.all_calls, *partner.transcript.all_calls]
        found = partial(self.judge.handover, who=self.assignment.sentence, calls=calls)
        jobs = self._for_good(found, snapshot, client.names)
        lost = {finding.key for finding in jobs if finding.severity == "lost-jobs"}
        others = [other for other in self.result.findings if other.severity != "lost-jobs" or other.key not in lost]
        self.result.findings = [*jobs, *others]

    def _play(self, oracle: Side | None, client: Side) -> None:
        play(oracle, client, self.limit, cancel=self.cancellation.cancel, kill=self._kill)

    def _kill(self) -> None:
        """End the drivers; whoever needs one starts it again."""
        for driver in self.bench.drivers:
            if driver.connection is not None:
                driver.connection.kill()

    def _roles(self, client: Participant, other: Participant) -> dict[str, Participant]:
        if self.scenario.style == "shared":
            return {"client": client, "oracle": other}
        assert self.assignment is not None
        return {**dict.fromkeys(self.assignment.client, client), **dict.fromkeys(self.assignment.partner, other)}

    def _cannot_be_cast(self) -> str:
        """Say which role of the assignment one of the two has no operation for; empty where both can play theirs."""
        assignment = self.assignment
        if assignment is None:
            return ""
        client, partner = self.bench.client.handshake(), self.bench.driver_of(self.bench.second).handshake()
        if client.fixed_prefix and partner.fixed_prefix and client.fixed_prefix != partner.fixed_prefix:
            return f"they cannot share a queue: {client.fixed_prefix!r} and {partner.fixed_prefix!r} are their prefixes"
        return unsupported_role(
            assignment.client, {*client.ops, *client.capabilities}, "the client"
        ) or unsupported_role(assignment.partner, {*partner.ops, *partner.capabilities}, "its partner")

    # Both.

    def _participant(self, role: Role, names: Names, *, frozen: bool) -> Participant:
        participant = self.bench.participant(
            role,
            names,
            self.bench.clock(frozen=frozen, cancellation=self.cancellation),
            self.cancellation,
            uses_loop_workers=self.bench.uses_loop_workers(),
        )
        participant.wait_limits = self.wait_limits
        self.participants.append(participant)
        return participant

    def _steps(self, roles: dict[str, Participant]) -> None:
        self.scenario.function(**roles, **self.arguments)

    def _settle(self, *, failed: bool) -> None:
        """Nothing is disturbed any more, and what was begun comes to its end: also after a failure."""
        # Heal first: a call that a tap still holds would be waited for in vain.
        self.bench.heal()
        for participant in self.participants:
            participant.settle(within_ms=SETTLE_FAILED_MS if failed else SETTLE_MS)

    def _close_handles(self) -> None:
        """Close all handles, so that nobody writes while the kit reads."""
        for driver in self.bench.every_driver:
            driver.reset()

    def _leave_out(self, reason: str) -> None:
        self.result.reached_end, self.result.unsupported = False, reason
        self.result.undecided = frozenset(self.scenario.requirements)

    def _leave_out_undecided(self) -> None:
        """What somebody else did speaks neither for nor against the client."""
        [performed] = [participant.performed for participant in self.participants if participant.role == "client"]
        about = load_operations().about
        decided = partial(is_decided, performed=performed, operations_of=about)
        counts = partial(may_speak_against, performed=performed, operations_of=about)
        left_out = [finding for finding in self.result.findings if not counts(finding.requirement)]
        self.result.findings = [finding for finding in self.result.findings if counts(finding.requirement)]
        self.result.log += [f"left out, {why_undecided(performed)}: {finding.message}" for finding in left_out]
        # What the client would have done behind an abort is not known: such a row is unchecked.
        shown = decided if self.result.reached_end else counts
        failing = {finding.requirement for finding in self.result.findings}
        self.result.undecided = frozenset(row for row in self.scenario.requirements if not shown(row)) - failing
        if self.result.undecided == {*self.scenario.requirements}:
            self.result.unsupported = self.result.unsupported or why_undecided(performed)

    def _snapshots(self, participant: Participant) -> tuple[Snapshot, Snapshot]:
        """What Redis holds, as it is there, and in the scenario's names."""
        return read_named(self.bench.redis, participant.names)

    def _traffic(self) -> None:
        """What both have sent must be well-formed."""
        cluster = self.bench.server.mode == "cluster"
        broken = self.judge.traffic(self.bench.traffic("oracle"), cluster=cluster)
        if broken and self._any_version:
            # The kit knows the calls of supported versions only: `versions diff` tells what is different in others.
            self.oracle_breaks += broken
        elif broken:
            self._oracle_breaks(broken, "a check")
        self.result.findings += self.judge.traffic(self.bench.traffic("client"), cluster=cluster)

    def _judge_left_behind(self, snapshot: Snapshot, queues: list[str], names: Names, *, as_node: bool = False) -> None:
        """What the client left must keep the invariants, and Node must be able to read it.

        Not where the scenario was given up: what it has done to the queue itself may be only half of what it does.
        `as_node`: it is the very same as what Node left. Then Node need not read it, which takes a third of a trial: no
        rule of comparison hides what is malformed. Where reading is the requirement itself, Node reads it all the same.
        """
        if self.result.given_up:
            return
        # The invariants of what is really there: an id that Node would give again is one, whatever the scenario says.
        if not self.cut_short:
            self.result.findings += self._for_good(self.judge.invariants, snapshot, names)
        self.result.findings += self.judge.names(names)
        needless = as_node and READABLE_BY_NODE not in self.scenario.requirements
        if not needless and ORACLE_HEALTH not in self.scenario.without:
            reader = self.bench.participant("oracle", names, RunningClock())
            self.result.findings += self.judge.health(reader, queues)

    def _for_good(self, check: Callable[[Snapshot], list[Finding]], snapshot: Snapshot, names: Names) -> list[Finding]:
        """What a check finds, also at a second look.

        What still runs may move a job while its keys are read, into a container that was not there when they were
        listed: then it seems to be nowhere.
        """
        broken = check(snapshot)
        if not broken:
            return []
        again, _ = read_named(self.bench.redis, names)
        still = {(finding.where, finding.key) for finding in check(again)}
        return [finding for finding in broken if (finding.where, finding.key) in still]

    def _keep_evidence(self, client: Participant, other: Participant, *, paired: bool) -> None:
        """What people need to understand the findings, while it is still in Redis."""
        if self.result.findings:
            self.result.steps = (
                steps_side_by_side(other.transcript, client.transcript, other.prefix, client.prefix)
                if paired
                else steps_in_order({other.role: other.transcript, "client": client.transcript}, client.prefix)
            )
            # Where the client stopped on its way, Node went on: what it left then is no longer the same moment.
            expected = other.names if paired and self.in_step else None
            look = RedisLook(self.bench.redis, expected, client.names)
            self.result.findings = look.with_readings(self.result.findings)

    def _judge_oracle(self, failure: BaseException | None, *, who: Role = "oracle") -> None:
        if isinstance(failure, (TapMissing, Cancelled)):
            return  # the client has none either, or it is what the other side ended: both will be said
        if failure is not None:
            self.result.error = f"the {who} itself did not do as the scenario says: {type(failure).__name__}: {failure}"

    def _judge_changed(self, oracle: BaseException, client: BaseException | None) -> None:
        """The oracle is a version that does otherwise: the client has to do as the oracle does."""
        self.result.changed = change_text(self.bench.oracle_version, failure_text(oracle))
        self.result.reached_end = False
        self.stopped_alike = ended_alike(oracle, client)
        if self.stopped_alike or not says_how_to_end(oracle):
            return
        if client is None or not self._is_left_open(client):
            self.result.findings.append(self.judge.attributed(other_ending(NOBODY_BLAMED, oracle, client)))

    def _oracle_breaks(self, broken: list[Finding], what: str) -> None:
        """Node itself is not as the kit says: an error of the kit, or the change of a version that nobody prepared."""
        if self._any_version:
            self.oracle_breaks += broken
            self.result.changed = self.result.changed or change_text(self.bench.oracle_version, broken[0].message)
        else:
            self.result.error = f"Node itself breaks {what} of the kit: {broken[0].message}"

    def _judge_client(self, failure: BaseException | None) -> None:
        self.result.reached_end = failure is None
        if failure is None or self._is_left_open(failure):
            return
        match failure:
            case Mismatch():
                self.result.findings.append(self.judge.mismatch(failure))
            case OperationIndeterminate() if failure.error.code in MAY_BE_THE_MACHINE:
                self.result.findings.append(self.judge.lost(failure))
                self.result.doubt = str(failure)
                self.cut_short = True  # nobody knows what was done, and perhaps it is still being done
            case OperationFailed() | OperationIndeterminate():
                self.result.findings.append(self.judge.failed(failure))
            case TimeLimitExceeded():
                self.result.findings.append(self.judge.not_ended(str(failure)))
            case DriverBroken():
                self.result.findings.append(self.judge.driver_broken(failure))
                self.cut_short = True
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

    def _was_disturbed(self) -> bool:
        """Whether the kit itself has hurt what lies between the client and Redis."""
        return any(one.transcript.disturbed for one in self.participants if one.role == "client")

    def _is_left_open(self, failure: BaseException) -> bool:
        """Whether the scenario ended in a way that says nothing about the client; the result then has the reason."""
        match failure:
            case OperationUnsupported() | Cancelled():
                self.result.unsupported = str(failure)
                # Everything was done so far, and the kit has left in the middle: such a state is nobody's.
                self.cut_short = isinstance(failure, OperationUnanswered)
            case OperationIndeterminate() if failure.error.code in MAY_BE_THE_MACHINE and self._was_disturbed():
                self.result.inconclusive = str(failure)
            case OperationGivenUp():
                self.result.given_up = str(failure)
            case StandInBroken():
                self.result.error = f"the oracle in the client's place could not be used: {failure}"
            case _:
                return False
        return True
