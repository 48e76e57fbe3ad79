"""Connections of every kind pass unharmed, are recorded, and end as they would without a tap."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
import redis as redis_py

from conformance.observe.tap.conversation import CALL, FLOOD, MOST_PER_S, FloodThrottle
from conformance.observe.tap.recording import CommandRecord, NotSeen
from conformance.observe.tap.resp import encode_command
from conformance.observe.tap.rules import BlackHole, Cut, Hold, Trigger
from conformance.observe.tap.socket_writer import RETRANSMIT_MS, RedisLink
from conformance.observe.tap.tap import Tap
from conformance.problems import UsageProblem
from conformance.servers import RedisInstance
from conformance.servers.binary import any_binary
from conformance.servers.local import free_port

from .conftest import DEADLINE_MS, Wire, eventually, in_background

BIG = bytes(range(256)) * 65536
"""16 MiB."""


def _kinds(listener: Any, count: int) -> list[str]:
    return [message["type"] for _ in range(count) if (message := listener.get_message(timeout=5))]


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_real_client_works_in_both_protocols(tap: Tap, redis: Any, protocol: int) -> None:
    host, port = tap.address.split(":")
    with redis_py.Redis(host=host, port=int(port), protocol=protocol) as client:
        client.hset("h", mapping={"a": "1", "b": "2"})
        assert client.hgetall("h") == {b"a": b"1", b"b": b"2"}
        assert client.config_get("maxmemory")
        with client.pipeline(transaction=True) as pipeline:
            assert pipeline.incr("n").zadd("z", {"m": 1.5}).zrange("z", 0, -1, withscores=True).execute()[:2] == [1, 1]
        with client.pubsub() as listener:
            listener.subscribe("one", "two")
            listener.psubscribe("t*")
            assert _kinds(listener, 3) == ["subscribe", "subscribe", "psubscribe"]
            redis.publish("two", "hello")
            assert _kinds(listener, 2) == ["message", "pmessage"]
            listener.ping()
            assert _kinds(listener, 1) == ["pong"]
            listener.unsubscribe()
            listener.punsubscribe()
            assert _kinds(listener, 3) == ["unsubscribe", "unsubscribe", "punsubscribe"]
    assert not [record for record in tap.recording.commands() if record.fate != "answered"]


def test_a_client_that_asks_without_a_pause_is_delayed(server: RedisInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.observe.tap.conversation.FLOOD", 0)
    with Tap(server.nodes[0], slows_floods=True) as tap, Wire(tap.address) as wire:
        started = time.monotonic()
        for _ in range(101):
            wire.ask("PING")
        # The loop's timer may fire a little early; the first call is not delayed.
        assert time.monotonic() - started >= 100 * CALL / MOST_PER_S / 2
        assert not tap.has_floods, "it waits for each reply"


def test_a_throttle_has_no_debts() -> None:
    throttle, now_s = FloodThrottle(), time.monotonic() + 1
    assert [throttle.pause_s(FLOOD, now_s), throttle.pause_s(CALL, now_s)] == [0, CALL / MOST_PER_S]
    assert throttle.pause_s(2 * MOST_PER_S, now_s) == 2, "a pipeline waits for all of it"
    assert throttle.pause_s(CALL, now_s) == CALL / MOST_PER_S, "and the next call only for itself"
    assert throttle.pause_s(MOST_PER_S, now_s + 3) == 0, "a second after the pause"


def test_big_values_in_both_directions(tap: Tap, wire: Wire, redis: Any) -> None:
    sending = in_background(lambda: wire.ask("SET", "big", BIG))
    assert sending() == b"OK"
    assert redis.get("big") == BIG
    assert wire.ask("GET", "big") == BIG
    kept = tap.recording.commands()
    assert kept[0].clipped
    assert kept[1].reply is not None
    assert kept[1].reply.size == len(BIG) + len(b"$16777216\r\n\r\n")


def test_a_long_reply_of_a_script_is_kept_whole(tap: Tap, wire: Wire) -> None:
    """A claim answers the fields of a job before its id: seen with a stack trace of 4 KiB."""
    wire.ask("EVAL", "return {string.rep('x', 30000), 'id'}", "0")
    wire.ask("SET", "long", "x" * 30_000)
    wire.ask("GET", "long")
    script, _, plain = (record.reply for record in tap.recording.commands())
    assert script is not None
    assert plain is not None
    assert script.head.endswith(b"$2\r\nid\r\n")
    assert len(script.head) == script.size
    assert len(plain.head) < plain.size


def test_a_client_that_does_not_read_is_not_read_for(tap: Tap, wire: Wire, redis: Any) -> None:
    redis.set("big", BIG)
    wire.socket.sendall(encode_command(["GET", "big"]) * 8)
    tap.recording.wait_for(lambda record: record.fate == "answered", deadline_ms=DEADLINE_MS)
    assert [len(wire.reply()) for _ in range(8)] == [len(BIG)] * 8


@pytest.mark.parametrize("words", [["BZPOPMIN", "z", "10"], ["XREAD", "BLOCK", "10000", "STREAMS", "s", "$"]])
def test_blocking_commands_block_their_own_connection_only(tap: Tap, redis: Any, words: list[str]) -> None:
    with Wire(tap.address) as blocked, Wire(tap.address) as other:
        blocked.send(*words)
        command = tap.recording.wait_for(lambda record: record.blocking, deadline_ms=DEADLINE_MS)
        assert command.keys == (words[1].encode() if words[0] == "BZPOPMIN" else b"s",)
        assert other.ask("PING") == b"PONG"
        eventually(lambda: redis.info("clients")["blocked_clients"] == 1, lambda: redis.info("clients"))
        redis.zadd("z", {"m": 1}) if words[0] == "BZPOPMIN" else redis.xadd("s", {"f": "v"})
        assert blocked.reply()


def test_a_blocked_client_that_leaves_is_gone_from_redis(tap: Tap, redis: Any) -> None:
    with Wire(tap.address) as blocked:
        blocked.send("BZPOPMIN", "z", "0")
        eventually(lambda: redis.info("clients")["blocked_clients"] == 1, lambda: redis.info("clients"))
    eventually(lambda: redis.info("clients")["blocked_clients"] == 0, lambda: redis.info("clients"))
    redis.zadd("z", {"m": 1})
    assert redis.zcard("z") == 1
    eventually(lambda: not tap.connections(), tap.connections)
    assert [record.fate for record in tap.recording.commands()] == ["lost"]


def test_unsubscribing_from_everything_is_one_command(wire: Wire, tap: Tap) -> None:
    for words in (["SUBSCRIBE", "a", "b"], ["UNSUBSCRIBE"], ["UNSUBSCRIBE"], ["PING"]):
        wire.send(*words)
    assert [wire.reply()[0] for _ in range(2)] == [b"subscribe"] * 2
    assert [wire.reply()[0] for _ in range(3)] == [b"unsubscribe"] * 3
    assert wire.reply() == b"PONG"
    assert [record.fate for record in tap.recording.commands()] == ["answered"] * 4


def test_pushes_of_resp3_do_not_answer_commands(wire: Wire, tap: Tap, redis: Any) -> None:
    wire.ask("HELLO", 3)
    assert wire.ask("CLIENT", "TRACKING", "ON", "BCAST") == b"OK"
    redis.set("watched", 1)
    assert wire.reply()[0] == b"invalidate"
    assert wire.ask("SUBSCRIBE", "c") == [b"subscribe", b"c", 1]
    redis.publish("c", "m")
    wire.send("GET", "watched")
    assert {wire.raw_reply()[:1], wire.raw_reply()[:1]} == {b">", b"$"}
    last = tap.recording.commands()[-1]
    assert last.name == "GET"
    assert last.reply is not None
    assert last.reply.head == b"$1\r\n1\r\n"


def test_replies_that_are_switched_off_are_not_waited_for(wire: Wire, tap: Tap) -> None:
    for words in (["CLIENT", "REPLY", "SKIP"], ["SET", "a", "1"], ["GET", "a"]):
        wire.send(*words)
    assert wire.reply() == b"1"
    for words in (["CLIENT", "REPLY", "OFF"], ["SET", "a", "2"], ["CLIENT", "REPLY", "ON"], ["GET", "a"]):
        wire.send(*words)
    assert [wire.reply(), wire.reply()] == [b"OK", b"2"]
    assert [record.reply is None for record in tap.recording.commands()] == [
        True,
        True,
        False,
        True,
        True,
        False,
        False,
    ]


def test_monitor_lines_answer_nothing(wire: Wire, tap: Tap, redis: Any) -> None:
    assert wire.ask("MONITOR") == b"OK"
    redis.set("seen", 1)
    while b'"seen"' not in (line := wire.reply()):
        assert line
    assert [record.fate for record in tap.recording.commands()] == ["answered"]


def test_inline_and_empty_commands(wire: Wire, tap: Tap) -> None:
    wire.socket.sendall(b"\r\n*0\r\nSET k 'a b'\r\nGET k\r\n")
    assert [wire.reply(), wire.reply()] == [b"OK", b"a b"]
    assert [record.args for record in tap.recording.commands(where=lambda record: bool(record.args))] == [
        (b"SET", b"k", b"a b"),
        (b"GET", b"k"),
    ]


def test_bytes_that_are_not_resp_reach_redis_which_says_so(wire: Wire, tap: Tap) -> None:
    wire.socket.sendall(encode_command(["PING"]) + b"*1\r\n!oops\r\nmore")
    assert wire.reply() == b"PONG"
    assert b"Protocol error: expected '$', got '!'" in wire.rest()
    assert [record.name for record in tap.recording.commands()] == ["PING"]


def test_half_closed_clients_get_their_answers(wire: Wire) -> None:
    wire.socket.sendall(encode_command(["PING"]) * 3)
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.rest() == b"+PONG\r\n" * 3


def test_an_unfinished_command_reaches_redis_before_the_end(wire: Wire, tap: Tap) -> None:
    wire.socket.sendall(encode_command(["PING"])[:-3])
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.rest() == b""
    assert not tap.recording.commands()


def test_a_connection_that_redis_ends_ends_for_the_client(wire: Wire, tap: Tap, redis: Any) -> None:
    number = wire.ask("CLIENT", "ID")
    redis.client_kill_filter(_id=number)
    assert wire.rest() == b""
    eventually(lambda: not tap.connections(), tap.connections)


def test_without_redis_clients_are_sent_away_and_later_served(names: dict[str, str], tmp_path: Path) -> None:
    port = free_port(cluster=False)
    with Tap(f"127.0.0.1:{port}", scripts=names) as tap:
        with Wire(tap.address) as wire:
            wire.send("PING")
            assert wire.rest() == b""
        command = [
            any_binary(print).path,
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(tmp_path),
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            eventually(lambda: _pings(tap.address), process.poll)
        finally:
            process.terminate()
            process.wait(10)


def _pings(address: str) -> bool:
    try:
        with Wire(address) as wire:
            return bool(wire.ask("PING") == b"PONG")
    except OSError:
        return False


def test_records_say_what_was_sent_and_what_came_back(wire: Wire, tap: Tap) -> None:
    wire.ask("CLIENT", "SETNAME", "someone")
    wire.ask("AUTH", "user", "secret")
    wire.ask("HELLO", "3", "AUTH", "user", "secret", "SETNAME", "x")
    for words in (["MULTI"], ["SET", "k", "v"], ["LPUSH", "k", "x"], ["EXEC"], ["BADCOMMAND"]):
        wire.ask(*words)
    records = tap.recording.commands()
    assert [record.transaction for record in records] == [None] * 3 + [1] * 4 + [None]
    replies = {record.name: record.reply for record in records if record.reply is not None}
    assert replies["SET"].head == b"+OK\r\n"
    assert replies["LPUSH"].error_code == "WRONGTYPE"
    assert replies["BADCOMMAND"].error is not None
    assert b"secret" not in b" ".join(word for record in records for word in (*record.args, *record.argv))
    assert [record.sequence for record in records] == list(range(1, 9))
    assert [record.sequence for record in tap.recording.commands(after=6)] == [7, 8]
    assert [(connection.number, connection.name) for connection in tap.connections()] == [(1, "someone")]
    assert all(record.sent_s is not None and record.sent_s >= record.arrived_s for record in records)


def test_waiting_for_a_command(wire: Wire, tap: Tap) -> None:
    waiting = in_background(
        lambda: tap.recording.wait_for(
            lambda record: record.name == "ECHO" and record.reply is not None, deadline_ms=DEADLINE_MS, count=2
        )
    )
    assert [wire.ask("ECHO", word) for word in ("a", "b")] == [b"a", b"b"]
    assert waiting().args == (b"ECHO", b"b")
    with pytest.raises(NotSeen, match=r"0 of 1 commands; last seen:\n.*ECHO a"):
        tap.recording.wait_for(lambda record: record.name == "GET", deadline_ms=20)


def test_a_late_reply_ends_the_wait_for_it(tap: Tap, wire: Wire, redis: Any) -> None:
    checked = threading.Event()

    def has_reply(record: CommandRecord) -> bool:
        checked.set()
        return record.reply is not None

    waiting = in_background(lambda: tap.recording.wait_for(has_reply, deadline_ms=6 * DEADLINE_MS))
    wire.send("BLPOP", "late", "0")
    assert checked.wait(DEADLINE_MS / 1000)
    redis.lpush("late", "1")
    assert waiting().name == "BLPOP"


def test_latency_is_added_in_both_directions(tap: Tap, wire: Wire) -> None:
    wire.ask("PING")
    with tap.link(RedisLink(latency_ms=30)):
        started = time.monotonic()
        assert wire.ask("PING") == b"PONG"
        assert time.monotonic() - started >= 0.06
    assert wire.quickest_s("PING") < 0.06


def test_a_link_with_loss_and_jitter_is_late_by_chance_and_never_out_of_order(tap: Tap, wire: Wire) -> None:
    with tap.link(RedisLink(loss=0.5, jitter_ms=2, random=Random(1))):
        started = time.monotonic()
        for number in range(12):
            wire.send("ECHO", str(number))
        assert [wire.reply() for _ in range(12)] == [str(number).encode() for number in range(12)]
        assert time.monotonic() - started >= RETRANSMIT_MS / 1000


def test_packets_are_lost_at_the_chosen_rate() -> None:
    link = RedisLink(loss=0.25, random=Random(1))
    assert 200 < sum(link.delay_s() > 0 for _ in range(1000)) < 300


def test_one_way_silence(tap: Tap, wire: Wire, redis: Any) -> None:
    """Redis executes a command although the client gets no reply; in the other direction it gets no command."""
    assert wire.ask("PING") == b"PONG"
    with tap.silence("to-client"):
        wire.send("SET", "one-way", "1")
        eventually(lambda: redis.get("one-way") == b"1", lambda: redis.get("one-way"))
        assert wire.silent_for(0.05)
    assert wire.reply() == b"OK"
    with tap.silence("to-redis"):
        wire.send("SET", "one-way", "2")
        assert wire.silent_for(0.05)
        assert redis.get("one-way") == b"1"
    assert wire.reply() == b"OK"
    assert redis.get("one-way") == b"2"


def test_bandwidth_and_packets(tap: Tap, redis: Any) -> None:
    redis.set("k", "x" * 20_000)
    with Wire(tap.address) as fast, Wire(tap.address) as slow:
        assert fast.ask("PING") == slow.ask("PING") == b"PONG"
        with tap.link(RedisLink(bytes_per_s=200_000), connection=2):
            started = time.monotonic()
            assert len(slow.ask("GET", "k")) == 20_000
            assert time.monotonic() - started >= 0.1
            assert len(fast.ask("GET", "k")) == 20_000
            assert fast.quickest_s("GET", "k") < 0.1
        with tap.link(RedisLink(chunk_bytes=1)):
            assert len(fast.ask("GETRANGE", "k", 0, 200)) == 201


def test_silence_and_outage_hit_old_and_new_connections_and_heal(tap: Tap, wire: Wire) -> None:
    assert wire.ask("PING") == b"PONG"
    with tap.silence():
        wire.send("PING")
        with Wire(tap.address) as new:
            new.send("PING")
            assert wire.silent_for(0.05)
            assert new.silent_for(0.01)
    assert wire.reply() == b"PONG"
    with tap.outage():
        with pytest.raises(ConnectionResetError):
            wire.rest()
        with pytest.raises(ConnectionResetError), Wire(tap.address) as refused:
            refused.ask("PING")
    assert _pings(tap.address)


def test_cutting_one_connection_now(tap: Tap, redis: Any) -> None:
    del redis
    with Wire(tap.address) as first, Wire(tap.address) as second:
        assert first.ask("PING") == second.ask("PING") == b"PONG"
        tap.cut(1)
        assert first.rest() == b""
        assert second.ask("PING") == b"PONG"


def test_cutting_what_is_silent_or_held(tap: Tap, redis: Any) -> None:
    del redis
    for action in (Hold(), BlackHole()):
        with Wire(tap.address) as wire, tap.when(Trigger(command="ping"), action) as barrier:
            wire.send("PING")
            barrier.reached.wait(DEADLINE_MS)
            tap.cut(reset=True)
            with pytest.raises(ConnectionResetError):
                wire.rest()
    eventually(lambda: not tap.connections(), tap.connections)


def test_cutting_what_has_just_been_accepted(server: RedisInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket belongs to its conversation only a turn of the loop later, and must not stay open for ever."""
    accepted = Tap._accept

    def cut_at_once(tap: Tap, node: str) -> Any:
        side = accepted(tap, node)
        tap._cut(None, reset=True)
        return side

    monkeypatch.setattr(Tap, "_accept", cut_at_once)
    with Tap(server.nodes[0]) as tap:
        with pytest.raises(ConnectionResetError), Wire(tap.address) as wire:
            wire.ask("PING")
        eventually(lambda: not tap.connections(), tap.connections)


