"""Clients that cannot end a run in every way: no job of theirs is left in the hands of the kit."""

from __future__ import annotations

from chaos.outcomes import OutcomeRecorder
from chaos.recorder import HistoryRecorder
from conformance.checkers.histories.history import RunEnded
from conformance.driver.errors import DriverBroken, OperationUnsupported
from conformance.driver.ops.worker import Outcome

ABOUT = {"process": "w", "queue": "q", "job": "1", "name": "a", "token": "t"}


class ClientWithout:
    """Records the outcomes that it receives; it lacks one of them."""

    def __init__(self, absent: Outcome) -> None:
        self.absent = absent
        self.received: list[Outcome] = []

    def receive(self, outcome: Outcome) -> None:
        self.received.append(outcome)
        if outcome == self.absent:
            raise OperationUnsupported("resolve", "it has none")


def outcomes_of(recorder: HistoryRecorder) -> list[str]:
    return [line.outcome for line in recorder.finish().lines if isinstance(line, RunEnded)]


def test_a_run_that_cannot_be_put_back_is_completed_and_it_is_asked_once() -> None:
    recorder = HistoryRecorder()
    client, ends = ClientWithout("wait"), OutcomeRecorder(recorder)
    planned: tuple[Outcome, ...] = ("wait", "delay", "wait", "fail", "delay")
    for outcome in planned:
        ends.end(outcome, ABOUT, client.receive)
    assert client.received == ["wait", "complete", "delay", "complete", "fail", "delay"]
    assert outcomes_of(recorder) == ["complete", "delay", "complete", "fail", "delay"]


def test_an_outcome_that_kills_the_process_counts_as_planned() -> None:
    """The process died when it received the outcome: the run is over."""
    recorder = HistoryRecorder()

    def die(_outcome: Outcome) -> None:
        raise DriverBroken("gone")

    OutcomeRecorder(recorder).end("wait", ABOUT, die)
    assert outcomes_of(recorder) == ["wait"]
