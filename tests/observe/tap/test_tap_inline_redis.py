"""What the tap takes for words is what Redis takes for words."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.observe.tap.inline import split_inline
from conformance.observe.tap.resp import ProtocolViolation, decode, plain
from conformance.servers import Server

from .conftest import Wire

TEXT = st.text(alphabet="ab \t\"'\\xn4", max_size=14)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXT)
def test_inline_words_agree_with_a_real_redis(server: Server, text: str) -> None:
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
