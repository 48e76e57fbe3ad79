"""A TCP proxy that makes the network of this machine as slow as one between two machines.

It runs an event loop of its own in a thread. Bytes are passed on in order, each a fixed time after it came; how many
there are makes no difference.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any


class SlowProxy:
    """Passes on what it hears after half a round trip in each direction. Times are in seconds."""

    def __init__(self, host: str, port: int, round_trip_s: float) -> None:
        self._target = (host, port)
        self._delay_s = round_trip_s / 2

    async def open(self) -> int:
        """Listen on a free port of this machine; answers the port."""
        listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(listener.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target_reader, target_writer = await asyncio.open_connection(*self._target)
        await asyncio.gather(self._pass_on(reader, target_writer), self._pass_on(target_reader, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while heard := await reader.read(2**16):
            loop.call_later(self._delay_s, writer.write, heard)
        loop.call_later(self._delay_s, writer.close)


@contextmanager
def slow_proxy(host: str, port: int, round_trip_s: float) -> Iterator[int]:
    """Answer the port of a proxy to this address, which lives as long as the block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield _wait(loop, SlowProxy(host, port, round_trip_s).open())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _wait(loop: asyncio.AbstractEventLoop, opening: Coroutine[Any, Any, int]) -> int:
    return asyncio.run_coroutine_threadsafe(opening, loop).result()
