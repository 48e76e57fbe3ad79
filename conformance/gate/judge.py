"""The judge: turns snapshots, answers, traffic and failures of a scenario into findings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import msgspec

from conformance.checkers import traffic
from conformance.checkers.handovers import check_handover
from conformance.checkers.snapshot_checks import check_snapshot
from conformance.driver.errors import (
    INVALID,
    MAY_BE_THE_MACHINE,
    OTHER,
    TOO_LONG,
    DriverBroken,
    DriverHung,
    OperationFailed,
    OperationIndeterminate,
)
from conformance.driver.messages import Ready
from conformance.driver.ops import REGISTRY, lifecycle, queue
from conformance.driver.ops.base import left_out
from conformance.findings import NOBODY_BLAMED, Finding, Timing
from conformance.gate.attribution import Attribution, culprits_now, may_follow_from_a_move, misled_jobs
from conformance.gate.timing import (
    SHORTEST_MS,
    depends_on_speed,
    is_certain,
    is_measured,
    runs_by_itself,
    shortest_ms,
    timing_of,
)
from conformance.ledger.loader import Ledger, Requirement
from conformance.ledger.operations import WORKER_RUN, load_operations
from conformance.observe.canonical import ALL_RULES, DEFAULT_RULES, FROZEN_CLOCK_RULES, without
from conformance.observe.canonical_rules import STALLED_MARKS, WORKER_TRACES, CanonicalContext, CanonicalRule
from conformance.observe.compare_jobs import unreadable_places
from conformance.observe.diff import compare
from conformance.observe.differences import ABOUT_TOLERANCE_MS, Difference, same_reading
from conformance.observe.event_order import INDEPENDENT_EVENTS
from conformance.observe.moves import apart_from_moves
from conformance.observe.tables import Snapshot
from conformance.observe.tap.recording import CommandRecord
from conformance.participants.expect import ROW, Mismatch, value_text
from conformance.participants.loop_worker import WITHOUT_EFFECT
from conformance.participants.marks import Scenario
from conformance.participants.names import Names
from conformance.participants.participant import Participant
from conformance.participants.transcript import CALL, KitAct, RecordedCall
from conformance.protocol.script_versions import scripts_of
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.protocol.states import JOB_CONTAINERS

TRAFFIC_CHECKS = frozenset(check.name for check in traffic.ALL_CHECKS)

ORACLE_HEALTH = "oracle-health"
"""Name with which a scenario switches off the check that Node can read the client's queue."""

IDLE_TRAFFIC = "liveness.idle-traffic"
"""The requirement that floods break."""

READABLE_BY_NODE = "event.readable-by-node"
"""The requirement behind this check; its scenarios always run it."""

FIXED_PREFIX = "identity.prefix"
"""Locator of a key prefix that the client cannot change."""

WORKER_ERRORS = "worker-errors"
"""Name with which a scenario allows a worker to emit `error` when Node's does not."""

REMOVALS = frozenset(
    {
        *("queue.drain", "queue.clean", "queue.obliterate", "queue.remove", "job.remove"),
        *("job.removeUnprocessedChildren", "queue.upsertJobScheduler", "queue.removeJobScheduler"),
    }
)
"""Operations that remove jobs."""

WORKED_ON = (".id", ".name", ".data_raw")
"""Fields of a job that a worker needs for its work, also if its client has no getters."""

NOTHING = "null"
"""The text of None in a finding."""

WRITTEN_AT_THE_END = ("job.returnvalue", "job.failedReason", "job.finishedOn")
"""Fields of which only a job in `completed` or `failed` shows whether they are missing."""

TIMES = frozenset({"timestamp", "processed_on", "finished_on", "next", "start_date", "end_date", "offset", "prevTS"})
"""Fields of answers with the client's own time, which are compared only if both clocks are frozen."""

UNSET: tuple[Any, ...] = (None, 0, "", {}, [])
"""Values of an unset field, which clients return in different ways; they count as equal."""

