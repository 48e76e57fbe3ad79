"""Doubtful scenarios are repeated when no process runs its own any more, one process after the other, for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from conformance.gate.last_phase import LEAST_S, LastPhase

DEADLINE_S = 20


def _started(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def _ended(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def test_processes_run_their_scenarios_together(tmp_path: Path) -> None:
    both = threading.Barrier(2)

    def run() -> None:
        with LastPhase(tmp_path).postponed():
            both.wait(DEADLINE_S)

    _ended(_started(run), _started(run))
    assert not both.broken


def test_the_phase_starts_when_the_last_process_has_run_its_scenarios(tmp_path: Path) -> None:
    events: list[str] = []
    runs, ends = threading.Event(), threading.Event()

    def run() -> None:
        with LastPhase(tmp_path).postponed():
            runs.set()
            ends.wait(DEADLINE_S)
            events.append("the scenarios end")

    def repeat() -> None:
        with LastPhase(tmp_path).alone():
            events.append("one is repeated")

    running = _started(run)
    assert runs.wait(DEADLINE_S)
    repeating = _started(repeat)
    ends.set()
    _ended(running, repeating)
    assert events == ["the scenarios end", "one is repeated"]


def test_processes_repeat_one_after_the_other_until_the_same_end(tmp_path: Path) -> None:
    inside: list[int] = []
    ends: set[float] = set()

    def repeat() -> None:
        for _ in range(20):
            with LastPhase(tmp_path).alone() as ends_s:
                inside.append(1)
                assert len(inside) == 1
                ends.add(ends_s)
                inside.pop()

    _ended(*[_started(repeat) for _ in range(4)])
    [end] = ends
    assert 0 < end - time.time() <= LEAST_S


def test_a_long_run_has_more_time_for_repetitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    phase = LastPhase(tmp_path)
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + 600)
    entered: AbstractContextManager[float] = phase.alone()
    with entered as ends_s:
        assert ends_s == pytest.approx(now_s + 660, abs=5)
