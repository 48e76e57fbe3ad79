"""The pace of reading a live store: a limit, and a share of the time while other clients use its server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext

import pytest

from conformance.options import DurationMs
from conformance.servers import RedisInstance, private_server
from conformance.servers.binary import any_binary
from reports.distribution import NICENESS, InProcesses
from reports.options import CheckConfig
from reports.snapshot.pace import Pace
from reports.snapshot.plan import RedisSource
from reports.snapshot.reading import others_use
from reports.snapshot.replies import NodeSocket
from reports.snapshot.server_use import LOOK_EVERY_S, USED_PER_S, GivingWay, is_used
from reports.throttle import SHARE, SLICE_S, Throttle
from reports.verbs import checks
from reports.verbs.checks import check_store
from tests.observe.snapshot_builders import job
from tests.reports.reports_builders import plain_store, write


def test_a_throttled_process_pauses_for_all_that_it_has_worked() -> None:
    now = [5.0]
    pauses: list[float] = []
    timers: list[float] = []
    throttle = Throttle(clock=lambda: now[0], sleep=pauses.append, set_timer=timers.append)
    throttle.pause()
    throttle.turn(on=True)
    for worked_s in (SLICE_S, 40 * SLICE_S):  # the second is a long call, which nothing interrupts
        now[0] += worked_s
        throttle.pause()
    throttle.turn(on=False)
    throttle.pause()
    assert pauses == pytest.approx([SLICE_S * (1 / SHARE - 1), 40 * SLICE_S * (1 / SHARE - 1)])
    assert timers == [SLICE_S, SLICE_S, SLICE_S, 0]


SHARE_AT_WORK = """
import time
from reports.throttle import install_throttle
install_throttle(on=True)
began_s, used_s = time.monotonic(), time.process_time()
while time.monotonic() - began_s < 1:
    sum(range(1000))
print((time.process_time() - used_s) / (time.monotonic() - began_s))
"""


def test_a_throttled_process_that_always_has_something_to_do_works_for_a_share_of_the_time() -> None:
    said = subprocess.run([sys.executable, "-c", SHARE_AT_WORK], capture_output=True, check=True).stdout
    assert 0 < float(said) < 2 * SHARE


@pytest.mark.slow
def test_only_a_throttled_process_has_a_timer() -> None:
    throttled, last = InProcesses(last=True, throttled=True), InProcesses(last=True)
    assert next(throttled.run(signal.getitimer, [signal.ITIMER_REAL])) > (0, 0), "also for a single task"
    assert set(last.run(signal.getitimer, [signal.ITIMER_REAL] * 2)) == {(0, 0)}


class Server:
    """Says how many commands others have sent; None: it does not say."""

    def __init__(self) -> None:
        self.commands: int | None = 0
        self.looks = 0

    def commands_of_others(self) -> int | None:
        self.looks += 1
        return self.commands


def test_a_reader_is_throttled_while_others_use_any_node() -> None:
    now, first, second = [0.0], Server(), Server()
    turns: list[bool] = []
    giving_way = GivingWay(turns.append, clock=lambda: now[0])

    def used(*servers: Server) -> list[bool]:
        """Returns the decisions of the next looks, after other clients have used these servers."""
        turns.clear()
        for server in servers:
            server.commands = (server.commands or 0) + int(2 * USED_PER_S * LOOK_EVERY_S)
        now[0] += LOOK_EVERY_S
        for node, server in (("a", first), ("b", second)):
            for _ in range(5):
                giving_way.before(node, server)
        return list(turns)

    assert used() == [], "the first look only counts"
    assert used() == [False, False]
    assert used(first)[-1]
    assert used(second)[-1]
    assert used()[-1] is False
    assert first.looks == second.looks == 5


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(0, USED_PER_S - 1, False), (0, USED_PER_S, True), (None, 0, True), (0, None, True), (1000, 0, True)],
    ids=["few", "many", "hidden", "hidden-later", "reset"],
)
def test_a_server_that_does_not_say_who_uses_it_is_used(before: int | None, after: int | None, expected: bool) -> None:
    assert is_used(before, after, 1.0) is expected


@contextmanager
def other_client(server: RedisInstance) -> Iterator[None]:
    """Another client sends commands in this block, as fast as it can."""
    ended = threading.Event()

    def send() -> None:
        with server.connect() as client:
            while not ended.is_set():
                client.delete("none")

    sending = threading.Thread(target=send)
    sending.start()
    try:
        yield
    finally:
        ended.set()
        sending.join()


def test_use_by_others_is_seen(server: RedisInstance) -> None:
    source = RedisSource(redis=server.url, prefix="b")
    assert not others_use(source)
    with other_client(server):
        assert others_use(source)


@pytest.fixture
def damaged(server: RedisInstance, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a small store with a damage; it is large enough to be checked by a throttled process."""
    monkeypatch.setattr(checks, "FEWEST_KEYS_TO_THROTTLE", 1)
    prefix = server.fresh_prefix()
    write(server, prefix, {"q:meta": {"a": "b"}, "q:1": job(), "q:wait": ["1"], "q:2": job()})
    return f"{server.url}#{prefix}"