_DUE_IN_ID = re.compile(r"(?P<before>\brepeat:.*:)\d{13}\b")

_DUE_IN_OPTIONS = frozenset({"delay", "prevMillis"})
_DUE_IN_JOB = frozenset({"delay"})

JOB_TYPES = [container.job_type for container in JOB_CONTAINERS]
"""All types of jobs, as getters call them."""


@dataclass(frozen=True)
class Judge:
    """Turns evidence into findings for one scenario."""

    scenario: Scenario
    ledger: Ledger
    client: Participant
    """The client under test; it is also responsible if Node cannot read its queue."""
    rules_off: tuple[str, ...] = ()
    """Names of canonical rules that the user switched off."""
    oracle_version: str = BULLMQ_VERSION
    """The version that script calls are checked against."""
    other: Participant | None = None
    """The oracle on its own prefix, or the second client on a shared queue."""
    useless: set[str] = field(default_factory=set)
    """Operations whose answers show that they never work."""

    @property
    def _steps(self) -> list[RecordedCall | KitAct]:
        """Everything that was done in the scenario, in no particular order."""
        transcripts = [side.transcript for side in (self.client, self.other) if side is not None]
        return [step for transcript in transcripts for step in (*transcript.steps, *transcript.all_calls)]

    @property
    def _is_shared(self) -> bool:
        return self.scenario.style != "differential"

    def timing(self, *, compared: bool) -> Timing | None:
        """Return the timing of a state: None if no time took part that is short enough to run out.

        `compared`: whether the state is compared with the oracle's, whose times can run out as well.
        """
        times = [shortest_ms(self._steps, frozen=self.client.clock.frozen)]
        # A scenario that asks for the machine's clock is about time itself.
        times += [SHORTEST_MS] if self.scenario.clock == "real" and not self._is_shared else []
        known = [time_ms for time_ms in times if time_ms is not None]
        return timing_of(min(known), both_sides=compared or self._is_shared) if known else None

    def with_timing(self, finding: Finding, *, compared: bool = False) -> Finding:
        """Return a finding about a state with its timing."""
        if is_certain(finding.where, self._steps):
            return finding
        timing = self.timing(compared=compared)
        if is_measured(finding) and not self.client.clock.frozen:
            timing = timing_of(ABOUT_TOLERANCE_MS, both_sides=True)
        if depends_on_speed(finding) and (self._is_shared or runs_by_itself(self._steps)):
            timing = timing_of(SHORTEST_MS, both_sides=True)
        return msgspec.structs.replace(finding, timing=timing)

    @property
    def attribution(self) -> Attribution:
        """Attribution of findings, from the calls of the client so far."""
        return Attribution(
            requirements=self.scenario.requirements,
            ledger=self.ledger,
            operations=load_operations(),
            declared=declared_by(self.client.driver.ready) | self.client.performed.own,
            calls=self.client.transcript.all_calls,
            not_refused=self.client.transcript.not_refused,
            history=self._history,
        )

    @property
    def _history(self) -> list[RecordedCall]:
        """All calls on the client's queues, by whomever, in order."""
        transcript = self.client.transcript
        others = [*transcript.calls, *(self.other.transcript.all_calls if self.other and self._is_shared else ())]
        calls = {id(call): call for call in (*transcript.all_calls, *others)}
        return sorted(calls.values(), key=lambda call: call.ended)

    def mismatch(self, mismatch: Mismatch) -> Finding:
        """Return the finding of a failed assertion."""
        # Values that the end of a job writes may just not be written yet.
        missing = mismatch.actual == NOTHING and mismatch.where not in WRITTEN_AT_THE_END
        finding = Finding(
            requirement=self.attribution.of_mismatch(mismatch.where, missing=missing),
            source="assertion",
            kind="assertion",
            severity="wrong-behaviour",
            where="scenario" if not mismatch.where or mismatch.where.startswith(ROW) else mismatch.where,
            key="",
            expected=mismatch.expected,
            actual=mismatch.actual,
            message=mismatch.what,
        )
        if mismatch.timing is not None:
            # On a shared queue the wait may be for the other client.
            timing = msgspec.structs.replace(mismatch.timing, both_sides=self._is_shared)
            return msgspec.structs.replace(finding, timing=timing)
        return finding if mismatch.certain else self.with_timing(finding)

    def failed(self, failure: OperationFailed | OperationIndeterminate) -> Finding:
        """Return the finding of a failed call: one of the client's, or of Node's on the client's queue."""
        ending = (failure.op, failure.error.code)
        own = [call for call in self.client.transcript.all_calls if (call.op, call.outcome) == ending]
        # A call with an unknown outcome is not in the transcript.
        requirement = self.attribution.of_operation(failure.op) if isinstance(failure, OperationIndeterminate) else ""
        if failure.error.message == WITHOUT_EFFECT or self._never_works(*ending):
            requirement = self.attribution.of_loss(failure.op)
        finding = self._broken("operation-failed", str(failure), own[-1] if own else None, requirement, op=failure.op)
        if failure.error.code in MAY_BE_THE_MACHINE:
            return msgspec.structs.replace(finding, timing=self._soon)
        return finding if failure.error.code == INVALID else self.with_timing(finding)

    def _never_works(self, op: str, outcome: str) -> bool:
        """Whether the client reports an unknown error at each call of the operation, in all scenarios.

        A single call is enough if neither the value of an argument nor a disturbance by the kit can be the reason.
        """
        has_arguments = any(argument.required for argument in msgspec.structs.fields(REGISTRY[op]))
        least = 2 if has_arguments or self.client.transcript.disturbed else 1
        return outcome == OTHER and self.client.driver.breakdowns.always_failed(op, least=least)

    def lost(self, failure: OperationIndeterminate) -> Finding:
        """Return the finding of a call during which the client lost an undisturbed connection, or stopped waiting."""
        loss = self.attribution.of_loss(failure.op)
        finding = self._broken("operation-failed", str(failure), None, loss, op=failure.op)
        return msgspec.structs.replace(finding, timing=self._soon)

    def driver_broken(self, broken: DriverBroken) -> Finding:
        """Return the finding of a broken driver; it counts against the operation that was running."""
        call = self.client.transcript.broken_in
        finding = self._broken("driver-broken", str(broken), call, self.attribution.of_breakage(call))
        timing = Timing.of_wait(broken.deadline_ms) if isinstance(broken, DriverHung) else None
        return msgspec.structs.replace(finding, timing=timing)

    def endless_script(self, script: str) -> Finding:
        """Return the finding of a script that does not end; it counts against the operation under way."""
        _, _, op = self.client.transcript.step.partition(CALL)
        if op in {"", "resolve", "open"}:
            op = WORKER_RUN if self.client.managed else culprits_now(self.attribution.calls)[0]
        row = self.attribution.operations.row_of(op)
        return self._broken("endless-script", f"{script} does not end, so Redis serves no client", None, row)

    def flood(self, sent: Iterable[CommandRecord]) -> Finding:
        """Return the finding of a client that sends these commands although all its objects are closed."""
        message = "it goes on sending commands, thousands a second, after everything is closed"
        most = Counter(" ".join(filter(None, (command.name, command.script))) for command in sent).most_common(3)
        found = self._broken("flood", message, None, IDLE_TRAFFIC)
        seen = ", ".join(f"{command} ({times} times)" for command, times in most)
        return msgspec.structs.replace(found, expected="silence", actual=seen)

    def not_ended(self, exceeded: str, limit_s: float) -> Finding:
        """Return the finding of an exceeded time limit (s); it counts against the client's last operation."""
        finding = self._broken("time-limit", exceeded, None)
        return msgspec.structs.replace(finding, timing=Timing.of_wait(round(limit_s * 1000)))

    def unexpected(self, seen: str) -> Finding:
        """Return the finding of an unexpected state that stopped the scenario."""
        return self.with_timing(self._broken("unexpected-state", seen, None))

    @property
    def _soon(self) -> Timing:
        """The timing of an end that the client decided on after a time that the kit does not know."""
        return timing_of(SHORTEST_MS, both_sides=self._is_shared)

    def _broken(
        self, kind: str, message: str, call: RecordedCall | None, requirement: str = "", *, op: str = ""
    ) -> Finding:
        return Finding(
            requirement=requirement or self.attribution.of_call(call),
            source="protocol",
            kind=kind,
            severity="wrong-behaviour",
            where="driver",
            key="",
            expected="the call succeeds",
            actual=message,
            message=message,
            place=call.op if call else op,
        )

    def answers(self, oracle: Participant, client: Participant) -> list[Finding]:
        """Return findings for answers that differ from the oracle's."""
        different = [finding for finding in compare_answers(oracle, client) if not self._is_for_getters(finding)]
        return [self.with_timing(self._of_answer(finding), compared=True) for finding in different]

    def _of_answer(self, finding: Finding) -> Finding:
        op, _, what = finding.where.removeprefix("answer.").rpartition(".")
        if what != "outcome" or not self._never_works(op, finding.actual):
            return self.attributed(finding)
        self.useless.add(op)
        return msgspec.structs.replace(finding, requirement=self.attribution.of_loss(op))

    def _is_for_getters(self, finding: Finding) -> bool:
        """Whether only the rows about getters say what a field of a job is, and the client has no getter.

        Values that a worker works on (`WORKED_ON`) count against its claim.
        """
        owner = self.ledger.owner_of(finding.where)
        if owner is None or not owner.id.startswith("getters.job.") or finding.where.endswith(WORKED_ON):
            return False
        return not load_operations().about(owner.id) & self.attribution.declared

    def worker_errors(self, oracle: Participant, client: Participant) -> list[Finding]:
        """Return a finding for the first `error` of the client's workers, if Node's have none and it is forbidden."""
        # Node's errors show that the scenario itself provokes them.
        if WORKER_ERRORS in self.scenario.without or _errors_of(oracle):
            return []
        # The first one is enough: a worker that fails usually repeats its error in every round.
        return [self.with_timing(self.attributed(_worker_error(message))) for message in _errors_of(client)[:1]]

    def states(self, oracle: Snapshot, client: Snapshot, *, frozen: bool, managed: bool) -> list[Finding]:
        """Return findings for differences between the states of both queues."""
        rules = chosen_rules(frozen=frozen, managed=managed, off=self.rules_off)
        different = [self.attributed(finding_of(difference)) for difference in compare_states(oracle, client, rules)]
        return [self.with_timing(finding, compared=True) for finding in different]

    def states_half_way(
        self, oracle: Snapshot, client: Snapshot, *, frozen: bool, managed: bool, moving: bool
    ) -> list[Finding]:
        """Return findings like `states` for two sides that stopped at the same step, because the client's failed.

        Differences that follow from a job's being somewhere else are left out: the failure may be the reason. `moving`:
        workers or waits were under way, so that any job may be somewhere else.
        """
        rules = chosen_rules(frozen=frozen, managed=managed, off=self.rules_off)
        found = apart_from_moves(compare_states(oracle, client, rules), moving=moving)
        return [self.with_timing(self.attributed(finding_of(difference)), compared=True) for difference in found]

    def invariants(self, snapshot: Snapshot) -> list[Finding]:
        """Return findings for broken invariants, except those that the scenario switches off with a reason."""
        others = {ORACLE_HEALTH, WORKER_ERRORS, *TRAFFIC_CHECKS}
        off = {name: reason for name, reason in self.scenario.without.items() if name not in others}
        broken = check_snapshot(snapshot, off, version=self.oracle_version)
        return [found for finding in broken for found in self._by_requirement(finding, snapshot)]

    def _by_requirement(self, finding: Finding, left: Snapshot) -> list[Finding]:
        """Return the finding; that of a whole list once for each requirement that its jobs count against."""
        queue, _, container = finding.key.rpartition(":")
        if finding.where != "invariant.paused-list":
            return [self.attributed(finding)]
        jobs = left.members(queue, container)
        found = [self.attributed(msgspec.structs.replace(finding, key=f"{queue}:{job}")) for job in jobs]
        return list({one.requirement: one for one in reversed(found)}.values())

    def handover(self, snapshot: Snapshot, *, who: str, calls: Sequence[RecordedCall]) -> list[Finding]:
        """Return findings for jobs that were lost or ran twice. `who`: the assignment of roles, as text."""
        removals = any(call.op in REMOVALS for call in calls)
        lost_or_repeated = check_handover(snapshot, removals=removals, who=who)
        return [self.with_timing(self.attributed(finding)) for finding in lost_or_repeated]

    def names(self, names: Names) -> list[Finding]:
        """Return findings for names that differ from Node's, if the scenario is about them: one per requirement."""
        found = {**names.deviations, **({FIXED_PREFIX: names.fixed_prefix} if names.fixed_prefix else {})}
        owners = {where: self.ledger.owner_of(where, among=self.scenario.requirements) for where in found}
        return [_other_name(row, where, found[where]) for where, row in owners.items() if row is not None]

    def traffic(self, commands: Sequence[CommandRecord], *, cluster: bool) -> list[Finding]:
        """Return findings for malformed commands, except for checks that the scenario switches off."""
        off = {name: reason for name, reason in self.scenario.without.items() if name in TRAFFIC_CHECKS}
        scripts = scripts_of(self.oracle_version)
        findings = traffic.check_traffic(commands, cluster=cluster, switched_off=off, scripts=scripts)
        return [self.attributed(finding) for finding in findings]

    def health(self, oracle: Participant, queues: list[str], left: Snapshot) -> list[Finding]:
        """Return findings for everything that Node, on the client's prefix, cannot read of these queues."""
        found = oracle_health(oracle, queues)
        if READABLE_BY_NODE not in self.scenario.requirements:
            found = [self._at_its_cause(finding, left) for finding in found]
        return [self.attributed(finding) for finding in found]

    def misled(self, named: Snapshot) -> list[tuple[str, str]]:
        """Return the jobs that others have moved elsewhere for what the client's `add` stored; see `misled_jobs`."""
        client = self.client
        return list(misled_jobs(named, client.transcript.all_calls, client.performed, client.clock.now_ms()))

    def blamed_on_what_was_left(
        self, finding: Finding, left: Snapshot, misled: Sequence[tuple[str, str]] = ()
    ) -> Finding:
        """Return the finding of a failed call of Node's at the malformed value that the client left.

        Without one it counts against what the client itself has done. A missing field counts against its own row, and
        so does what the client's `add` stored if it has led others to move a job elsewhere (`misled`).
        """
        places = (place for key, place in misled if may_follow_from_a_move(finding, key))
        if owner := self.ledger.owner_of(next(places, "")):
            return msgspec.structs.replace(finding, requirement=owner.id)
        if finding.source == "assertion" and finding.actual == NOTHING and finding.where in WRITTEN_AT_THE_END:
            ended = [
                left.job(row.queue, row.job) for row in left.memberships if row.container in ("completed", "failed")
            ]
            field = finding.where.removeprefix("job.")
            missing = any(job is not None and field not in job.fields for job in ended)
            row = self.attribution.of_mismatch(finding.where, missing=missing)
            return msgspec.structs.replace(finding, requirement=row)
        performed, calls = self.client.performed, self.client.transcript.all_calls
        by_client = finding.place in performed.own or (finding.place and finding.place not in performed.stand_in)
        if finding.kind != "operation-failed" or by_client or not performed.stand_in:
            return finding
        own = [call for call in calls if call.by != "stand-in"]
        blamed = replace(self.attribution, calls=own).of_call(None)
        cause = self._at_its_cause(finding, left)
        return self.attributed(cause) if cause is not finding else msgspec.structs.replace(finding, requirement=blamed)

    def _at_its_cause(self, finding: Finding, left: Snapshot) -> Finding:
        """Move a finding about Node, which could not go on, to the first value of the client's that it cannot read."""
        names = self.client.names
        written = {
            names.to_client(key).removeprefix(f"{left.prefix}:") for key in self.client.transcript.keys_of_the_kit()
        }
        for where, key in unreadable_places(left):
            # The client did not leave the damages that the kit made on purpose.
            stream = f"{key.partition(':')[0]}:events" if where.startswith("event.") else key
            if not {key, stream} & written:
                return msgspec.structs.replace(finding, where=where, key=key, place="")
        return finding

    def attributed(self, finding: Finding) -> Finding:
        """Return the finding with the requirement that it counts against."""
        located = finding
        if finding.source == "invariant":
            # Invariants are checked under the client's names, but the recorded calls have the scenario's.
            names = self.client.names
            key = names.to_scenario(f"{names.client_prefix}:{finding.key}").removeprefix(f"{names.prefix}:")
            located = msgspec.structs.replace(finding, key=key)
        return msgspec.structs.replace(finding, requirement=self.attribution.of_finding(located))


