"""The pace of reading a live store: a limit, and pauses while the server is busy."""

from __future__ import annotations

import os

from reports.distribution import NICENESS, InProcesses
from reports.snapshot.pace import (
    LONGEST_PAUSE_S,
    LOTS_OF_A_PING,
    PROMPT_S,
    SHORTEST_PAUSE_S,
    TOLERATED_S,
    GivingWay,
    Pace,
)

USUAL_S = 0.001


class Server:
    """A clock, and a server that takes `reply_s` for each reply; `pauses` has the pauses of its reader (s)."""

    def __init__(self, usual_s: float = USUAL_S) -> None:
        self.now = 0.0
        self.reply_s = usual_s
        self.pauses: list[float] = []
        self.giving_way = GivingWay(usual_s, clock=lambda: self.now, sleep=self.pauses.append)

    def ping(self) -> None:
        self.now += self.reply_s

    def serve(self, lots: int) -> list[float]:
        """The pauses before each of some lots."""
        self.pauses.clear()
        for _ in range(lots):
            self.giving_way.before(self.ping)
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


def test_a_limit_is_kept_and_not_made_up_for() -> None:
    now, slept = [100.0], [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        slept[0] += seconds

    pace = Pace(1000, clock=lambda: now[0], sleep=sleep)
    for _ in range(10):
        pace.take(100)
    assert round(slept[0], 6) == 1.0
    now[0] += 60
    pace.take(100)
    assert round(slept[0], 6) == 1.1


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
