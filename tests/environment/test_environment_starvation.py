"""Starvation is measured, and a process that merely sleeps is taken for starving."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import psutil
import pytest
from redis.exceptions import ConnectionError as RedisGone

from conformance.driver import run_queue
from conformance.driver.run_queue import RunQueue, thread_waits_s
from conformance.environment import starvation
from conformance.environment.starvation import (
    CLIENT,
    CLOCK,
    REDIS,
    STARVED_MS,
    Starvation,
    StarvationRecord,
    StarvationWatch,
    most_lost_ms,
)
from conformance.findings import Timing
from conformance.servers.connection import wait_until

NO_PROCESS = 2**22 + 1
"""An id that no process can have."""


@pytest.mark.parametrize(
    ("within_ms", "most_ms"),
    [(1000, 300), (2000, 600), (10_000, 900), (50, 300)],
)
def test_the_worst_period_slides(within_ms: int, most_ms: float) -> None:
    # 300 ms each after 0.9, 2.1 and 5 s: the first two are within two seconds, which need not be full ones.
    losses = [(0.9, 300.0), (2.1, 300.0), (5.0, 300.0)]
    assert most_lost_ms(losses, within_ms) == most_ms


@pytest.fixture
def sleeper() -> Iterator[psutil.Process]:
    """A process that waits for its stdin, and is ready for nothing."""
    program = [sys.executable, "-I", "-S", "-c", "print(flush=True); input()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield psutil.Process(process.pid)
        psutil.Process(process.pid).resume()
        process.kill()


def _nothing() -> None:
    """A Redis that answers at once."""


class WatchOfOne(StarvationWatch):
    """Watches one party only: on the machine of these tests others may starve."""

    only = "client"

    def _lose(self, party: str, lost_ms: float) -> None:
        if party == self.only:
            super()._lose(party, lost_ms)


class WatchOfRedis(WatchOfOne):
    only = REDIS


class WatchOfClock(WatchOfOne):
    only = CLOCK


@contextmanager
def _watch(
    ping: Callable[[], object] = _nothing, kind: type[StarvationWatch] = WatchOfOne, **processes: int
) -> Iterator[StarvationWatch]:
    with kind(lambda: processes, ping) as watch:
        watch.start()
        yield watch


def _comes_to(watch: StarvationWatch, party: str) -> Starvation:
    """Wait until a party is seen to have lost as much as starves."""
    assert wait_until(
        lambda: watch.seen().worst.party == party and watch.seen().worst.worst_second_ms >= STARVED_MS, deadline_s=20
    ), watch.seen().worst
    return watch.seen().worst


def test_a_stopped_process_starves(sleeper: psutil.Process) -> None:
    with _watch(client=sleeper.pid) as watch:
        sleeper.suspend()
        assert wait_until(lambda: sleeper.status() == psutil.STATUS_STOPPED, deadline_s=20)
        seen = _comes_to(watch, "client")
        assert seen.total_ms >= seen.worst_second_ms
        assert str(seen).startswith("client was starved of CPU for ")


def test_a_process_behind_a_wrapper_starves() -> None:
    """The command of a client may be a wrapper, which waits while the client itself is not let run."""
    wrapped = "import subprocess, sys; subprocess.run([sys.executable, '-I', '-S', '-c', 'print(flush=True); input()'])"
    with subprocess.Popen([sys.executable, "-c", wrapped], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as wrapper:
        assert wrapper.stdout is not None
        wrapper.stdout.readline()
        (client,) = psutil.Process(wrapper.pid).children()
        try:
            with _watch(client=wrapper.pid) as watch:
                client.suspend()
                _comes_to(watch, "client")
        finally:
            # Else the wrapper would wait for it without end.
            client.kill()


def test_a_process_that_waits_for_something_does_not_starve(sleeper: psutil.Process) -> None:
    ticks = []
    with _watch(lambda: ticks.append(1), client=sleeper.pid) as watch:
        assert wait_until(lambda: len(ticks) > 5, deadline_s=20)
        assert watch.seen().worst.total_ms < STARVED_MS


def test_a_new_scenario_starts_without_the_losses_of_the_last(sleeper: psutil.Process) -> None:
    with _watch(client=sleeper.pid) as watch:
        sleeper.suspend()
        _comes_to(watch, "client")
        sleeper.resume()
        assert wait_until(lambda: sleeper.status() != psutil.STATUS_STOPPED, deadline_s=20)
        watch.start()
        assert watch.seen().worst.total_ms < STARVED_MS


def test_a_slow_redis_starves() -> None:
    with _watch(lambda: time.sleep(0.5), WatchOfRedis) as watch:
        _comes_to(watch, REDIS)


def test_a_jump_of_the_clock_starves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual machine was paused: its minutes ended, but its processes did not run meanwhile."""
    with _watch(kind=WatchOfClock) as watch:
        assert watch.seen().worst.total_ms < STARVED_MS
        paused_s = starvation._clock_offset_s() + 90
        monkeypatch.setattr(starvation, "_clock_offset_s", lambda: paused_s)
        seen = _comes_to(watch, CLOCK)
        assert str(seen).startswith("the machine's clock jumped by 90")