def declared_by(ready: Ready) -> frozenset[str]:
    """The operations of a client, its worker's own loop included."""
    return frozenset(ready.ops) | ({WORKER_RUN} if "managed-worker" in ready.capabilities else set())


def _errors_of(participant: Participant) -> list[str]:
    """Return the messages of `error` events of its workers that no step of the scenario waited for."""
    events = (event for handle in participant.workers for event in participant.driver.take_events(handle))
    return [str(event.args.get("message", "")) for event in events if event.name == "error"]


def _worker_error(message: str) -> Finding:
    return Finding(
        requirement=NOBODY_BLAMED,
        source="events",
        kind="worker-error",
        severity="wrong-behaviour",
        where="worker.error",
        key="",
        expected="no error, as of Node's worker",
        actual=message,
        message=f"a worker emits an error where Node's has none: {message}",
    )


def finding_of(difference: Difference) -> Finding:
    """Convert a difference between two snapshots into a finding that is not attributed yet."""
    return Finding(
        requirement=NOBODY_BLAMED,
        source="events" if difference.where.startswith("event.") else "snapshot",
        kind=difference.kind,
        severity=difference.severity,
        where=difference.where,
        key=difference.key,
        expected=difference.expected,
        actual=difference.actual,
        message=str(difference),
    )


