"""Execution of a scenario's steps: participants are created, run, settled and cleaned up; nothing is judged here."""

from __future__ import annotations

from typing import Any

from conformance.driver.errors import OperationGivenUp, OperationUnsupported
from conformance.gate.bench import Bench
from conformance.gate.time_limit import Side, TimeLimit, wait_for
from conformance.gate.trial_result import TrialResult
from conformance.observe.tables import Snapshot
from conformance.participants.caller import Role
from conformance.participants.cancellation import Cancellation
from conformance.participants.clock import ParticipantClock
from conformance.participants.expect import counted_checks
from conformance.participants.key_translation import read_named
from conformance.participants.marks import ASSIGNMENT, Scenario
from conformance.participants.names import Names
from conformance.participants.participant import Participant
from conformance.participants.roles import Assignment, unsupported_role
from conformance.participants.transcript import PositionReached, StepPosition
from conformance.participants.wait_limits import WaitLimits
from conformance.protocol.versions import is_supported

SETTLE_MS = 10_000
"""Time for operations that a scenario started to finish after its last step."""
SETTLE_FAILED_MS = 2000
"""The same after a failed client: operations that are still running then rarely finish at all."""


class Execution:
    """The steps of one scenario on the participants of a bench."""

    def __init__(self, scenario: Scenario, arguments: dict[str, Any], bench: Bench, limit: TimeLimit) -> None:
        self.scenario, self.bench = scenario, bench
        self._arguments, self._limit = arguments, limit
        self.assignment: Assignment | None = arguments.pop(ASSIGNMENT, None)
        """The roles of client and partner in a hand-over."""
        self.cancellation = Cancellation()
        self._participants: list[Participant] = []
        self._wait_limits = WaitLimits(
            bench.waits,
            sides=scenario.style == "differential",
            is_disturbed=lambda: any(participant.transcript.disturbed for participant in self._participants),
        )

    @property
    def client(self) -> Participant | None:
        """The participant under test; None if it was not created."""
        return next((participant for participant in self._participants if participant.role == "client"), None)

    @property
    def is_unsupported_oracle(self) -> bool:
        """Whether the scenarios were not written for this version of the oracle."""
        return not is_supported(self.bench.oracle_version)

    def miscast(self) -> str:
        """Return why client and partner cannot take their roles; empty if they can."""
        assignment = self.assignment
        if assignment is None:
            return ""
        client, partner = self.bench.client.handshake(), self.bench.driver_of(self.bench.second).handshake()
        if client.fixed_prefix and partner.fixed_prefix and client.fixed_prefix != partner.fixed_prefix:
            return f"they cannot share a queue: {client.fixed_prefix!r} and {partner.fixed_prefix!r} are their prefixes"
        return unsupported_role(
            assignment.client, {*client.ops, *client.capabilities}, "the client"
        ) or unsupported_role(assignment.partner, {*partner.ops, *partner.capabilities}, "its partner")

    def participant(self, role: Role, names: Names, *, frozen: bool) -> Participant:
        """Return a new participant of this scenario."""
        participant = self.bench.participant(
            role,
            names,
            self._clock(frozen, self.cancellation),
            self.cancellation,
            uses_loop_workers=self.bench.uses_loop_workers(),
        )
        participant.wait_limits = self._wait_limits
        self._participants.append(participant)
        return participant

    def _clock(self, frozen: bool, cancellation: Cancellation) -> ParticipantClock:
        """A clock for one side; only scenarios with clock `real` really wait."""
        return self.bench.clock(frozen=frozen, ages_data=self.scenario.clock != "real", cancellation=cancellation)

    def run_apart(self, oracle: Participant, client: Participant) -> tuple[Side, Side]:
        """Run the steps once per participant, in parallel."""
        on_oracle = Side(lambda: self._steps_of(oracle), lambda: oracle.transcript.step)
        on_client = Side(lambda: self._steps_of(client), lambda: client.transcript.step)
        # In parallel, because a scenario that waits for TTLs would otherwise take twice as long.
        self._wait(on_oracle, on_client)
        # Settled before anything is read: a running call would still change the queue.
        self._settle(failed=on_client.failure is not None)
        return on_oracle, on_client

    def run_together(self, client: Participant, other: Participant) -> Side:
        """Run the steps once, with two participants on one prefix."""
        both = Side(
            lambda: self._steps(self._roles(client, other), client, other),
            lambda: f"{client.transcript.step} (client), {other.transcript.step} ({other.role})",
        )
        self._wait(None, both)
        self._settle(failed=both.failure is not None)
        return both

    def control_failure(self) -> BaseException | None:
        """Run a hand-over with the oracle's loops in the client's roles, and return how the steps failed.

        If they fail as well, no loop can take these roles, so the client is not at fault. Scenarios on two prefixes
        need no control: the oracle takes the same steps anyway.
        """
        # Close first: the client's open workers would take the jobs of this second attempt.
        self.close_handles()
        # A new prefix and a new cancellation: the first attempt left jobs behind, and may have been cancelled.
        names, cancellation = Names(self.bench.prefix()), Cancellation()
        clock = self.bench.clock(frozen=False, cancellation=cancellation)
        client = self.bench.oracle_in_place_of_client(names, clock, cancellation)
        partner = self.bench.participant("oracle", names, clock, cancellation, uses_loop_workers=True)
        side = Side(lambda: self._steps(self._roles(client, partner), client, partner), lambda: client.transcript.step)
        wait_for(None, side, self._limit, cancel=cancellation.cancel, kill=self.kill)
        self.bench.heal()
        for participant in (client, partner):
            participant.settle(within_ms=SETTLE_FAILED_MS)
        self.close_handles()
        self.bench.clear(place for participant in (client, partner) for place in participant.places)
        return side.failure

    def oracle_stopped_at(self, position: StepPosition, *, frozen: bool) -> Participant | None:
        """Run the oracle's steps again up to a position, and return it; None if it did not stop there.

        It is the state of the same moment: the first time, the oracle went on while the client stopped.
        """
        # Close first: open workers of the first attempt would go on in its queues, and take the machine's time.
        self.close_handles()
        cancellation = Cancellation()
        clock = self._clock(frozen, cancellation)
        uses_loop_workers = self.bench.uses_loop_workers()
        oracle = self.bench.participant(
            "oracle", self.bench.names("oracle"), clock, cancellation, uses_loop_workers=uses_loop_workers
        )
        oracle.transcript.stop_at = position
        self._participants.append(oracle)
        side = Side(lambda: self._steps_of(oracle), lambda: oracle.transcript.step)
        wait_for(None, side, self._limit, cancel=cancellation.cancel, kill=self.kill)
        self.bench.heal()
        oracle.settle(within_ms=SETTLE_FAILED_MS)
        self.close_handles()
        stopped = isinstance(side.failure, PositionReached) and oracle.transcript.position == position
        return oracle if stopped else None

    def close_handles(self) -> None:
        """Close all handles. An open worker would write while the kit reads Redis."""
        for driver in self.bench.every_driver:
            driver.reset()

    def snapshots(self, names: Names) -> tuple[Snapshot, Snapshot]:
        """Return a participant's keys as they are in Redis, and with the names that the scenario uses."""
        return read_named(self.bench.redis, names)

    def clean_up(self, result: TrialResult) -> None:
        """Remove everything from Redis, and add times and unanswered operations to the result."""
        # Heal before closing: a driver cannot close a connection that a tap holds.
        self.bench.heal()
        # Close before clearing: an open worker would write keys after they were removed.
        self.close_handles()
        self.bench.clear(names for participant in self._participants for names in participant.places)
        result.unanswered = sorted({op for participant in self._participants for op in participant.unanswered})
        for participant in self._participants:
            name, spent = participant.role, participant.busy_seconds * 1000
            result.timings_ms[name] = result.timings_ms.get(name, 0.0) + spent

    def _steps_of(self, participant: Participant) -> None:
        """Run the steps on one side. If they are unsupported there, the other side stops as well.

        One exception: an oracle of an unsupported version may refuse what the client does.
        """
        try:
            with counted_checks(participant.transcript.check_held):
                self._steps({"client": participant}, participant)
        except (OperationUnsupported, OperationGivenUp) as ending:
            # An unsupported oracle may lack something that the client does correctly, so its refusal does not stop the
            # client.
            if participant.role == "oracle" or not self.is_unsupported_oracle:
                self.cancellation.cancel(str(ending))
            raise
        except Exception:
            # At once: after a refused script the other side need not go on.
            self._look()
            raise

    def _steps(self, roles: dict[str, Participant], *participants: Participant) -> None:
        try:
            self.scenario.function(**roles, **self._arguments)
        finally:
            # Also after a failure, and in its place: a job that went to a worker of the kit's own can be its cause.
            for participant in participants:
                participant.check_closed_loops()

    def _roles(self, client: Participant, other: Participant) -> dict[str, Participant]:
        if self.scenario.style == "shared":
            named = {"client": client, "oracle": other}
            return {name: named[name] for name in self.scenario.participants}
        assert self.assignment is not None
        return {**dict.fromkeys(self.assignment.client, client), **dict.fromkeys(self.assignment.partner, other)}

    def _wait(self, oracle: Side | None, client: Side) -> None:
        wait_for(oracle, client, self._limit, cancel=self.cancellation.cancel, kill=self.kill, look=self._look)

    def _look(self) -> None:
        """Cancel the scenario if a script of the client does not end."""
        if reason := self.bench.scripts_of_client.look():
            self.cancellation.cancel(reason)

    def kill(self) -> None:
        """Kill the drivers; the next scenario starts new ones."""
        # All drivers, because it is unknown which one the steps hang in.
        for driver in self.bench.drivers:
            if driver.connection is not None:
                driver.connection.kill()

    def _settle(self, *, failed: bool) -> None:
        """Lift all disturbances, and let operations finish: also after a failure."""
        # Heal first: a call that a tap still holds back would never finish.
        self.bench.heal()
        for participant in self._participants:
            participant.settle(within_ms=SETTLE_FAILED_MS if failed else SETTLE_MS)
