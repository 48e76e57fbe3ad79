"""How long work may take: by what it has of the processor, within limits."""

from __future__ import annotations

import time

import pytest

from conformance.fuzz.effort import PATIENCE, SHARE, Allowance


class Clocks:
    """The wall clock and the processor time of this process, set by hand (s)."""

    wall = busy = 100.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "monotonic", lambda: self.wall)
        monkeypatch.setattr(time, "process_time", lambda: self.busy)

    def go_on(self, seconds: float, *, share: float) -> None:
        self.wall += seconds
        self.busy += seconds * share


def _allowance(clocks: Clocks, seconds: float) -> Allowance:
    return Allowance(seconds, clocks.wall, clocks.busy)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def test_on_an_idle_machine_it_ends_when_the_time_is_up(clocks: Clocks) -> None:
    allowance = _allowance(clocks, 10.0)
    clocks.go_on(9.9, share=0.6)
    assert not allowance.over
    clocks.go_on(0.2, share=0.6)
    assert allowance.over


def test_on_a_busy_machine_it_lasts_until_the_work_is_done(clocks: Clocks) -> None:
    allowance = _allowance(clocks, 10.0)
    clocks.go_on(30.0, share=0.08)
    assert not allowance.over
    clocks.go_on(20.0, share=SHARE)
    assert allowance.over


def test_it_does_not_last_for_ever(clocks: Clocks) -> None:
    allowance = _allowance(clocks, 10.0)
    clocks.go_on(10.0 * PATIENCE, share=0.0)
    assert not allowance.over
    clocks.go_on(0.1, share=0.0)
    assert allowance.over