def _other_name(row: Requirement, where: str, seen: str) -> Finding:
    return Finding(
        requirement=row.id,
        source="protocol",
        kind="other-names",
        severity="wrong-behaviour",
        where=where,
        key="",
        expected=row.statement,
        actual=seen,
        message=f"the client uses other names ({seen}); everything else is still compared",
    )


# Snapshots, compared in canonical form.


def chosen_rules(*, frozen: bool, managed: bool, off: Collection[str] = ()) -> tuple[CanonicalRule, ...]:
    """Return the rules of a comparison, without those that are switched off.

    `frozen`: the kit set both clocks, so times are compared exactly. `managed`: a worker's loop ran, so the order of
    independent events, marks of active jobs and the remaining wake-up marker depend on timing; an invariant checks the
    marker.
    """
    rules = FROZEN_CLOCK_RULES if frozen else DEFAULT_RULES
    rules = (INDEPENDENT_EVENTS, *rules, WORKER_TRACES, STALLED_MARKS) if managed else rules
    return tuple(rule for rule in rules if rule.name not in off)


def check_names(off: Collection[str]) -> None:
    """Raise UsageProblem for a name that is not a canonical rule."""
    without(ALL_RULES, *off)


def compare_states(oracle: Snapshot, client: Snapshot, rules: Sequence[CanonicalRule]) -> list[Difference]:
    """Return the differences between two snapshots by these rules."""
    # Scenarios use different lock durations, and another requirement checks them.
    return compare(oracle, client, rules, CanonicalContext(lock_duration_ms=None))


