"""Inspection after the steps: what each side left in Redis and sent to it is checked and compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from conformance.checkers.traffic import RUNS_SCRIPTS, WRITES
from conformance.driver.ops import lifecycle
from conformance.findings import Finding
from conformance.gate.endings import Endings
from conformance.gate.evidence import RedisLook, steps_in_order, steps_side_by_side
from conformance.gate.execution import Execution
from conformance.gate.judge import NOTHING, ORACLE_HEALTH, READABLE_BY_NODE, Judge
from conformance.gate.trial_result import TrialResult
from conformance.gate.version_change import change_text, not_also
from conformance.ledger.operations import load_operations
from conformance.observe.differences import ABSENT
from conformance.observe.tables import Snapshot
from conformance.participants.clock import RunningClock
from conformance.participants.key_translation import equally_trimmed
from conformance.participants.names import Names
from conformance.participants.participant import Participant
from conformance.participants.transcript import StepPosition
from conformance.protocol.keys import is_queue_name

OPENED = (lifecycle.Open.op, "ok")
"""Operation and outcome of the calls that opened a handle."""


class Inspection:
    """Checks what the participants of one scenario left behind, and adds the findings to the result of the trial."""

    def __init__(self, execution: Execution, endings: Endings, judge: Judge, result: TrialResult) -> None:
        self._execution, self._endings, self._judge, self._result = execution, endings, judge, result
        self._bench, self._scenario = execution.bench, execution.scenario
        self._oracle_findings: list[Finding] = []
        """Findings against an oracle of an unsupported version; the client may break the same checks."""

    def compare(self, oracle: Participant, client: Participant, *, frozen: bool) -> None:
        """Check and compare what oracle and client left, each on its own prefix."""
        with self._timed():
            if self._endings.in_step and not self._result.error:
                # Worker errors are collected before the handles close: closing ends the loops, and may cause errors of
                # its own.
                self._result.findings += self._judge.worker_errors(oracle, client)
            # Closed before Redis is read: an open worker would still write between the two snapshots.
            self._execution.close_handles()
            self._check_traffic()
            (_, theirs), (left, ours) = self._execution.snapshots(oracle.names), self._execution.snapshots(client.names)
            self._check_oracle(theirs)
            same, other = False, oracle
            # If ids decided an order, other ids give another order, and the steps cannot be compared.
            if self._endings.in_step and not client.names.ids_decide_order():
                self._result.findings += self._judge.answers(oracle, client)
                same = self._scenario.compare and self._is_same_state(oracle, client, theirs, ours, frozen=frozen)
            elif self._endings.stopped_at is not None and not client.names.ids_decide_order():
                other = self._compare_half_way(self._endings.stopped_at, client, ours, frozen=frozen) or oracle
            self._check_left_behind(left, ours, client.names, same_as_node=same)
            self._keep_evidence(client, other, paired=True)

    def check_shared(self, client: Participant, other: Participant) -> None:
        """Check what two participants left on one prefix: invariants, Node's view, and lost or repeated jobs."""
        with self._timed():
            self._execution.close_handles()
            self._check_traffic()
            left, named = self._execution.snapshots(client.names)
            self._check_left_behind(left, named, client.names)
            self._check_handover(left, client, other)
            self._keep_evidence(client, other, paired=False)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._result.timings_ms["observe"] = (time.perf_counter() - started) * 1000

    def _check_traffic(self) -> None:
        """Both sides must have sent well-formed commands."""
        cluster = self._bench.server.mode == "cluster"
        broken = self._judge.traffic(self._bench.traffic("oracle"), cluster=cluster)
        if broken and self._execution.is_unsupported_oracle:
            # The kit only knows the script calls of supported versions; `versions diff` shows how others differ.
            self._oracle_findings += broken
        elif broken:
            self._oracle_breaks(broken, "a check")
        self._result.findings += self._judge.traffic(self._bench.traffic("client"), cluster=cluster)

    def _check_oracle(self, left: Snapshot) -> None:
        broken = self._judge.invariants(left)
        # A cancelled scenario may leave a supported oracle's queue half-way, and then a broken invariant says nothing.
        # In an unsupported version it still shows a change.
        if broken and (self._execution.is_unsupported_oracle or not self._execution.cancellation.reason):
            self._oracle_breaks(broken, "an invariant")

    def _oracle_breaks(self, broken: list[Finding], what: str) -> None:
        """Node breaks a check: an error of the kit, or a change if the version is unsupported."""
        if self._execution.is_unsupported_oracle:
            self._oracle_findings += broken
            self._result.changed = self._result.changed or change_text(self._bench.oracle_version, broken[0].message)
        else:
            self._result.error = f"Node itself breaks {what} of the kit: {broken[0].message}"

    def _is_same_state(
        self, oracle: Participant, client: Participant, theirs: Snapshot, ours: Snapshot, *, frozen: bool
    ) -> bool:
        """Compare both queues. Returns whether the client's is, by the canonical rules, exactly Node's."""
        managed = oracle.managed or client.managed
        theirs, named = equally_trimmed(theirs, ours, client.names)
        different = self._judge.states(theirs, named, frozen=frozen, managed=managed)
        self._result.findings += [finding for finding in different if not self._is_left_undone(finding)]
        return client.names.same and not different

    def _compare_half_way(
        self, position: StepPosition, client: Participant, ours: Snapshot, *, frozen: bool
    ) -> Participant | None:
        """Compare what the client left where it stopped with the oracle at the same step, and return that oracle.

        Otherwise a known failure, a warning or an undecided step would hide all other differences of its scenario.
        The client does not go on in its place: its next steps would act on another state than the oracle's, and each
        of their differences might only be a consequence. None if the oracle cannot be brought to that step.
        """
        # The order of parallel calls, and what a disturbance hits, are not the same twice.
        if client.transcript.concurrent or client.transcript.disturbed or self._result.error:
            return None
        oracle = self._execution.oracle_stopped_at(position, frozen=frozen)
        if oracle is None:
            return None
        _, theirs = self._execution.snapshots(oracle.names)
        found = self._judge.answers(oracle, client)
        if self._scenario.compare:
            managed = oracle.managed or client.managed
            theirs, named = equally_trimmed(theirs, ours, client.names)
            moving = self._endings.waited_in_vain or managed or client.used_loop_workers
            found += self._judge.states_half_way(theirs, named, frozen=frozen, managed=managed, moving=moving)
        self._result.findings += [finding for finding in found if not self._is_reported(finding)]
        return oracle

    def _is_reported(self, finding: Finding) -> bool:
        """Whether the failure that stopped the client shows this already, or may be its reason."""
        if self._is_left_undone(finding):
            return True
        # A missing or extra value in the last result is what the assertion after it is about.
        last = f"call {len(self._judge.client.transcript.calls)}, "
        is_last = finding.message.startswith(last) and NOTHING in (finding.expected, finding.actual)
        return any(
            other.requirement == finding.requirement
            or (is_last and other.source == "assertion")
            or other.where == finding.where
            or (_bare(other.expected), _bare(other.actual)) == (_bare(finding.expected), _bare(finding.actual))
            for other in self._result.findings
            if other.source in ("assertion", "protocol")
        )

    def _is_left_undone(self, finding: Finding) -> bool:
        """Whether a call that failed with an unknown error may be its reason."""
        undone = self._judge.useless if finding.source != "answer" else ()
        rows = load_operations().rows_about
        return any(finding.requirement in rows.get(op, ()) for op in (self._endings.half_done, *undone))

    def _check_left_behind(
        self, snapshot: Snapshot, named: Snapshot, names: Names, *, same_as_node: bool = False
    ) -> None:
        """The client's queue must keep the invariants, and Node must be able to read it.

        `same_as_node`: Node need not read it, which takes a third of a trial; no rule of comparison hides malformed
        data. Node reads it nevertheless if readability is a requirement of the scenario. A scenario that was given up
        may have left only half of its own changes, so it is not checked.
        """
        blamed, misled = self._judge.blamed_on_what_was_left, self._judge.misled(named)
        self._result.findings = [blamed(finding, snapshot, misled) for finding in self._result.findings]
        if self._result.given_up or self._has_ambiguous_keys() or self._has_only_keys_of_the_kit():
            return
        # Check the real names in Redis, not those of the scenario: an id that Node would reuse is a problem.
        if not self._endings.cut_short:
            broken = self._confirmed(self._judge.invariants, snapshot, names)
            self._result.findings += [finding for finding in broken if not self._is_of_the_kit(finding, names)]
        self._result.findings += self._judge.names(names)
        needless = same_as_node and READABLE_BY_NODE not in self._scenario.requirements
        if not needless and ORACLE_HEALTH not in self._scenario.without:
            reader = self._bench.participant("oracle", names, RunningClock())
            self._result.findings += self._judge.health(reader, named.queues, snapshot)

    def _has_ambiguous_keys(self) -> bool:
        """Whether the client opened a queue under a name that must be refused: its keys read as those of others."""
        opened = (call.args for call in self._judge.client.transcript.all_calls if (call.op, call.outcome) == OPENED)
        return any(args["role"] != "flow" and not is_queue_name(args["queue"]) for args in opened)

    def _has_only_keys_of_the_kit(self) -> bool:
        """Whether the kit wrote keys, and the client none: it cannot have broken what is there."""
        point, client = self._bench.taps["client"], self._judge.client
        if point.tap is None or client.performed.stand_in or not client.transcript.keys_of_the_kit():
            return False
        return not any(command.name in WRITES or command.name in RUNS_SCRIPTS for command in point.traffic())

    def _is_of_the_kit(self, finding: Finding, names: Names) -> bool:
        """Whether the finding is about a key that the kit wrote in a scenario that the client ended early.

        At the scenario's end such a key is whole. Before that, the client may have left out what belongs to it.
        """
        if self._result.reached_end:
            return False
        key = f"{names.client_prefix}:{finding.key}"
        written = self._judge.client.transcript.keys_of_the_kit()
        return any(word == key or word.startswith(f"{key}:") for word in map(names.to_client, written))

    def _check_handover(self, snapshot: Snapshot, client: Participant, partner: Participant) -> None:
        """No job may be lost between the two, or run twice. Other findings about a lost job are dropped."""
        assignment = self._execution.assignment
        if assignment is None or self._result.given_up or self._endings.cut_short:
            return
        calls = [*client.transcript.all_calls, *partner.transcript.all_calls]
        check = partial(self._judge.handover, who=assignment.sentence, calls=calls)
        jobs = self._confirmed(check, snapshot, client.names)
        lost = {finding.key for finding in jobs if finding.severity == "lost-jobs"}
        # A lost job also breaks other checks; one finding per job is enough.
        others = [other for other in self._result.findings if other.severity != "lost-jobs" or other.key not in lost]
        self._result.findings = [*jobs, *others]

    def _confirmed(self, check: Callable[[Snapshot], list[Finding]], snapshot: Snapshot, names: Names) -> list[Finding]:
        """Return the findings of a check that a second snapshot confirms.

        The keys of a snapshot are listed first and read one by one. A job that still moves meanwhile, into a container
        that did not exist when the keys were listed, seems to be in no container at all.
        """
        broken = check(snapshot)
        if not broken:
            return []
        # Handles are closed by now, so what really is wrong is still wrong in the second snapshot.
        again, _ = self._execution.snapshots(names)
        still = {(finding.where, finding.key) for finding in check(again)}
        return [finding for finding in broken if (finding.where, finding.key) in still]

    def _keep_evidence(self, client: Participant, other: Participant, *, paired: bool) -> None:
        """Add steps and Redis contents to the findings, before the keys are removed."""
        # After all checks, and before clean-up: readings show the keys at their locators.
        self._result.findings = not_also(self._result.findings, self._oracle_findings)
        if not self._result.findings:
            return
        self._result.steps = (
            steps_side_by_side(other.transcript, client.transcript, other.prefix, client.prefix)
            if paired
            else steps_in_order({other.role: other.transcript, "client": client.transcript}, client.prefix)
        )
        # If the client stopped early, Node went on, and its keys no longer show the same moment.
        oracle = other.names if paired else None
        look = RedisLook(self._bench.redis, oracle, client.names, in_step=self._endings.in_step)
        self._result.findings = look.with_readings(self._result.findings)


def _bare(text: str) -> str:
    """A value as text, whether or not it is quoted as JSON, or absent."""
    return NOTHING if text == ABSENT else text.strip('"')
