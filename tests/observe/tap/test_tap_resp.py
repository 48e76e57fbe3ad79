"""The parsers: the same frames for any pieces; and back to the same bytes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import hiredis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.observe.tap.frames import MAX_BULK_BYTES, CommandParser, ReplyParser, split_inline
from conformance.observe.tap.resp import ProtocolViolation, Reply, decode, encode, encode_command, plain, value_of
from conformance.servers import RedisInstance

from .conftest import Wire

LINE = st.binary(max_size=20).map(lambda text: text.replace(b"\r", b"").replace(b"\n", b""))
NUMBER = st.integers().map(lambda number: str(number).encode())
DOUBLE = st.floats().map(lambda number: repr(number).encode())
BULK = st.binary(max_size=60)


def scalars() -> st.SearchStrategy[Reply]:
    return st.one_of(
        st.builds(Reply, st.sampled_from([b"+", b"-"]), LINE),
        st.builds(Reply, st.sampled_from([b":", b"("]), NUMBER),
        st.builds(Reply, st.just(b","), DOUBLE),
        st.builds(Reply, st.just(b"#"), st.sampled_from([b"t", b"f"])),
        st.just(Reply(b"_", b"")),
        st.just(Reply(b"$")),
        st.just(Reply(b"*")),
        st.builds(Reply, st.sampled_from([b"$", b"!"]), BULK),
        st.builds(Reply, st.just(b"="), BULK.map(lambda text: b"txt:" + text)),
        st.lists(BULK.filter(len), max_size=4).map(
            lambda chunks: Reply(b"$", items=tuple(Reply(b";", chunk) for chunk in chunks), streamed=True)
        ),
    )


def aggregates(members: st.SearchStrategy[Reply]) -> st.SearchStrategy[Reply]:
    some = st.lists(members, max_size=4)
    pairs = st.lists(st.tuples(members, members), max_size=3).map(lambda found: tuple(sum(found, ())))
    return st.one_of(
        st.builds(lambda kind, items: Reply(kind, items=tuple(items)), st.sampled_from([b"*", b"~"]), some),
        pairs.map(lambda items: Reply(b"%", items=items)),
        st.builds(lambda items, value: Reply(b"|", items=(*items, value)), pairs, members),
        st.builds(
            lambda kind, items: Reply(kind, items=tuple(items), streamed=True), st.sampled_from([b"*", b"~"]), some
        ),
        pairs.map(lambda items: Reply(b"%", items=items, streamed=True)),
    )


REPLIES = st.recursive(scalars(), aggregates, max_leaves=12)
PUSHES = st.lists(REPLIES, min_size=1, max_size=4).map(lambda items: Reply(b">", items=tuple(items)))


@st.composite
def pieces(draw: Any, data: bytes) -> list[bytes]:
    """The data, cut anywhere."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    edges = [0, *cuts, len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@given(REPLIES)
def test_a_reply_is_written_as_it_was_read(reply: Reply) -> None:
    assert decode(encode(reply)) == reply
    assert encode(decode(encode(reply))) == encode(reply)


@given(st.lists(st.one_of(REPLIES, PUSHES), max_size=6), st.data())
def test_replies_are_the_same_however_the_bytes_are_cut(replies: list[Reply], data: Any) -> None:
    frames = [encode(reply) for reply in replies]
    parser = ReplyParser()
    found = [frame for piece in data.draw(pieces(b"".join(frames))) for frame in parser.feed(piece)]
    assert found == frames
    assert parser.violation is None
    assert parser.unread == b""


@given(st.lists(st.one_of(REPLIES, PUSHES), min_size=1, max_size=4), st.data())
def test_bytes_of_an_unfinished_reply_stay_unread(replies: list[Reply], data: Any) -> None:
    stream = b"".join(encode(reply) for reply in replies)
    cut = stream[: data.draw(st.integers(0, len(stream)))]
    parser = ReplyParser()
    found = [frame for piece in data.draw(pieces(cut)) for frame in parser.feed(piece)]
    assert b"".join(found) + parser.unread == cut


@given(st.lists(st.lists(BULK, min_size=1, max_size=6), max_size=6), st.data())
def test_commands_are_the_same_however_the_bytes_are_cut(commands: list[list[bytes]], data: Any) -> None:
    raw = [encode_command(words) for words in commands]
    parser = CommandParser()
    found = [command for piece in data.draw(pieces(b"".join(raw))) for command in parser.feed(piece)]
    assert [command.raw for command in found] == raw
    assert [list(command.args) for command in found] == commands
    assert parser.unread == b""


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_no_bytes_are_lost_and_nothing_is_raised(chunks: list[bytes]) -> None:
    commands, replies = CommandParser(), ReplyParser()
    sent, answered = b"", b""
    for chunk in chunks:
        if commands.violation is None:
            sent += b"".join(command.raw for command in commands.feed(chunk))
        else:
            commands.feed(chunk)
        answered += b"".join(replies.feed(chunk))
    assert sent + commands.unread == b"".join(chunks)
    assert answered + replies.unread == b"".join(chunks)