@pytest.mark.parametrize(
    ("is_in_use", "max_rate"),
    [pytest.param(True, None, marks=pytest.mark.slow), (False, None), (True, 1e6)],
)
def test_a_store_in_use_is_checked_by_a_throttled_process(
    is_in_use: bool, max_rate: float | None, damaged: str, server: RedisInstance, capfd: pytest.CaptureFixture[str]
) -> None:
    with other_client(server) if is_in_use else nullcontext():
        assert check_store(CheckConfig(settle_ms=DurationMs(0), max_rate=max_rate), damaged) == 1
    said = capfd.readouterr()
    assert "in-no-container" in said.out
    assert ("other clients are using this Redis" in said.err) is (is_in_use and max_rate is None)


def test_commands_of_a_reader_are_not_those_of_others(prefix: str) -> None:
    with ExitStack() as stack:
        # Of its own: the kit looks for endless scripts in those that `open_server` opens.
        server = stack.enter_context(private_server(any_binary(lambda _line: None), {})).server
        write(server, prefix, plain_store(prefix))
        source = RedisSource(redis=server.url, prefix=prefix)
        node = stack.enter_context(NodeSocket(source.address, server.nodes[0]))
        client = stack.enter_context(server.connect())
        before = node.commands_of_others()
        check_store(CheckConfig(settle_ms=DurationMs(0)), f"{server.url}#{prefix}")
        after_own = node.commands_of_others()
        client.eval("for i = 1, 7 do redis.call('DEL', 'none') end", 0)
        after = node.commands_of_others()
    assert before is not None
    assert (after_own, after) == (before, before + 8)


def test_a_limit_is_kept_and_not_made_up_for() -> None:
    now, slept = [100.0], [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        slept[0] += seconds

    pace = Pace(1000, clock=lambda: now[0], sleep=sleep)
    for _ in range(10):
        pace.take(100)
    assert round(slept[0], 6) == 0.9
    now[0] += 0.06
    pace.take(100)
    assert round(slept[0], 6) == 0.94, "work on the last keys is part of their time"
    now[0] += 60
    for _ in range(3):
        pace.take(100)
    assert round(slept[0], 6) == 1.14, "a long pause allows no burst"


def niceness(_: int) -> tuple[int, int]:
    """Of this process, and its session."""
    return os.getpriority(os.PRIO_PROCESS, 0), os.getsid(0)


@pytest.mark.slow
def test_processes_that_go_last_have_a_low_priority_in_a_session_of_their_own() -> None:
    here = os.getpriority(os.PRIO_PROCESS, 0)
    assert {found for found, _ in InProcesses().run(niceness, [1, 2])} == {here}
    low = list(InProcesses(last=True).run(niceness, [1, 2]))
    assert {found for found, _ in low} == {min(here + NICENESS, 19)}
    # By session, because Linux shares the processors out among sessions first.
    assert os.getsid(0) not in {session for _, session in low}
