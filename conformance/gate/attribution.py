"""Attribution: which requirement a finding counts against. Pure.

1. If a call that should have been refused broke an invariant, the finding counts against the requirement to refuse it:
   the call did what it was asked to do, and no row promises that the result is valid.
2. Otherwise the row that owns the finding's locator is responsible, if the client declares one of its operations.
3. Otherwise the operation that caused the finding is responsible: through the first of the scenario's requirements that
   is about this operation, or the first that is about no particular operation and owns no locators, or the operation's
   own row. A row with locators is about these only: that all events are readable says nothing about a refused call.
   Rows about the names of keys (`KEY_NAMES`) are the exception: under another name, no operation does what it should.
4. If the driver broke, the operation's own row is responsible, in every scenario.

The scenario's first requirement is not a good default: it may be about something that worked, or that the client does
not claim. The responsible operation is inferred from the calls (`culprits_*`), most likely first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.checkers.handovers import TWICE
from conformance.checkers.snapshot_checks import check_snapshot
from conformance.findings import Finding
from conformance.ledger.loader import Ledger, Requirement
from conformance.ledger.operations import EVENTS_READ, WORKER_RUN, OperationTable
from conformance.observe.tables import Snapshot, as_number
from conformance.participants.expect import ROW
from conformance.participants.stand_in import PerformedOperations
from conformance.participants.transcript import RecordedCall

BY_DOING = ("job", "membership.state", "answer", "answer.*", "driver", "scenario")
"""Locators (patterns) that no row owns as a whole: an operation that puts a job in the wrong place breaks its own
promise. Single answers can still have owners."""

KEPT_ALONG = frozenset(
    f"job.{field}"
    for field in ("ats", "atm", "delay", "failedReason", "finishedOn", "pb", "priority", "processedOn", "returnvalue")
) | {"job.stc", "job.timestamp", "event.active"}
"""Locators of fields and events that scripts write along with their work, which shows in other places as well."""

SCHEDULES = ("scheduler", "invariant.schedulers")
"""Starts of locators of schedules."""

PAUSES = frozenset({"queue.pause", "queue.resume"})
CLAIMS = frozenset({"worker.getNextJob", WORKER_RUN})
PUTS_OFF = frozenset({"job.promote", "job.changeDelay", "queue.promoteJobs", "worker.moveToDelayed"})
"""Operations that pause or resume a queue, that start jobs, and that change when a job is due."""

PARKED_OR_NOT = {'["paused"]', '["wait"]'}
"""The values of an assertion about the place of a job that differ if one side parks it."""
FINISHED = frozenset({"completed", "failed"})
"""The states of jobs that have ended."""

KEY_NAMES = frozenset({"identity.prefix", "traffic.one-slot.*"})
"""Locators of rows about the names of keys."""

OPENED_TO = {"flow": "flow.add", "events": EVENTS_READ, "relay": "relay.subscribe"}
"""The operation for which a handle of this role is opened."""

_ID_FIELDS = frozenset({"child", "children", "id", "ids", "job", "job_id", "jobId", "jobs", "parent"})
_LEAVE_JOBS_ALONE = frozenset({"open", "close", "reset", "job.waitUntilFinished"})


@dataclass(frozen=True)
class Attribution:
    """Attributes findings in one scenario to requirements of one client.

    `declared`: its operations, with `worker.run` if it has loops. `calls`: its calls, in order. `not_refused`: the call
    that should have been refused and was not. `history`: `calls` and those of others on its queues, in order.
    """

    requirements: tuple[str, ...]
    ledger: Ledger
    operations: OperationTable
    declared: frozenset[str]
    calls: Sequence[RecordedCall] = ()
    not_refused: RecordedCall | None = None
    history: Sequence[RecordedCall] = ()

    def of_finding(self, finding: Finding) -> str:
        """Return the requirement that a difference, a broken invariant or a wrong answer counts against."""
        # First, because the acceptance explains the state completely: no row promises what an invalid call leaves.
        if finding.source == "invariant" and self._was_left_by_an_acceptance(finding.key):
            return self.of_call(self.not_refused)
        if self._was_left_by_a_pause(finding):
            return self.operations.row_of("queue.pause")
        silent = finding.where == TWICE and finding.place != "event.active" and self._was_put_back(finding.key)
        owner = (
            (None if silent else self._owner(finding.where))
            or self._owner(finding.place)
            or self._owner_of_successor(finding)
        )
        if owner is None and finding.kind == "extra-field":
            # A client that has nothing to do with the field must not write it, like any other.
            owner = self._owner(f"{finding.where.rpartition('.')[0]}.*")
        return owner.id if owner else self._answering(culprits_at(finding.where, finding.key, self.calls))

    def _owner_of_successor(self, finding: Finding) -> Requirement | None:
        """Return the row about a job's successor for what a client that makes no schedules leaves of them."""
        is_job = finding.where == "job" and ":repeat:" in finding.key
        made = self._answers_for("scheduler.record") or not (is_job or finding.where.startswith(SCHEDULES))
        return None if made else self._owner("job.nrjid")

    def of_mismatch(self, where: str, *, missing: bool = False) -> str:
        """Return the requirement that a failed assertion of the scenario counts against.

        An assertion is about the scenario's own requirements, so an owner outside of them is the last choice, unless
        it names another (`row.ID`), or the field that it reads is `missing`: then nothing shows whether they hold.
        """
        named = where.removeprefix(ROW)
        if named != where and self._answers_for(self.ledger.row(named).id):
            return named
        own = self._owner(where, among=self.requirements) if where else None
        if missing and where in KEPT_ALONG:
            own = own or self._owner(where)
        # Other owners come last: the assertion was written about the scenario's own requirements.
        if own:
            return own.id
        # An answer comes from one call; any other assertion may be about everything that was called so far.
        culprits = culprits_at(where, "", self.calls) if where.startswith("answer.") else culprits_now(self.calls)
        # The scenario's author wrote the assertion for its rows, so a row with locators may have written it, too.
        concerned = self._concerned(culprits) or self._generic(self.requirements)
        owner = self._owner(where) if where and not concerned else None
        return owner.id if owner else concerned or self.operations.row_of(culprits[0])

    def of_call(self, call: RecordedCall | None) -> str:
        """Return the requirement that a failed call counts against."""
        return self._answering((operation_of(call),) if call else culprits_now(self.calls))

    def of_operation(self, op: str) -> str:
        """Return the requirement that an operation with an unknown outcome counts against."""
        return self._answering((op,))

    def of_breakage(self, call: RecordedCall | None) -> str:
        """Return the requirement that a driver broken during a call counts against: the operation's own row.

        An operation that hangs or crashes shows nothing about the limits, flows and races that it was called for.
        """
        return self.operations.row_of(operation_of(call)) if call else self.of_call(None)

    def of_loss(self, op: str) -> str:
        """Return the requirement that an operation without effect counts against: its own row.

        The loss of an undisturbed connection, a loop that does nothing with an outcome, or an operation that always
        fails shows nothing about the scenario's requirements, which are not reached.
        """
        return self.operations.row_of(op)

    def _was_left_by_an_acceptance(self, key: str) -> bool:
        return self.not_refused is not None and next(_changes_at(key, self.calls), None) is self.not_refused

    def _was_left_by_a_pause(self, finding: Finding) -> bool:
        """Whether a job is where a pause or resume, as the last call that should have moved it, has left it."""
        if finding.where != "invariant.paused-list" and (
            finding.where != "membership.state" or {finding.expected, finding.actual} != PARKED_OR_NOT
        ):
            return False
        history = self.history or self.calls
        calls = (call for call in reversed(history) if not reads(call.op) and call.op not in _LEAVE_JOBS_ALONE)
        last = next((call for call in calls if call.op in PAUSES or _names(call, finding.key)), None)
        if last is None or last.op not in PAUSES or last.by != "self" or _running(self.calls):
            return False
        # Any other job may have started to wait after the pause, by a call that does not name it.
        before = next((call for call in calls if _names(call, finding.key)), None)
        added = before is not None and before.op == "queue.add" and "delay" not in before.args.get("opts", {})
        # No other call puts a job into `paused` while the queue runs.
        return added or last.op == "queue.resume"

    def _was_put_back(self, key: str) -> bool:
        """Whether a job was retried by hand, or claimed by hand and then left to a check for stalled jobs."""
        named = [call.op for call in self.history or self.calls if _names(call, key)]
        return "job.retry" in named or named[-1:] == ["worker.getNextJob"]

    def _owner(self, where: str, among: Sequence[str] | None = None) -> Requirement | None:
        owner = self.ledger.owner_of(where, among=among) if where else None
        return owner if owner and self._answers_for(owner.id) else None

    def _answers_for(self, row: str) -> bool:
        """Whether the client declares an operation that the row is about."""
        about = self.operations.about(row)
        return not about or bool(about & self.declared)

    def _answering(self, culprits: Sequence[str]) -> str:
        generic = self._generic(row for row in self.requirements if KEY_NAMES.issuperset(self.ledger.row(row).owns))
        return self._concerned(culprits) or generic or self.operations.row_of(culprits[0])

    def _concerned(self, culprits: Sequence[str]) -> str:
        """Return the scenario's first requirement about a culprit; empty if none is."""
        rows = (row for op in culprits for row in self.requirements if op in self.operations.about(row))
        return next(rows, "")

    def _generic(self, rows: Iterable[str]) -> str:
        """Return the first row that is about no particular operation; empty if there is none."""
        return next((row for row in rows if not self.operations.about(row)), "")