# Answers, call by call.


def compare_answers(oracle: Participant, client: Participant) -> list[Finding]:
    """Return one finding per place in which an answer differs from the oracle's; prefixes are replaced first."""
    exact = oracle.clock.frozen and client.clock.frozen
    findings = []
    for number, (theirs, ours) in enumerate(zip_longest(oracle.transcript.calls, client.transcript.calls), start=1):
        if theirs is None or ours is None:
            break  # one side stopped early, which is reported as a separate finding
        # An operation without an answer can only be judged by its effects in Redis.
        if ours.unanswered:
            continue
        if "stand-in" in (theirs.by, ours.by):
            continue  # a stand-in answered
        # Both prefixes on both sides: equal texts that mention one of them must stay equal.
        prefixes = (oracle.prefix, client.prefix)
        expected, actual = _plain(theirs, prefixes), _plain(ours, prefixes)
        # On running clocks the two sides are called at different moments, so due times must differ.
        if not exact:
            expected, actual = _without_due_ids(expected), _without_due_ids(actual)
        for where, wanted, got in _differences(f"answer.{theirs.op}", expected, actual, exact=exact):
            message = f"call {number}, {theirs.op}: {where.removeprefix(f'answer.{theirs.op}')[1:] or 'answer'} differs"
            findings.append(
                Finding(
                    requirement=NOBODY_BLAMED,
                    source="answer",
                    kind="wrong-answer",
                    severity="wrong-behaviour",
                    where=where,
                    key="",
                    expected=value_text(wanted),
                    actual=value_text(got),
                    message=message,
                )
            )
    return findings


