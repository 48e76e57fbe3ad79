"""An address that stays the same while Redis behind it moves: what a service name or a virtual IP is in production.

Clients of the driver protocol know one address, and no sentinels. After a failover the kit points the relay at the new
primary, as an operator's automation would.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

from conformance.observe.tap.loop import LoopThread
from conformance.servers.setting import split_node

HOST = "127.0.0.1"


class Relay:
    """Passes bytes between clients and `target` (`host:port`). All methods may be called from any thread."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._loop = LoopThread("relay")
        self._live: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.address = ""

    def __enter__(self) -> Self:
        """Listen."""
        self._loop.await_(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening, and end all connections."""
        self._loop.await_(self._close())
        self._loop.stop()

    def point_at(self, target: str) -> None:
        """From now on lead to another server; connections to the old one end."""
        self.target = target
        self._loop.ask(self._drop)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.address = f"{HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._drop()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _drop(self) -> None:
        for writer in list(self._live):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._live.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection(*split_node(self.target))
        except OSError:
            writer.transport.abort()
            self._live.discard(writer)
            return
        self._live.add(far_writer)
        with suppress(OSError, asyncio.CancelledError):
            async with asyncio.TaskGroup() as both:
                both.create_task(_pass_on(reader, far_writer))
                both.create_task(_pass_on(far_reader, writer))
        for each in (writer, far_writer):
            each.transport.abort()
            self._live.discard(each)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one side ends, which ends the other."""
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
