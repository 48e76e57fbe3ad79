"""Which requirement a finding speaks against. Pure.

1. Where an invariant is broken by a call that should have been refused, whatever speaks against its acceptance: the
   call has left what it asked for, and no row promises that this is in order.
2. Else the row that owns the place of the finding, if the client declares one of the operations that it is about.
3. Else the operation that did it answers: by the first of the scenario's requirements that is about this operation,
   else by the first that is about none in particular, else by the operation's own row.
4. For a driver that broke, the operation's own row, in every scenario.

Never simply by the scenario's first requirement: that one may be about something that worked, or that the client does
not claim to have. Which operation did it is guessed from the calls (`culprits_*`), best guess first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.findings import Finding
from conformance.ledger.loader import Ledger, Requirement
from conformance.ledger.operations import EVENTS_READ, WORKER_RUN, OperationTable
from conformance.participants.transcript import RecordedCall

BY_DOING = ("job", "membership.state", "answer", "answer.*", "driver", "scenario")
"""Locators (patterns) that no row owns as a whole: whoever puts a job in the wrong place breaks what that operation
promises. Single answers have owners all the same."""

OPENED_TO = {"flow": "flow.add", "events": EVENTS_READ}
"""What an object of this role is opened for."""

_ID_FIELDS = frozenset({"child", "children", "id", "ids", "job", "job_id", "jobId", "jobs", "parent"})
_LEAVE_JOBS_ALONE = frozenset({"open", "close", "reset", "job.waitUntilFinished"})


@dataclass(frozen=True)
class Blame:
    """Attributes findings in one scenario to one client. `declared`: its operations, with `worker.run` if it has that.

    `calls`: what it did, in order. `not_refused`: the one among them that should have been refused, and was not.
    """

    requirements: tuple[str, ...]
    ledger: Ledger
    operations: OperationTable
    declared: frozenset[str]
    calls: Sequence[RecordedCall] = ()
    not_refused: RecordedCall | None = None

    def of_finding(self, finding: Finding) -> str:
        """The requirement that a difference, a broken invariant or a wrong answer speaks against."""
        if finding.source == "invariant" and self._was_left_by_an_acceptance(finding.key):
            return self.of_call(self.not_refused)
        owner = self._owner(finding.where) or self._owner(finding.place)
        return owner.id if owner else self._answering(culprits_at(finding.where, finding.key, self.calls))

    def of_mismatch(self, where: str) -> str:
        """The requirement against which it speaks that a statement of the scenario does not hold.

        A statement says what the scenario is about: an owner that it does not name comes last.
        """
        own = self._owner(where, among=self.requirements) if where else None
        if own:
            return own.id
        culprits = culprits_at(where, "", self.calls) if where.startswith("answer.") else culprits_now(self.calls)
        concerned = self._concerned(culprits)
        owner = self._owner(where) if where and not concerned else None
        return owner.id if owner else concerned or self.operations.row_of(culprits[0])

    def of_call(self, call: RecordedCall | None) -> str:
        """The requirement against which it speaks that a call failed."""
        return self._answering((operation_of(call),) if call else culprits_now(self.calls))

    def of_operation(self, op: str) -> str:
        """The requirement against which it speaks that nobody knows what came of an operation."""
        return self._answering((op,))

    def of_breakage(self, call: RecordedCall | None) -> str:
        """The requirement against which it speaks that the driver broke during a call: one, whatever the scenario.

        An operation that hangs or crashes says nothing of the limits, flows and races that it was called for.
        """
        return self.operations.row_of(operation_of(call)) if call else self.of_call(None)

    def of_loss(self, op: str) -> str:
        """The requirement against which it speaks that an untouched connection was lost: one, as for a breakage."""
        return self.operations.row_of(op)

    def _was_left_by_an_acceptance(self, key: str) -> bool:
        return self.not_refused is not None and next(_changes_at(key, self.calls), None) is self.not_refused

    def _owner(self, where: str, among: Sequence[str] | None = None) -> Requirement | None:
        owner = self.ledger.owner_of(where, among=among) if where else None
        return owner if owner and self._answers_for(owner.id) else None

    def _answers_for(self, row: str) -> bool:
        """Whether the client claims to do anything that the row is about."""
        about = self.operations.about(row)
        return not about or bool(about & self.declared)

    def _answering(self, culprits: Sequence[str]) -> str:
        return self._concerned(culprits) or self.operations.row_of(culprits[0])

    def _concerned(self, culprits: Sequence[str]) -> str:
        """The scenario's requirement that is about a culprit, or about none in particular; empty if there is none."""
        about = {row: self.operations.about(row) for row in self.requirements}
        for op in culprits:
            for row in self.requirements:
                if op in about[row]:
                    return row
        return next((row for row in self.requirements if not about[row]), "")


def culprits_at(where: str, key: str, calls: Sequence[RecordedCall]) -> tuple[str, ...]:
    """The operations that may have made what is at a locator and key (`QUEUE:ID` of a job, or a key of the queue).

    An answer is made by the operation that was asked. Anything else may be the doing of a managed worker, if there is
    one, or of the calls that name the job, the last first, or of others that change something: a pause or a drain
    moves jobs that it does not name.
    """
    if where.startswith("answer."):
        return (_operation_in(where),)
    doing = list(_changes_at(key, calls)) or list(reversed(calls))
    return tuple(dict.fromkeys([*_running(calls), *map(operation_of, doing)])) or ("open",)


def _changes_at(key: str, calls: Sequence[RecordedCall]) -> Iterator[RecordedCall]:
    """The calls that may have changed what is at a key, best guess first; one that names its job comes twice."""
    writing = [call for call in reversed(calls) if not reads(call.op) and call.op not in _LEAVE_JOBS_ALONE]
    yield from (call for call in writing if any(key.endswith(f":{job}") for job in jobs_named(call)))
    yield from writing


def culprits_now(calls: Sequence[RecordedCall]) -> tuple[str, ...]:
    """The operations that may be the reason why a statement does not hold: all that were called, the last one first."""
    return tuple(dict.fromkeys(operation_of(call) for call in reversed(calls))) or ("open",)


def reads(op: str) -> bool:
    """Whether an operation only asks: it cannot have left anything."""
    method = op.rpartition(".")[2]
    return method == "count" or (method.startswith(("get", "is")) and op != "worker.getNextJob")


def operation_of(call: RecordedCall) -> str:
    """The operation that does what the call asks for: opening a worker lets it run, and `resolve` only ends a job."""
    if call.op == "resolve":
        return WORKER_RUN
    role, processor = call.args.get("role"), call.args.get("processor")
    if call.op == "open" and role == "worker":
        return "worker.getNextJob" if processor in (None, "manual") else WORKER_RUN
    if call.op == "open" and role in OPENED_TO:
        return OPENED_TO[role]
    return call.op


def jobs_named(call: RecordedCall) -> frozenset[str]:
    """The ids of jobs in the arguments and in the answer of a call."""
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
    """The operation of `answer.OPERATION.FIELD`; some have a dot in their name."""
    words = where.split(".")
    return words[1] if words[1] in {"open", "close", "reset", "resolve"} else ".".join(words[1:3])