def _plain(answer: RecordedCall, prefixes: Sequence[str]) -> Any:
    plain: Any = {"outcome": answer.outcome, **(answer.value or {})}
    # One prefix may be the start of another: the longer one must be tried first.
    for prefix in sorted((prefix.strip("{}") for prefix in prefixes), key=len, reverse=True):
        plain = _without_prefix(plain, prefix)
    return plain


def _without_prefix(value: Any, prefix: str) -> Any:
    if isinstance(value, str):
        return value.replace(prefix, "<prefix>")
    if isinstance(value, dict):
        return {_without_prefix(key, prefix): _without_prefix(item, prefix) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_prefix(item, prefix) for item in value]
    return value


def _without_due_ids(value: Any) -> Any:
    """Remove due times (Unix ms) from the end of the ids of schedulers' jobs: each depends on its client's clock."""
    if isinstance(value, str):
        return _DUE_IN_ID.sub(r"\g<before><due>", value)
    if isinstance(value, dict):
        return {name: _without_due_ids(item) for name, item in value.items()}
    return [_without_due_ids(item) for item in value] if isinstance(value, list) else value


def _due_times(value: Mapping[str, Any]) -> frozenset[str]:
    """Fields of a job of a scheduler, or of its options, that depend on the client's current time."""
    opts = value.get("opts")
    of_scheduler = isinstance(opts, dict) and "repeat" in opts
    return _DUE_IN_OPTIONS if "repeat" in value else _DUE_IN_JOB if of_scheduler else frozenset()


