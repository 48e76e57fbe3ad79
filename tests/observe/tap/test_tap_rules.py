"""Every action in every phase, against a real Redis: what Redis has, and what the client sees."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from typing import Any

import pytest

from conformance.observe.tap.recording import NotSeen
from conformance.observe.tap.resp import encode_command
from conformance.observe.tap.rules import (
    Action,
    BlackHole,
    Chunks,
    Cut,
    Delay,
    Error,
    Hold,
    Trigger,
    Watch,
)
from conformance.observe.tap.tap import Tap
from conformance.problems import UsageProblem
from conformance.servers import RedisInstance

from .conftest import DEADLINE_MS, Wire, eventually, in_background

SOON_S = 0.05
"""Long enough for what should not happen to be noticed if it does."""


def test_before_send_redis_has_not_seen_the_command(tap: Tap, wire: Wire, redis: Any) -> None:
    with tap.when(Trigger(command="set"), Hold()) as barrier:
        wire.send("SET", "k", "1")
        assert barrier.reached.wait(DEADLINE_MS).args == (b"SET", b"k", b"1")
        assert redis.get("k") is None
        barrier.release()
        assert wire.reply() == b"OK"
        assert redis.get("k") == b"1"


def test_after_execute_redis_has_done_it_and_the_client_does_not_know(tap: Tap, wire: Wire, redis: Any) -> None:
    with tap.when(Trigger(command="set", phase="after-execute"), Hold()) as barrier:
        wire.send("SET", "k", "1")
        barrier.reached.wait(DEADLINE_MS)
        assert redis.get("k") == b"1"
        assert wire.silent_for(SOON_S)
        barrier.release()
        assert wire.reply() == b"OK"


def test_mid_reply_the_client_has_half_of_it(tap: Tap, wire: Wire, redis: Any) -> None:
    redis.set("k", "0123456789")
    with tap.when(Trigger(command="get", phase="mid-reply", reply_bytes=7), Hold()) as barrier:
        wire.send("GET", "k")
        barrier.reached.wait(DEADLINE_MS)
        assert wire.socket.recv(100) == b"$10\r\n01"
        assert wire.silent_for(SOON_S)
        barrier.release()
        assert wire.socket.recv(100) == b"23456789\r\n"


def test_cut_before_send(tap: Tap, wire: Wire, redis: Any) -> None:
    with tap.when(Trigger(command="set"), Cut()) as barrier:
        wire.send("SET", "k", "1")
        assert wire.rest() == b""
        barrier.reached.wait(DEADLINE_MS)
    assert redis.get("k") is None
    eventually(lambda: not tap.connections(), tap.connections)
    assert len(barrier.reached.commands) == 1
    assert [(record.name, record.fate, record.sent_s) for record in tap.recording.commands()] == [("SET", "lost", None)]


def test_cut_after_execute(tap: Tap, wire: Wire, redis: Any) -> None:
    with tap.when(Trigger(command="set", phase="after-execute"), Cut()):
        wire.send("SET", "k", "1")
        assert wire.rest() == b""
    assert redis.get("k") == b"1"


def test_cut_in_the_middle_of_the_reply(tap: Tap, wire: Wire, redis: Any) -> None:
    redis.set("k", "0123456789")
    with tap.when(Trigger(command="get", phase="mid-reply"), Cut()):
        wire.send("GET", "k")
        assert wire.rest() == b"$10\r\n012"


@pytest.mark.parametrize("phase", ["before-send", "after-execute", "mid-reply"])
def test_cut_with_reset(tap: Tap, wire: Wire, phase: Any) -> None:
    with tap.when(Trigger(command="ping", phase=phase), Cut(reset=True)) as barrier:
        wire.send("PING")
        barrier.reached.wait(DEADLINE_MS)
        with pytest.raises(ConnectionResetError):
            wire.rest()


def test_error_instead_of_the_command_and_instead_of_its_reply(tap: Tap, wire: Wire, redis: Any) -> None:
    with tap.when(Trigger(command="set"), Error("OOM no memory")):
        assert wire.ask("SET", "k", "1") == b"OOM no memory"
        assert redis.get("k") is None
        assert wire.ask("SET", "k", "2") == b"OK"
    with tap.when(Trigger(command="set", phase="after-execute"), Error("ERR lies")):
        assert wire.ask("SET", "k", "3") == b"ERR lies"
    assert redis.get("k") == b"3"


@pytest.mark.parametrize("phase", ["before-send", "after-execute", "mid-reply"])
def test_delay_takes_at_least_that_long(tap: Tap, wire: Wire, phase: Any) -> None:
    with tap.when(Trigger(command="ping", phase=phase), Delay(60)):
        started = time.monotonic()
        assert wire.ask("PING") == b"PONG"
        assert time.monotonic() - started >= 0.06
        assert wire.quickest_s("PING") < 0.06, "only the first is delayed"


@pytest.mark.parametrize("phase", ["before-send", "after-execute", "mid-reply"])
def test_byte_by_byte_is_still_the_same(tap: Tap, wire: Wire, phase: Any) -> None:
    with tap.when(Trigger(command="echo", phase=phase, call=None), Chunks(size=1)) as barrier:
        assert wire.ask("ECHO", "some words") == b"some words"
        assert wire.ask("ECHO", "others") == b"others"
        barrier.reached.wait(DEADLINE_MS, times=2)


def test_chunks_arrive_one_by_one(tap: Tap, wire: Wire) -> None:
    with tap.when(Trigger(command="ping", phase="after-execute"), Chunks(size=3, pause_ms=30)):
        wire.send("PING")
        assert [wire.socket.recv(100) for _ in range(3)] == [b"+PO", b"NG\r", b"\n"]


def test_black_hole_swallows_both_directions_and_gives_all_back(tap: Tap, server: RedisInstance, redis: Any) -> None:
    with Wire(tap.address) as wire, Wire(tap.address) as other:
        wire.send("SUBSCRIBE", "news")
        assert wire.reply() == [b"subscribe", b"news", 1]
        with tap.when(Trigger(command="ping", connection=1), BlackHole()) as barrier:
            wire.send("PING")
            barrier.reached.wait(DEADLINE_MS)
            redis.publish("news", "hello")
            assert wire.silent_for(SOON_S)
            assert other.ask("PING") == b"PONG"
        assert [wire.reply(), wire.reply()] == [[b"message", b"news", b"hello"], [b"pong", b""]]
    assert server.own


def test_a_client_that_gave_up_is_heard_when_the_black_hole_ends(tap: Tap, redis: Any) -> None:
    with tap.when(Trigger(command="set"), BlackHole()) as barrier:
        with Wire(tap.address) as wire:
            wire.send("SET", "k", "late")
            barrier.reached.wait(DEADLINE_MS)
        assert redis.get("k") is None
    eventually(lambda: redis.get("k") == b"late", lambda: redis.get("k"))
    eventually(lambda: not tap.connections(), tap.connections)


@pytest.mark.parametrize("call", [1, 2, 3])
def test_the_kth_call_over_all_connections(tap: Tap, redis: Any, call: int) -> None:
    del redis
    with tap.when(Trigger(command="incr", call=call), Error("ERR chosen")):
        answers = []
        for _ in range(4):
            with Wire(tap.address) as wire:
                answers.append(wire.ask("INCR", "n"))
    assert [index for index, answer in enumerate(answers, 1) if answer == b"ERR chosen"] == [call]


def test_narrowed_down_by_connection_and_by_content(tap: Tap, redis: Any) -> None:
    del redis
    with Wire(tap.address) as first, Wire(tap.address) as second:
        assert first.ask("PING") == second.ask("PING") == b"PONG"
        with tap.when(Trigger(command="incr", connection=2), Error("ERR b")):
            assert [first.ask("INCR", "n"), second.ask("INCR", "n")] == [1, b"ERR b"]
        with tap.when(Trigger(where=lambda command: b"secret" in command.args), Error("ERR content")):
            assert [first.ask("ECHO", "open"), first.ask("ECHO", "secret")] == [b"open", b"ERR content"]


def test_every_call_is_held_again(tap: Tap, wire: Wire) -> None:
    with tap.when(Trigger(command="ping", call=None), Hold()) as barrier:
        wire.socket.sendall(encode_command(["PING"]) * 2)
        barrier.reached.wait(DEADLINE_MS)
        barrier.release()
        assert wire.reply() == b"PONG"
        barrier.reached.wait(DEADLINE_MS, times=2)
        assert wire.silent_for(SOON_S)
        barrier.release()
        assert wire.reply() == b"PONG"


def test_a_held_command_is_released_when_the_block_ends_even_by_an_error(tap: Tap, wire: Wire) -> None:
    with contextlib.suppress(ZeroDivisionError), tap.when(Trigger(command="ping"), Hold()) as barrier:
        wire.send("PING")
        barrier.reached.wait(DEADLINE_MS)
        raise ZeroDivisionError
    assert wire.reply() == b"PONG"
    assert wire.ask("PING") == b"PONG"


def test_two_rules_at_one_command(tap: Tap, wire: Wire, redis: Any) -> None:
    with (
        tap.when(Trigger(command="set"), Hold()) as before,
        tap.when(Trigger(command="set", phase="after-execute"), Hold()) as after,
        tap.when(Trigger(command="set", phase="mid-reply"), Cut()),
    ):
        wire.send("SET", "k", "1")
        before.reached.wait(DEADLINE_MS)
        assert redis.get("k") is None
        assert not after.reached.commands
        before.release()
        after.reached.wait(DEADLINE_MS)
        assert redis.get("k") == b"1"
        after.release()
        assert wire.rest() == b"+O"


def test_a_pipeline_is_cut_exactly_there(tap: Tap, wire: Wire, redis: Any) -> None:
    with tap.when(Trigger(command="rpush", call=3, phase="after-execute"), Cut()):
        wire.socket.sendall(b"".join(encode_command(["RPUSH", "l", number]) for number in range(5)))
        assert wire.rest() == b":1\r\n:2\r\n"
    assert redis.lrange("l", 0, -1) == [b"0", b"1", b"2"]
    fates = [(record.fate, record.sent_s is not None) for record in tap.recording.commands()]
    assert fates == [("answered", True)] * 3 + [("lost", False)] * 2


def test_a_pipeline_is_held_behind_answers_to_all_before(tap: Tap, wire: Wire, redis: Any) -> None:
    with tap.when(Trigger(command="rpush", call=3), Hold()) as barrier:
        wire.socket.sendall(b"".join(encode_command(["RPUSH", "l", number]) for number in range(5)))
        assert barrier.reached.wait(DEADLINE_MS).in_flight == 2
        assert redis.lrange("l", 0, -1) == [b"0", b"1"]
        assert [wire.reply(), wire.reply()] == [1, 2]
        barrier.release()
        assert [wire.reply() for _ in range(3)] == [3, 4, 5]


def test_in_a_transaction_after_execute_is_after_exec(tap: Tap, wire: Wire, redis: Any) -> None:
    with tap.when(Trigger(command="incr", call=2, phase="after-execute"), Hold()) as barrier:
        transaction = [["MULTI"], ["INCR", "a"], ["INCR", "b"], ["EXEC"], ["PING"]]
        wire.socket.sendall(b"".join(map(encode_command, transaction)))
        assert barrier.reached.wait(DEADLINE_MS).args == (b"INCR", b"b")
        assert (redis.get("a"), redis.get("b")) == (b"1", b"1")
        assert [wire.reply(), wire.reply(), wire.reply()] == [b"OK", b"QUEUED", b"QUEUED"]
        assert wire.silent_for(SOON_S)
        barrier.release()
        assert [wire.reply(), wire.reply()] == [[1, 1], b"PONG"]


@pytest.mark.parametrize("end", ["DISCARD", "EXEC"])
def test_a_command_of_an_aborted_transaction_triggers_nothing(tap: Tap, wire: Wire, redis: Any, end: str) -> None:
    wire.ask("WATCH", "w")
    redis.set("w", "changed")
    with tap.when(Trigger(command="incr", phase="after-execute"), Cut()):
        wire.ask("MULTI")
        wire.ask("INCR", "a")
        wire.ask(end)
        assert wire.ask("PING") == b"PONG"
    assert [record.fate for record in tap.recording.commands(where=lambda record: record.name == "INCR")] == [
        "discarded"
    ]


LUA = "return redis.call('INCR', KEYS[1])"
DIGEST = hashlib.sha1(LUA.encode(), usedforsecurity=False).hexdigest()


@pytest.mark.parametrize("phase", ["after-execute", "mid-reply"])
def test_a_call_answered_with_noscript_is_not_a_call(server: RedisInstance, redis: Any, phase: Any) -> None:
    redis.script_flush()
    with Tap(server.nodes[0], scripts={DIGEST: "count"}) as tap, Wire(tap.address) as wire:
        with tap.when(Trigger(script="count", phase=phase), Hold()) as barrier:
            assert wire.ask("EVALSHA", DIGEST, 1, "n").startswith(b"NOSCRIPT")
            wire.send("EVAL", LUA, 1, "n")
            command = barrier.reached.wait(DEADLINE_MS)
            assert (command.name, command.script, command.keys) == ("EVAL", "count", (b"n",))
            assert redis.get("n") == b"1"
        assert wire.reply() == 1


def test_the_second_call_is_the_second_that_ran(server: RedisInstance, redis: Any) -> None:
    redis.script_flush()
    with (
        Tap(server.nodes[0], scripts={DIGEST: "count"}) as tap,
        Wire(tap.address) as wire,
        tap.when(Trigger(script="count", call=2), Error("ERR second")),
    ):
        assert wire.ask("EVALSHA", DIGEST, 1, "n").startswith(b"NOSCRIPT")
        assert wire.ask("EVAL", LUA, 1, "n") == 1
        assert wire.ask("EVALSHA", DIGEST, 1, "n") == b"ERR second"
        assert wire.ask("EVALSHA", DIGEST, 1, "n") == 2


def test_watching_changes_nothing(tap: Tap, wire: Wire) -> None:
    with tap.when(Trigger(command="ping", call=None, phase="after-execute"), Watch()) as barrier:
        assert wire.ask("PING") == b"PONG"
        barrier.reached.wait(DEADLINE_MS)


def test_a_timeout_reports_the_traffic(tap: Tap, wire: Wire) -> None:
    with tap.when(Trigger(command="set"), Hold()) as barrier:
        assert wire.ask("PING") == b"PONG"
        with pytest.raises(NotSeen, match=r"call 1 of set, before-send: reached 0 of 1 times; last seen:\n.*PING"):
            barrier.reached.wait(30)


def test_a_client_that_dies_while_held_is_heard_after_release(tap: Tap, redis: Any) -> None:
    with tap.when(Trigger(command="set"), Hold()) as barrier:
        with Wire(tap.address) as wire:
            wire.send("SET", "k", "late")
            barrier.reached.wait(DEADLINE_MS)
        assert redis.get("k") is None
        barrier.release()
        eventually(lambda: redis.get("k") == b"late", lambda: redis.get("k"))


def test_the_tap_can_be_closed_while_something_is_held(server: RedisInstance) -> None:
    with (
        Tap(server.nodes[0]) as tap,
        Wire(tap.address) as wire,
        tap.when(Trigger(command="ping"), Hold()) as barrier,
    ):
        wire.send("PING")
        barrier.reached.wait(DEADLINE_MS)
        tap.close()
        with contextlib.suppress(ConnectionResetError):
            assert wire.rest() == b""
        barrier.release()


def test_a_rule_set_from_another_thread_while_traffic_flows(tap: Tap, wire: Wire) -> None:
    enough = threading.Event()
    finished = in_background(lambda: list(iter(lambda: enough.is_set() or wire.ask("PING"), True)))
    for _ in range(20):
        with tap.when(Trigger(command="ping", call=None), Delay(0.1)) as barrier:
            barrier.reached.wait(DEADLINE_MS)
    enough.set()
    assert set(finished()) == {b"PONG"}


@pytest.mark.parametrize(
    ("trigger", "action", "what"),
    [
        ({"call": 0}, Hold(), "invalid call number 0"),
        ({"phase": "later"}, Hold(), "invalid phase 'later'"),
        ({"script": "a", "command": "b"}, Hold(), "both a script and a command"),
        ({"script": "moveToFinish"}, Hold(), "did you mean 'moveToFinished'"),
        ({"phase": "mid-reply"}, Error("ERR"), "in the middle of a reply"),
    ],
)
def test_mistakes_are_reported(tap: Tap, trigger: dict[str, Any], action: Action, what: str) -> None:
    with pytest.raises(UsageProblem) as raised, tap.when(Trigger(**trigger), action):
        pass
    assert what in str(raised.value)