def test_a_redis_that_is_gone_is_not_the_watchs_business() -> None:
    asked = []

    def ping() -> None:
        asked.append(1)
        raise RedisGone

    with _watch(ping):
        assert wait_until(lambda: len(asked) > 2, deadline_s=20)


def test_of_many_threads_the_one_that_waited_longest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with a pool of threads is late by the one that is late."""
    lives = iter([{"1": 1.0, "2": 5.0}, {"1": 1.75, "2": 5.25, "3": 0.5}, {}])
    monkeypatch.setattr(run_queue, "thread_waits_s", lambda _pid: next(lives))
    waiting = RunQueue()
    assert waiting.newly_waited_s(1) == 0.0
    assert waiting.newly_waited_s(1) == 0.75
    assert waiting.newly_waited_s(1) == 0.0


def test_time_in_the_run_queue_is_lost(sleeper: psutil.Process, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = iter(range(1000))
    monkeypatch.setattr(
        run_queue, "thread_waits_s", lambda pid: {"1": next(waited) * 0.3} if pid == sleeper.pid else {}
    )
    with _watch(client=sleeper.pid) as watch:
        _comes_to(watch, "client")


BURNS = "import os; print(flush=True)\nif not os.fork():\n  while True: pass\nos.wait()"


@pytest.fixture
def burner() -> Iterator[psutil.Process]:
    """A process whose child takes all the CPU time that it gets."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", BURNS], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        parent = psutil.Process(process.pid)
        yield parent
        for member in (*parent.children(), parent):
            member.kill()


def test_a_client_that_takes_the_time_itself_excuses_none_of_its_findings(
    burner: psutil.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves the oracle's part open, which then cannot be judged."""
    monkeypatch.setattr(starvation, "TAKEN", 0.02)  # it gets no quarter of a core next to 20 busy processes
    with _watch(lambda: time.sleep(0.5), WatchOfRedis, **{CLIENT: burner.pid}) as watch:
        # A slow poll: each look takes CPU time of the kit.
        assert wait_until(lambda: len(watch.seen().own.get(REDIS, ())) >= 3, deadline_s=20, step_s=0.5)
        # Losses before the end of the first second of burning have another cause.
        own = StarvationRecord(watch.seen().own, watch.seen().own)
    assert own.worst.worst_second_ms >= STARVED_MS
    assert own.explaining(Timing(within_ms=1000, slack_ms=400)) is None
    assert StarvationRecord(own.losses).explaining(Timing(within_ms=1000, slack_ms=400)) is not None


def test_a_client_takes_the_time_from_a_quarter_of_a_core_on(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = StarvationWatch(dict, lambda: None)
    monkeypatch.setattr(starvation, "time", SimpleNamespace(monotonic=lambda: 2.0))
    for client_ms, others_ms, taken in ((260, 10, True), (240, 10, False), (260, 270, False)):
        watch._used = deque([(1.0, 0.0, 0.0), (2.0, client_ms, others_ms)])
        assert watch._is_taken is taken


def test_the_starvation_of_a_client_that_sleeps_is_not_its_own(sleeper: psutil.Process) -> None:
    with _watch(lambda: time.sleep(0.5), WatchOfRedis, **{CLIENT: sleeper.pid}) as watch:
        _comes_to(watch, REDIS)
        assert watch.seen().own == {}


def test_an_ended_process_has_no_starvation() -> None:
    assert thread_waits_s(NO_PROCESS) == {}
    assert starvation.Families().of(NO_PROCESS) == []
    assert starvation.CpuTimes().newly_used_ms(NO_PROCESS) == 0.0


def test_every_thread_is_measured() -> None:
    assert all(waited >= 0 for waited in thread_waits_s(psutil.Process().pid).values())