def _differences(where: str, expected: Any, actual: Any, *, exact: bool) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        if {"id", "name", "data_raw"} <= expected.keys() & actual.keys() and expected["id"] != actual["id"]:
            # Each of their other fields may differ for this reason alone.
            yield f"{where}.id", expected["id"], actual["id"]
            return
        # A field that one side marks as a due time is one on the other side as well, or on neither.
        times = frozenset() if exact else TIMES | _due_times(expected) | _due_times(actual)
        skipped = times | left_out(expected, actual)
        for name in {**expected, **actual}:
            if name in skipped:
                continue
            yield from _differences(f"{where}.{name}", expected.get(name), actual.get(name), exact=exact)
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for wanted, got in zip(expected, actual, strict=True):
            yield from _differences(where, wanted, got, exact=exact)
    elif (
        expected != actual and not (expected in UNSET and actual in UNSET) and not _same_value(where, expected, actual)
    ):
        yield where, expected, actual


def _same_value(where: str, expected: Any, actual: Any) -> bool:
    """Whether two JSON texts of a driver are equivalent; Redis shows how they were stored."""
    if where.endswith("_raw") and (expected, actual) in ((None, "null"), ("null", None)):
        return True  # many languages have one word for both
    if not (where.endswith("_raw") and isinstance(expected, str) and isinstance(actual, str)):
        return False
    return same_reading(expected, actual)