def misled_jobs(
    left: Snapshot, calls: Iterable[RecordedCall], performed: PerformedOperations, now_ms: int
) -> Iterator[tuple[str, str]]:
    """Yield the keys of jobs that others moved, or left, for what the client's `add` stored, and its locator."""
    by_any = performed.own | performed.stand_in
    by_hand, again = PUTS_OFF & by_any, {"job.retry", "queue.retryJobs"} & by_any
    claimed_by_others = bool(CLAIMS & performed.stand_in) and not CLAIMS & performed.own
    by_loop = claimed_by_others and "worker.getNextJob" not in performed.stand_in
    asleep = {broken.key for broken in check_snapshot(left) if broken.kind == "base-marker"} if by_loop else ()
    adds = [call for call in calls if (call.op, call.outcome) == ("queue.add", "ok") and call.value]
    opts_of = {call.value.get("id"): call.args.get("opts") or {} for call in adds}
    for job in (job for job in left.jobs if job.id in opts_of):
        opts, places = opts_of[job.id], left.containers_of(job.queue, job.id)
        key, delay_ms, attempts = f"{job.queue}:{job.id}", as_number(opts.get("delay")), as_number(opts.get("attempts"))
        if len(places) != 1:
            continue
        too_often = (job.number("atm") or 0) >= max(1, attempts or 1) and not again
        if "attemptsMade" in job.fields and too_often and places[0] not in FINISHED:
            yield key, "job.*"
        if not by_hand and places == ["delayed"] and "backoff" in job.opts and not {"backoff", "delay"} & opts.keys():
            yield key, "job.opts.backoff"
        if f"{job.queue}:marker" in asleep and places[0] in ("wait", "prioritized") and "processedOn" not in job.fields:
            yield key, "marker.base"
        if places[0] in ("wait", "paused") and opts.get("priority") and "priority" not in job.fields:
            yield key, "job.priority"
        is_early = delay_ms and (job.number("timestamp") or 0) + delay_ms > now_ms
        if claimed_by_others and not by_hand and places != ["delayed"] and is_early:
            yield key, "membership.delayed.score"