@pytest.fixture
def other_server(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A Redis that listens on a Unix socket and with TLS."""
    key, certificate, path = tmp_path / "key.pem", tmp_path / "certificate.pem", tmp_path / "redis.sock"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    port = free_port(cluster=False)
    options = ["--port", "0", "--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    options += ["--tls-auth-clients", "no", "--unixsocket", str(path), "--bind", "127.0.0.1", "--save", ""]
    program = any_binary(print)
    process = subprocess.Popen([program.path, *options, "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
    eventually(lambda: path.exists() or process.poll() is not None, process.poll)
    if process.poll() is not None:
        pytest.skip(f"{program.source} does not start with TLS")
    yield port, certificate
    process.terminate()
    process.wait(10)


def test_redis_behind_a_unix_socket_and_behind_tls(other_server: tuple[int, Path]) -> None:
    import ssl

    port, certificate = other_server
    trusted = ssl.create_default_context(cafile=str(certificate))
    for node, tls in ((f"unix:{certificate.parent}/redis.sock", None), (f"127.0.0.1:{port}", trusted)):
        with Tap(node, tls=tls) as tap, Wire(tap.address) as wire:
            assert wire.ask("SET", "k", BIG[:100_000]) == b"OK"
            with tap.when(Trigger(command="get", phase="mid-reply"), Cut()):
                wire.send("GET", "k")
                assert len(wire.rest()) == (100_000 + len("$100000\r\n\r\n")) // 2
            eventually(lambda: not tap.connections(), tap.connections)


def test_a_tap_needs_a_usable_address(server: RedisInstance) -> None:
    for nodes in ((), ("localhost",), ("127.0.0.1:port",)):
        with pytest.raises(UsageProblem):
            Tap(*nodes)
    with pytest.raises(UsageProblem):
        _ = Tap(server.nodes[0]).address
    with pytest.raises(UsageProblem), Tap(server.nodes[0]).when(Trigger(), Hold()):
        pass


@pytest.mark.parametrize(
    "wrong",
    [{"loss": 1.0}, {"loss": -0.1}, {"jitter_ms": -1.0}, {"latency_ms": -1.0}, {"bytes_per_s": 0}, {"chunk_bytes": 0}],
    ids=str,
)
def test_an_impossible_link_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem):
        RedisLink(**wrong)


def test_healing_ends_what_is_in_force(tap: Tap, wire: Wire) -> None:
    with ExitStack() as stack:
        stack.enter_context(tap.when(Trigger(command="GET", call=None), Hold()))
        stack.enter_context(tap.link(RedisLink(latency_ms=60_000)))
        stack.enter_context(tap.silence())
        tap.heal()
        assert wire.ask("GET", "nothing") is None
        assert wire.ask("PING") == b"PONG"
    assert wire.ask("GET", "nothing") is None


def test_a_held_command_is_sent_when_the_tap_heals(tap: Tap, wire: Wire) -> None:
    with tap.when(Trigger(command="ECHO"), Hold()) as barrier:
        wire.send("ECHO", "late")
        barrier.reached.wait(5000)
        tap.heal()
        assert wire.reply() == b"late"


def test_after_an_outage_new_connections_are_let_in(tap: Tap) -> None:
    with tap.outage():
        with pytest.raises((OSError, EOFError)), Wire(tap.address) as refused:
            refused.ask("PING")
        tap.heal()
        with Wire(tap.address) as again:
            assert again.ask("PING") == b"PONG"
    with Wire(tap.address) as after:
        assert after.ask("PING") == b"PONG"


def test_forgetting_drops_the_records_and_counts_on(tap: Tap, wire: Wire) -> None:
    wire.ask("PING")
    tap.forget()
    assert tap.recording.commands() == ()
    wire.ask("PING")
    assert [command.sequence for command in tap.recording.commands()] == [2]


def test_forgetting_up_to_a_command_keeps_the_later_ones(tap: Tap, wire: Wire) -> None:
    for _ in range(3):
        wire.ask("PING")
    tap.forget(upto=2)
    assert [command.sequence for command in tap.recording.commands()] == [3]
    tap.forget(upto=2)
    assert [command.sequence for command in tap.recording.commands(after=2)] == [3]


def test_a_closed_tap_leaves_no_thread_behind(server: RedisInstance) -> None:
    before = set(threading.enumerate())
    with Tap(server.nodes[0]):
        started = set(threading.enumerate()) - before
    assert started
    assert not started & set(threading.enumerate())


def test_a_tap_that_is_closed_can_be_healed(tap: Tap) -> None:
    tap.close()
    tap.heal()
    tap.forget()
    assert tap.failures == ()


@pytest.mark.parametrize("slows_floods", [True, False])
def test_a_flood_is_slowed_down_and_nothing_is_lost(server: RedisInstance, slows_floods: bool) -> None:
    """Other connections are as quick as before."""
    sent, started = FLOOD + MOST_PER_S, time.monotonic()
    with Tap(server.nodes[0], slows_floods=slows_floods) as tap, Wire(tap.address) as wire, Wire(tap.address) as other:
        wire.socket.sendall(encode_command(["PING"]) * sent)
        for _ in range(sent):
            assert wire.reply() == b"PONG"
        wire.send("PING")
        assert other.quickest_s("PING") < 0.5
        assert wire.reply() == b"PONG"
        # Not less however quick the machine is: the tap reads the last PING when the others are a second old.
        assert not slows_floods or time.monotonic() - started > 0.9
        assert tap.has_floods is slows_floods
    assert not tap.has_floods
