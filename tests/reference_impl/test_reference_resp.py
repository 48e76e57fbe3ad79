"""Replies and commands in Python alone: the same as with hiredis, however they are cut up."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.exceptions import InvalidResponse, ResponseError

from conformance.reference_impl.connection.pure_resp import PureReader, pure_pack
from conformance.reference_impl.connection.resp import Argument, CommandHead, packed

LINES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=8)
TEXTS = st.one_of(st.binary(max_size=12), st.sampled_from([b"\r\n", b"$1\r\na\r\n", b"x" * 70, b"y" * 1100])).map(
    lambda content: b"$%d\r\n%b\r\n" % (len(content), content)
)
"""Also such as hold what ends a line, or look like a reply, and some that are longer than most."""
REPLIES = st.recursive(
    st.one_of(
        TEXTS,
        st.lists(TEXTS, min_size=1, max_size=6).map(lambda texts: b"*%d\r\n" % len(texts) + b"".join(texts)),
        st.integers(-(2**63), 2**63 - 1).map(lambda number: b":%d\r\n" % number),
        LINES.map(lambda line: b"+" + line.encode() + b"\r\n"),
        LINES.map(lambda line: b"-ERR " + line.encode() + b"\r\n"),
        st.sampled_from([b"$-1\r\n", b"*-1\r\n", b"*0\r\n"]),
    ),
    lambda inner: st.lists(inner, min_size=1, max_size=4).map(
        lambda elements: b"*%d\r\n" % len(elements) + b"".join(elements)
    ),
    max_leaves=8,
)


def both_readers() -> tuple[Any, Any]:
    return (
        hiredis.Reader(protocolError=InvalidResponse, replyError=ResponseError),
        PureReader(ResponseError),
    )


def shown(value: Any) -> Any:
    """Errors are equal by what they are and say."""
    if isinstance(value, list):
        return [shown(element) for element in value]
    return (type(value), str(value)) if isinstance(value, Exception) else (type(value), value)


def everything(reader: Any) -> list[Any]:
    read = []
    while (value := reader.gets()) is not False:
        read.append(shown(value))
    return read


@settings(max_examples=150, deadline=None)
@given(st.lists(REPLIES, max_size=4), st.lists(st.integers(1, 90), min_size=1, max_size=6))
def test_replies_are_those_that_hiredis_reads_after_every_piece(replies: list[bytes], sizes: list[int]) -> None:
    stream, reads, number = b"".join(replies), both_readers(), 0
    while stream:
        size = sizes[number % len(sizes)]
        piece, stream, number = stream[:size], stream[size:], number + 1
        for reader in reads:
            reader.feed(piece)
        expected, found = map(everything, reads)
        assert found == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.text(), st.binary()), min_size=1, max_size=6))
def test_commands_are_those_that_hiredis_packs(words: list[str | bytes]) -> None:
    given_words: Any = tuple(words)
    try:
        expected = hiredis.pack_command(given_words)
    except UnicodeEncodeError:
        with pytest.raises(UnicodeEncodeError):
            pure_pack(words)
    else:
        assert pure_pack(words) == expected


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n", b":seven\r\n", b"$five\r\nabcde\r\n"])
def test_an_invalid_reply_is_an_error(answer: bytes) -> None:
    for reader in both_readers():
        reader.feed(answer)
        with pytest.raises(InvalidResponse):
            reader.gets()


def test_a_large_reply_in_many_pieces_is_read_once() -> None:
    reader = PureReader(ResponseError)
    reader.feed(b"*3000\r\n")
    for number in range(2999):
        reader.feed(b":%d\r\n" % number)
        assert reader.gets() is False
    reader.feed(b":2999\r\n")
    assert reader.gets() == list(range(3000))
    assert reader.gets() is False


@pytest.mark.parametrize("arguments", [(), ("é", b"\xff", 7, 1.5, None, True), ("", "\ud800", 2**53)])
def test_a_head_that_is_packed_once_changes_no_byte(arguments: tuple[Argument, ...]) -> None:
    words = ("EVALSHA", "a" * 40, "2", "key é", "key")
    assert packed((CommandHead(*words), *arguments)) == packed((*words, *arguments))
    assert CommandHead(*words) == "EVALSHA"