def may_follow_from_a_move(finding: Finding, key: str) -> bool:
    """Whether a finding may only show that this job has gone another way."""
    if finding.source == "assertion":
        return finding.where in ("scenario", "event.order")
    of_job = finding.where in ("membership.state", "job.delay") or finding.kind in ("missing-event", "extra-event")
    return (finding.key == key and of_job and finding.where != "event.added") or (
        finding.where == "event.order" and finding.key == f"{key.partition(':')[0]}:events"
    )


def culprits_at(where: str, key: str, calls: Sequence[RecordedCall]) -> tuple[str, ...]:
    """Return the operations that may have written what is at a locator and key (`QUEUE:ID` of a job, or a queue's key).

    An answer comes from the operation that was called. Anything else may come from a managed worker, if there is one,
    from the calls that name the job, the last first, or from other calls that write: a pause or a drain moves jobs
    without naming them.
    """
    if where.startswith("answer."):
        return (_operation_in(where),)
    # Without a writing call even a reading one is better than no culprit.
    doing = list(_changes_at(key, calls)) or list(reversed(calls))
    # A running worker comes first: it acts on its own at any time, also between calls.
    return tuple(dict.fromkeys([*_running(calls), *map(operation_of, doing)])) or ("open",)


def _changes_at(key: str, calls: Sequence[RecordedCall]) -> Iterator[RecordedCall]:
    """Yield the calls that may have changed a key, most likely first; a call that names the job comes twice."""
    # The last call first, because it overwrites what earlier calls wrote.
    writing = [call for call in reversed(calls) if not reads(call.op) and call.op not in _LEAVE_JOBS_ALONE]
    yield from (call for call in writing if _names(call, key))
    yield from writing


