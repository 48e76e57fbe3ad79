"""The model says what the oracle does: random sequences, answers and snapshots compared after each step.

More of them: `python -m tests.model.soak FIRST_SEED COUNT`.
"""

from __future__ import annotations

import pytest

from conformance.driver.ops import queue, worker
from conformance.driver.process import ChildProcess
from conformance.model import Call, order
from conformance.servers import Server

from .bench import Bench, DeleteLock, Disagreement, FlushScripts, PassTime, opening
from .soak import run_sequence

SEEDS = range(100)
SEEDS_PER_TEST = 10


@pytest.mark.parametrize("first", SEEDS[::SEEDS_PER_TEST])
def test_random_sequences(server: Server, oracle: ChildProcess, first: int) -> None:
    with server.connect() as redis:
        for seed in range(first, first + SEEDS_PER_TEST):
            bench = Bench(oracle, server, redis)
            try:
                run_sequence(bench, seed)
            finally:
                bench.leave()


@pytest.fixture
def opened(bench: Bench) -> Bench:
    bench.do(Call("q", opening("queue", "q")))
    bench.do(Call("w", opening("worker", "q", {"lockDuration": 20_000})))
    return bench


def test_time_to_live_and_lost_locks(opened: Bench) -> None:
    opened.do(Call("q", queue.AddBulk(jobs=[queue.NewJob(name="n")] * 2)))
    for token in ("a", "b"):
        opened.do(Call("w", worker.GetNextJob(token=token)))
    opened.do(DeleteLock("q", "1"))
    opened.do(FlushScripts())
    opened.do(Call("w", worker.MoveToCompleted(job="1", token="a")))
    opened.do(PassTime(10_000))
    opened.do(Call("w", worker.ExtendLock(job="2", token="b", duration_ms=20_000)))
    opened.do(PassTime(10_000))
    opened.do(Call("w", worker.MoveToCompleted(job="2", token="b")))


def test_a_wrong_model_is_found_out(opened: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: a model that lets new jobs overtake is caught by the next one that waits."""

    def at_the_wrong_end(items: list[str], job: str, _side: str) -> None:
        items.append(job)

    opened.do(Call("q", queue.Add(name="n")))
    monkeypatch.setattr(order, "push", at_the_wrong_end)
    with pytest.raises(Disagreement, match="wrong-order"):
        opened.do(Call("q", queue.Add(name="n")))


def test_a_wrong_answer_is_found_out(opened: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "is_paused", lambda _queue: False)
    opened.do(Call("q", queue.Pause()))
    with pytest.raises(Disagreement):
        opened.do(Call("q", queue.Add(name="n")))
