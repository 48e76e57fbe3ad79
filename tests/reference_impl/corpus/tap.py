"""A proxy before Redis that keeps every command which a client sends through it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import hiredis

START_S = 10


@dataclass(frozen=True)
class Command:
    """A command as it crossed the wire, on the connection of this number that was opened while `opener` was current."""

    connection: int
    opener: str
    words: tuple[bytes, ...]


class Tap:
    """Records commands before Redis sees them: whoever has the reply to a command finds the command recorded."""

    def __init__(self, host: str, port: int) -> None:
        self.opener = ""
        """What the test is doing at the moment; a connection that comes in now belongs to it."""
        self.address = ""
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._commands: list[Command] = []
        self._connections = 0
        self._pumps: set[asyncio.Task[None]] = set()

    def take(self) -> list[Command]:
        """All commands since the last time, in the order of their arrival."""
        with self._lock:
            taken, self._commands = self._commands, []
        return taken

    def start(self) -> threading.Thread:
        """Listen on a free port of the loopback, in a thread of its own."""
        thread = threading.Thread(target=self._run, name="tap", daemon=True)
        thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(START_S)
        return thread

    def stop(self, thread: threading.Thread) -> None:
        """Cut all connections and end the thread."""
        asyncio.run_coroutine_threadsafe(self._hang_up(), self._loop).result(START_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        thread.join()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._listener.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{port}"

    async def _hang_up(self) -> None:
        self._listener.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        number, opener = self._connections, self.opener
        from_redis, to_redis = await asyncio.open_connection(*self._target)
        parser: Any = hiredis.Reader()

        def record(chunk: bytes) -> None:
            parser.feed(chunk)
            while (words := parser.gets()) is not False:
                with self._lock:
                    self._commands.append(Command(number, opener, tuple(words)))

        self._start(_pump(reader, to_redis, record))
        self._start(_pump(from_redis, writer, lambda _chunk: None))

    def _start(self, pump: Any) -> None:
        task = self._loop.create_task(pump)
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: Any) -> None:
    """Pass on what comes in until one side is gone; then the other side learns of it too."""
    try:
        while chunk := await reader.read(65536):
            record(chunk)
            writer.write(chunk)
    except OSError:
        pass
    finally:
        writer.close()


@contextmanager
def tapped(node: str) -> Iterator[Tap]:
    """Put a tap before the Redis at `host:port`."""
    host, _, port = node.rpartition(":")
    tap = Tap(host, int(port))
    thread = tap.start()
    yield tap
    tap.stop(thread)
