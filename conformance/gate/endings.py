"""How the steps of a scenario ended on each side, and what that shows about the client."""

from __future__ import annotations

from conformance.driver.errors import (
    MAY_BE_THE_MACHINE,
    OTHER,
    DriverBroken,
    OperationFailed,
    OperationGivenUp,
    OperationIndeterminate,
    OperationUnanswered,
    OperationUnsupported,
)
from conformance.findings import NOBODY_BLAMED
from conformance.gate.execution import Execution
from conformance.gate.judge import Judge
from conformance.gate.time_limit import TimeLimitExceeded
from conformance.gate.trial_result import TrialResult
from conformance.gate.version_change import (
    change_text,
    ended_alike,
    failure_text,
    other_ending,
    says_how_to_end,
)
from conformance.participants.caller import Role
from conformance.participants.cancellation import Cancelled
from conformance.participants.clock import MinuteEnded
from conformance.participants.expect import Mismatch
from conformance.participants.loop_worker import WITHOUT_EFFECT
from conformance.participants.stand_in import StandInBroken
from conformance.participants.tap import TapMissing
from conformance.participants.transcript import StepPosition


class Endings:
    """Judges how the steps ended, and writes the outcome into the result of the trial."""

    def __init__(self, execution: Execution, judge: Judge, result: TrialResult) -> None:
        self._bench, self._scenario = execution.bench, execution.scenario
        self._judge, self._client, self._result = judge, judge.client, result
        self.cut_short = False
        """Whether the state of the client's queue is unknown: its driver broke, or a call may still be running."""
        self.stopped_at: StepPosition | None = None
        """The position at which the client's steps stopped, if the state of its queue is known there; else None."""
        self.waited_in_vain = False
        """Whether they stopped because a wait timed out: what it waited for may still come."""
        self.half_done = ""
        """The operation that stopped them with an unknown error, and that may have changed something before."""
        self._stopped_alike = False

    @property
    def in_step(self) -> bool:
        """Whether both sides took the same steps, so that their queues can be compared."""
        return self._result.reached_end or self._stopped_alike

    def needs_manual_worker(self, failure: object) -> None:
        """Record that the scenario needs a manual worker: not even the oracle's loops can run it."""
        self._result.reached_end = False
        self._result.unsupported = f"cannot run without a manual worker: {failure}"

    def oracle_ended(self, failure: BaseException | None, *, who: Role = "oracle") -> None:
        """Record an error of the kit if a supported oracle, or the partner, did not reach the end."""
        if isinstance(failure, (TapMissing, Cancelled)):
            return  # the client's own ending reports the reason
        if isinstance(failure, MinuteEnded):
            self._minute_ended(failure)
        elif failure is not None:
            self._result.error = (
                f"the {who} itself did not do as the scenario says: {type(failure).__name__}: {failure}"
            )

    def oracle_differs(self, oracle: BaseException, client: BaseException | None) -> None:
        """Record that an oracle of an unsupported version stopped; the client has to stop in the same way."""
        # On an unsupported version this is a change and not an error, because the scenarios were not written for it.
        self._result.changed = change_text(self._bench.oracle_version, failure_text(oracle))
        self._result.reached_end = False
        self._stopped_alike = ended_alike(oracle, client)
        if self._stopped_alike or not says_how_to_end(oracle):
            return
        if client is None or not self._is_left_open(client):
            self._result.findings.append(self._judge.attributed(other_ending(NOBODY_BLAMED, oracle, client)))

    def client_ended(self, failure: BaseException | None) -> None:
        """Record the finding, if any, that the ending of the client's steps shows."""
        # If the minute ended on the oracle's side, their metrics differ, even if the client was faster.
        self._result.reached_end = failure is None and not self._result.doubt
        self.stopped_at = self._position_of(failure)
        if failure is None or self._is_left_open(failure):
            return
        match failure:
            case Mismatch():
                self.waited_in_vain = failure.timed
                self._result.findings.append(self._judge.mismatch(failure))
            # MAY_BE_THE_MACHINE comes before other unknown outcomes: starvation can cause it, so the attempt is in
            # doubt.
            case OperationIndeterminate() if failure.error.code in MAY_BE_THE_MACHINE:
                self._result.findings.append(self._judge.lost(failure))
                self._result.doubt = str(failure)
                self.cut_short = True  # the call may have happened, or may still be running
            case OperationFailed() | OperationIndeterminate():
                self._result.findings.append(self._judge.failed(failure))
                if failure.error.code == OTHER and failure.error.message != WITHOUT_EFFECT:
                    self.half_done = failure.op
            # The limit is generous enough that only hanging exceeds it, so it counts even on a slow machine.
            case TimeLimitExceeded():
                self._result.findings.append(self._judge.not_ended(str(failure), failure.limit_s))
            case DriverBroken():
                self._result.findings.append(self._judge.driver_broken(failure))
                self.cut_short = True
                self._add_driver_log()
            case _ if self._scenario.style == "differential":
                # The oracle passed the same steps, so something unexpected in the client's state broke them.
                seen = f"the scenario could not go on: {type(failure).__name__}: {failure}"
                self._result.findings.append(self._judge.unexpected(seen))
            # A shared queue has no undisturbed control, so an unexpected exception may be the scenario's own defect.
            case _:
                self._result.error = f"the scenario itself broke: {type(failure).__name__}: {failure}"

    def _position_of(self, failure: BaseException | None) -> StepPosition | None:
        """Return the position before the step that failed, if it certainly changed nothing."""
        here = self._client.transcript.position
        match failure:
            # A call that was not refused, or refused too late, has changed the queue, and so has an unknown outcome.
            case Mismatch(where="answer"):
                return None
            case Mismatch():
                return here
            case OperationFailed():
                return StepPosition(here.steps - 1, here.checks)
            case OperationUnanswered():
                return None
            case OperationUnsupported() | OperationGivenUp():
                return here
            case _:
                return None

    def _minute_ended(self, failure: MinuteEnded) -> None:
        """Leave the scenario open, and have it repeated: a slow machine or a jump of its clock is the cause."""
        self._result.inconclusive = self._result.doubt = str(failure)

    def _add_driver_log(self) -> None:
        connection, log_file = self._bench.client.connection, self._bench.client.log_file
        self._result.log += connection.log_tail() if connection else []
        self._result.log += [f"all of it: {log_file.parent.name}/{log_file.name}"] if log_file else []

    def _is_left_open(self, failure: BaseException) -> bool:
        """Whether this ending shows nothing about the client; the result then has the reason."""
        match failure:
            case OperationUnsupported() | Cancelled():
                self._result.unsupported = str(failure)
                # An unanswered operation ran, and then the kit stopped: the state is not one that a client leaves.
                self.cut_short = isinstance(failure, OperationUnanswered)
            # If the kit disturbed the connection, losing a call is what the scenario provoked and not a failure.
            case OperationIndeterminate() if (
                failure.error.code in MAY_BE_THE_MACHINE and self._client.transcript.disturbed
            ):
                self._result.inconclusive = str(failure)
            case MinuteEnded():
                self._minute_ended(failure)
            # The kit did not make the call, so this shows nothing about it; the steps before it still count.
            case OperationGivenUp():
                self._result.given_up = str(failure)
            case StandInBroken():
                self._result.error = f"the oracle in the client's place could not be used: {failure}"
            case _:
                return False
        return True
