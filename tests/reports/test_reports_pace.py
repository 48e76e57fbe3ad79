"""The pace of reading a live store: a limit, and pauses while the server is busy."""

from __future__ import annotations

import os

import pytest

from conformance.servers import RedisInstance
from reports.distribution import NICENESS, InProcesses
from reports.snapshot.pace import (
    LONGEST_PAUSE_S,
    LOOK_EVERY_S,
    LOTS_OF_A_PING,
    PROMPT_S,
    SHORTEST_PAUSE_S,
    TOLERATED_S,
    USED_PER_S,
    GivingWay,
    Pace,
)
from reports.snapshot.plan import RedisSource
from reports.snapshot.replies import NodeSocket

USUAL_S = 0.001
LOT_S = 0.0002


class Server:
    """A clock, and a server that takes `reply_s` for each reply; `pauses` has the pauses of its reader (s).

    `used_per_s`: commands of other clients; None: it does not say.
    """

    def __init__(self, usual_s: float = USUAL_S, used_per_s: float | None = 2 * USED_PER_S) -> None:
        self.now = 0.0
        self.reply_s = usual_s
        self.used_per_s = used_per_s
        self.pings = 0
        self.pauses: list[float] = []
        self.giving_way = GivingWay(usual_s, clock=lambda: self.now, sleep=self.pauses.append)

    def ping(self) -> None:
        self.now += self.reply_s
        self.pings += 1

    def commands_of_others(self) -> int | None:
        return None if self.used_per_s is None else int(self.now * self.used_per_s)

    def serve(self, lots: int) -> list[float]:
        """The pauses before each of some lots."""
        self.pauses.clear()
        for _ in range(lots):
            self.giving_way.before(self)
            self.now += LOT_S
        return list(self.pauses)


def test_a_reader_pauses_longer_while_replies_are_late_and_hurries_again() -> None:
    server = Server()
    assert server.serve(50) == [], "no client waits"
    server.reply_s = USUAL_S + TOLERATED_S + 0.001
    late = server.serve(20 * LOTS_OF_A_PING)
    assert late[0] == SHORTEST_PAUSE_S
    assert late == sorted(late)
    assert late[-1] == LONGEST_PAUSE_S, "it reads on, however busy the server is"
    server.reply_s = USUAL_S
    timely = server.serve(200 * LOTS_OF_A_PING)
    assert timely == sorted(timely, reverse=True)
    assert len(timely) < 100 * LOTS_OF_A_PING, "no pause is left"


def test_a_prompt_reply_is_never_late() -> None:
    server = Server(usual_s=PROMPT_S / 10)
    server.reply_s = 0.99 * PROMPT_S
    assert server.serve(50) == []


def test_without_other_clients_there_is_no_pause_however_late_replies_are() -> None:
    server = Server(used_per_s=USED_PER_S / 2)
    server.reply_s = 0.1
    assert server.serve(20 * LOTS_OF_A_PING), "until it has looked twice, it gives way"
    assert server.serve(20 * LOTS_OF_A_PING) == []
    pings = server.pings
    server.used_per_s = 100 * USED_PER_S
    server.now += LOOK_EVERY_S
    assert server.serve(20 * LOTS_OF_A_PING), "others have come"
    assert server.pings > pings


@pytest.mark.parametrize("used_per_s", [None, -1000.0])
def test_a_server_that_does_not_say_who_uses_it_is_used(used_per_s: float | None) -> None:
    server = Server(used_per_s=used_per_s)
    server.reply_s = 0.1
    assert all(server.serve(20 * LOTS_OF_A_PING) for _ in range(3))


def test_commands_of_a_reader_are_not_those_of_others(server: RedisInstance) -> None:
    with (
        NodeSocket(RedisSource(redis=server.url, prefix="b").address, server.nodes[0]) as node,
        server.connect() as client,
    ):
        client.ping()  # its connection says hello only now
        before = node.commands_of_others()
        node.exchange(
            [(b"HGETALL", b"none"), (b"PTTL", b"none"), (b"SCAN", b"0"), (b"XRANGE", b"none", b"-", b"+")] * 5
        )
        after_own = node.commands_of_others()
        client.eval("for i = 1, 7 do redis.call('GET', 'none') end", 0)
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


def test_processes_that_go_last_have_a_low_priority_in_a_session_of_their_own() -> None:
    here = os.getpriority(os.PRIO_PROCESS, 0)
    assert {found for found, _ in InProcesses().run(niceness, [1, 2])} == {here}
    low = list(InProcesses(last=True).run(niceness, [1, 2]))
    assert {found for found, _ in low} == {min(here + NICENESS, 19)}
    # By session, because Linux shares the processors out among sessions first.
    assert os.getsid(0) not in {session for _, session in low}
