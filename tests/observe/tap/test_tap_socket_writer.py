"""The way out to one socket, where the other side is faster than the loop."""

from __future__ import annotations

import asyncio
import errno
import select
import socket
import struct
from functools import partial

import pytest

from conformance.observe.tap.loop import LoopThread
from conformance.observe.tap.socket_writer import RedisLink, SocketWriter

RESET_AT_CLOSE = struct.pack("ii", 1, 0)
DEADLINE_S = 5


async def finish_towards_a_redis_that_is_gone() -> None:
    """The reset is there, and the loop has not had a turn to see it: so it was with `maxclients`."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transport, _ = await loop.create_connection(asyncio.Protocol, *listener.getsockname())
        served, _ = listener.accept()
        served.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        served.close()
        readable, _, _ = select.select([transport.get_extra_info("socket").fileno()], [], [], DEADLINE_S)
        assert readable, f"no reset within {DEADLINE_S} s"
        writer = SocketWriter(loop, half_close=True)
        writer.connect(transport)
        writer.finish()
        transport.abort()


def test_the_end_may_find_a_connection_that_was_reset() -> None:
    asyncio.run(finish_towards_a_redis_that_is_gone())


async def write_to_a_client_that_was_killed() -> None:
    """Piece by piece, as on a slow link: the client is gone, and its tap has what it was to get."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transport, _ = await loop.create_connection(asyncio.Protocol, *listener.getsockname())
        listener.accept()[0].close()
        writer = SocketWriter(loop)
        writer.connect(transport)
        transport.abort()
        writer.link = RedisLink(chunk_bytes=1)
        writer.write(b"x" * 40)
        writer.link = None
        writer.write(b"y")
        for _ in range(100):
            await asyncio.sleep(0)


def test_data_for_a_killed_client_is_dropped_without_a_message(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(write_to_a_client_that_was_killed())
    assert not caplog.messages


def fail(error: Exception) -> None:
    raise error


def fail_later(error: Exception) -> None:
    asyncio.get_running_loop().call_soon(fail, error)


def test_a_connection_that_could_not_be_ended_is_not_a_failure_of_the_tap() -> None:
    thread = LoopThread("test")
    for error in (OSError(errno.ENOTCONN, "gone"), OSError(errno.EBADF, "a defect")):
        thread.ask(partial(fail_later, error))
    thread.ask(lambda: None)
    thread.stop()
    assert thread.failures == ["OSError(9, 'a defect')"]