# Node reads the client's queue.


def oracle_health(oracle: Participant, queues: list[str]) -> list[Finding]:
    """Read every queue with Node's getters, and with QueueEvents from the first event on.

    `oracle` must be a participant on the client's prefix, with the real clock. Returns a finding for everything that
    Node cannot read.
    """
    return [finding for name in queues for finding in (*_getters(oracle, name), *_events(oracle, name))]


def _getters(oracle: Participant, name: str) -> list[Finding]:
    try:
        # `skipMetasUpdate`, because reading must not write `meta` into the client's queue.
        handle = oracle.queue(name, skipMetasUpdate=True)
        # All types, so that a job in any container is read.
        handle.call(queue.GetJobCounts(types=JOB_TYPES))
        jobs = handle.call(queue.GetJobs(types=JOB_TYPES)).jobs
        handle.close()
    except OperationIndeterminate as failure:
        # Node has read every job; only its answer does not fit a line of the driver protocol.
        if failure.error.code != TOO_LONG:
            raise
        return []
    except OperationFailed as failure:
        return [_unreadable("getters", name, failure.error.message)]
    holes = sum(1 for job in jobs if job is None)
    return [_unreadable("ghosts", name, f"getJobs returned {holes} jobs without a hash")] if holes else []


def _events(oracle: Participant, name: str) -> list[Finding]:
    stream = oracle.redis(name).events()
    if not stream:
        return []
    # From the first event on, so that the reader also parses events that were written before it opened.
    reader = oracle.events(name, lastEventId="0-0")
    try:
        # As many deliveries as the stream has entries: a reader that stops at a malformed one delivers fewer.
        for _ in stream:
            reader.next_delivery()
        error = next((event for event in oracle.driver.take_events(reader.handle) if event.name == "error"), None)
    except Mismatch as mismatch:
        return [msgspec.structs.replace(_unreadable("queue-events", name, str(mismatch)), timing=mismatch.timing)]
    finally:
        # Closed even after a failure: an open blocking reader would hold its connection.
        oracle.call(lifecycle.Close(), handle=reader.handle)
    return [_unreadable("queue-events", name, str(error.args.get("message")))] if error else []


def _unreadable(part: str, name: str, seen: str) -> Finding:
    reader = "queue-events" if part == "queue-events" else "getters"
    return Finding(
        requirement=NOBODY_BLAMED,
        source="oracle-health",
        kind=f"oracle-{part}",
        severity="breaks-others",
        where=f"oracle.{part}",
        key=name,
        expected=f"Node's {reader} read the queue without error",
        actual=seen,
        message=f"Node's {reader} cannot read what the client left in queue {name!r}: {seen}",
    )