@given(
    st.recursive(st.one_of(BULK, st.integers(-(2**60), 2**60), st.none()), lambda inner: st.lists(inner, max_size=4))
)
def test_values_are_those_that_hiredis_reads(value: Any) -> None:
    def write(value: Any) -> bytes:
        if isinstance(value, list):
            return b"*%d\r\n" % len(value) + b"".join(write(record) for record in value)
        if isinstance(value, int):
            return b":%d\r\n" % value
        return b"$-1\r\n" if value is None else b"$%d\r\n%b\r\n" % (len(value), value)

    reader = hiredis.Reader()
    reader.feed(write(value))
    assert plain(decode(write(value))) == reader.gets()


def test_every_kind_of_resp3_has_its_value() -> None:
    raw = (
        b"|1\r\n+ttl\r\n:9\r\n%3\r\n+a\r\n,1.5\r\n+b\r\n#t\r\n+c\r\n*5\r\n(12345678901234567890\r\n_\r\n"
        b"=5\r\ntxt:x\r\n!3\r\nERR\r\n$?\r\n;2\r\nab\r\n;1\r\nc\r\n;0\r\n"
    )
    reply = decode(raw)
    assert plain(reply) == {b"a": 1.5, b"b": True, b"c": [12345678901234567890, None, b"txt:x", b"ERR", b"abc"]}
    assert value_of(reply).kind == b"%"
    assert encode(reply) == raw


def test_a_value_of_16_mib_in_small_pieces() -> None:
    value = bytes(range(256)) * 65536
    raw = encode_command([b"SET", b"k", value])
    commands, replies = CommandParser(), ReplyParser()
    found = [command for start in range(0, len(raw), 4096) for command in commands.feed(raw[start : start + 4096])]
    assert found[0].args[2] == value
    frame = b"$%d\r\n%b\r\n" % (len(value), value)
    assert [record for at in range(0, len(frame), 4096) for record in replies.feed(frame[at : at + 4096])] == [frame]


@pytest.mark.parametrize(
    "bad",
    [
        b"*x\r\n",
        b"*1\r\n+a\r\n",
        b"*1\r\n$-5\r\n",
        b"*1\r\n$1_0\r\n",
        b"*1\r\n$%d\r\n" % (MAX_BULK_BYTES + 1),
        b'a "b\r\n',
    ],
)
def test_bytes_that_redis_would_refuse_end_the_parsing(bad: bytes) -> None:
    parser = CommandParser()
    ping = encode_command(["PING"])
    assert [command.raw for command in parser.feed(ping + bad)] == [ping]
    assert parser.violation is not None
    assert parser.unread == bad


@pytest.mark.parametrize(
    "bad", [b"x\r\n", b"$3\r\nabcd\r\n", b";1\r\na\r\n", b".\r\n", b"*1\r\n" * 300, b"$ 1\r\na\r\n"]
)
def test_replies_that_are_not_resp_end_the_parsing(bad: bytes) -> None:
    parser = ReplyParser()
    assert parser.feed(b"+OK\r\n" + bad) == [b"+OK\r\n"]
    assert parser.violation is not None
    assert parser.unread == bad


@pytest.mark.parametrize("bad", [b"", b"+OK", b"+OK\r\n+OK\r\n", b"$3\r\nab\r\n", b"*2\r\n:1\r\n", b"?\r\n"])
def test_decoding_needs_exactly_one_frame(bad: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode(bad)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"  set  a\tb ", (b"set", b"a", b"b")),
        (b"", ()),
        (rb'set k "a b\n\x41\q"', (b"set", b"k", b"a b\nAq")),
        (rb"set k 'a \' \n'", (b"set", b"k", rb"a ' \n")),
        (b'set k ""', (b"set", b"k", b"")),
    ],
)
def test_inline_words_are_those_of_redis(line: bytes, words: tuple[bytes, ...]) -> None:
    assert split_inline(line) == words


TEXT = st.text(alphabet="ab \t\"'\\xn4", max_size=14)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXT)
def test_inline_words_agree_with_a_real_redis(server: RedisInstance, text: str) -> None:
    line = b"ECHO " + text.encode()
    with Wire(server.nodes[0]) as wire:
        wire.socket.sendall(line + b"\r\n")
        raw = wire.raw_reply()
    try:
        words = split_inline(line)
    except ProtocolViolation:
        assert raw.startswith(b"-ERR Protocol error")
        return
    if len(words) == 2:
        assert plain(decode(raw)) == words[1]
    else:
        assert b"wrong number of arguments" in raw
