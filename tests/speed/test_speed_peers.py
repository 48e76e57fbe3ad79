"""The parts that are subtracted from a time, and the memory that is attributed to a driver."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any, cast

import psutil
import pytest

from conformance.driver.connection import DriverConnection
from conformance.driver.errors import OperationUnanswered
from conformance.driver.ops.job import Log
from conformance.speed import measures
from conformance.speed.measures import MEASURES
from conformance.speed.peers import SpeedHandle, Unmeasurable, resident_bytes

LOG = Log(job="1", row="r")


@dataclass
class SteadyDriver:
    """A driver with this latency of its pipe, and this additional latency of its client (s)."""

    pipe_s: float
    client_s: float
    silent: bool = False
    now: float = 0.0

    def call(self, *_: Any, **__: Any) -> str:
        self.now += self.pipe_s + self.client_s
        if self.silent:
            raise OperationUnanswered("job.log")
        return "answer"

    def call_raw(self, *_: Any, **__: Any) -> None:
        self.now += self.pipe_s


def handle_of(driver: SteadyDriver, monkeypatch: pytest.MonkeyPatch) -> SpeedHandle:
    monkeypatch.setattr("conformance.speed.peers.time.perf_counter", lambda: driver.now)
    return SpeedHandle(cast("DriverConnection", driver), "h")


@pytest.mark.parametrize("pipe_s", [0.0, 0.5])
def test_a_slow_pipe_is_not_the_client(pipe_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = handle_of(SteadyDriver(pipe_s, 0.25), monkeypatch)
    assert measures._own_part_ms(handle, [LOG] * 5) == pytest.approx(250)


def test_a_client_that_gives_no_answer_is_timed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = handle_of(SteadyDriver(0.5, 0.25, silent=True), monkeypatch)
    assert handle.timed(LOG) == (None, 0.75)


def test_a_time_below_the_noise_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = handle_of(SteadyDriver(0.5, 0.0), monkeypatch)
    with pytest.raises(Unmeasurable, match="noise"):
        measures._own_part_ms(handle, [LOG] * 5)


def test_memory_is_that_of_a_driver_and_of_all_below_it() -> None:
    child = [sys.executable, "-I", "-S", "-c", "print(flush=True); input()"]
    program = [sys.executable, "-c", f"import subprocess; subprocess.run({child})"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        driver.stdout.readline()
        process = psutil.Process(driver.pid)
        sizes = [member.memory_info().rss for member in (process, *process.children())]
        assert len(sizes) == 2
        assert resident_bytes(driver.pid) == pytest.approx(sum(sizes), rel=0.05)
        driver.communicate(b"\n")
    for gone in (driver.pid, None):
        with pytest.raises(Unmeasurable, match="does not report"):
            resident_bytes(gone)


def test_half_as_fast_and_twice_the_memory_are_a_half() -> None:
    by_name = {measure.name: measure for measure in MEASURES}
    assert by_name["worker"].ratio(client=50, oracle=100) == 0.5
    assert by_name["log"].ratio(client=2, oracle=1) == 0.5
    assert by_name["memory"].ratio(client=80, oracle=40) == 0.5