def _names(call: RecordedCall, key: str) -> bool:
    # Ids may contain colons, so the end of the key is compared.
    return any(key.endswith(f":{job}") for job in jobs_named(call))


def culprits_now(calls: Sequence[RecordedCall]) -> tuple[str, ...]:
    """Return the operations that may have made an assertion fail: all that were called, the last one first."""
    return tuple(dict.fromkeys(operation_of(call) for call in reversed(calls))) or ("open",)


def reads(op: str) -> bool:
    """Whether an operation only reads, and so cannot have written anything."""
    # `getNextJob` looks like a getter, but claims a job.
    method = op.rpartition(".")[2]
    return method == "count" or (method.startswith(("get", "is")) and op != "worker.getNextJob")


def operation_of(call: RecordedCall) -> str:
    """Return the operation behind a call: opening a worker runs it, and `resolve` only ends a job of it."""
    if call.op == "resolve":
        return WORKER_RUN
    role, processor = call.args.get("role"), call.args.get("processor")
    if call.op == "open" and role == "worker":
        return "worker.getNextJob" if processor in (None, "manual") else WORKER_RUN
    if call.op == "open" and role in OPENED_TO:
        return OPENED_TO[role]
    return call.op


def jobs_named(call: RecordedCall) -> frozenset[str]:
    """Return the job ids in the arguments and in the answer of a call."""
    return frozenset(_ids({"args": call.args, "value": call.value}))


def _ids(value: Any, *, named: bool = False) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _ids(item, named=name in _ID_FIELDS)
    elif isinstance(value, list):
        for item in value:
            yield from _ids(item, named=named)
    elif named and isinstance(value, str):
        yield value


def _running(calls: Iterable[RecordedCall]) -> list[str]:
    return [WORKER_RUN] if any(operation_of(call) == WORKER_RUN for call in calls) else []


def _operation_in(where: str) -> str:
    """Return the operation of `answer.OPERATION.FIELD`; some names contain a dot."""
    words = where.split(".")
    return words[1] if words[1] in {"open", "close", "reset", "resolve"} else ".".join(words[1:3])
