"""Writes to one socket in order; it can be slowed down, cut into pieces, paused or reset."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Literal, TypeAlias

from conformance.problems import UsageProblem

_PIECE_S = 0.01
"""Data on a slow link goes out in pieces that take this long."""

RETRANSMIT_MS = 200.0
"""The time after which TCP sends a lost packet again (the shortest timeout of Linux)."""

SilentDirection: TypeAlias = Literal["both", "to-redis", "to-client"]
"""The directions in which nothing passes."""


@dataclass(frozen=True, kw_only=True)
class RedisLink:
    """The quality of a connection, in each direction: added latency (ms), bandwidth (bytes per s), bytes per packet.

    `jitter_ms`: the mean of an additional latency per packet (exponentially distributed: mostly small, sometimes
    large). `loss`: the share of lost packets, which arrive `RETRANSMIT_MS` late. Nothing is reordered: as with TCP,
    later packets wait for a late one. `random` draws jitter and losses.
    """

    latency_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    bytes_per_s: float | None = None
    chunk_bytes: int | None = None
    random: Random = field(default_factory=Random, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Raises UsageProblem for impossible values."""
        if not 0 <= self.loss < 1:
            raise UsageProblem(f"invalid loss {self.loss}", hint="it is a share of all packets, from 0 to less than 1")
        if min(self.latency_ms, self.jitter_ms) < 0:
            raise UsageProblem(
                f"invalid latency {min(self.latency_ms, self.jitter_ms)} ms", hint="it must be 0 or more"
            )
        if any(number is not None and number <= 0 for number in (self.bytes_per_s, self.chunk_bytes)):
            raise UsageProblem("a link without bandwidth", hint="use BlackHole to let nothing pass")

    def delay_s(self) -> float:
        """The delay of the next packet in s."""
        delay_ms = self.latency_ms
        if self.jitter_ms:
            delay_ms += self.random.expovariate(1 / self.jitter_ms)
        if self.loss and self.random.random() < self.loss:
            # TCP hides a loss: the bytes arrive, only later, so nothing is dropped here.
            delay_ms += RETRANSMIT_MS
        return delay_ms / 1000

    def pieces(self, data: bytes) -> list[bytes]:
        """The pieces in which data is sent on this link."""
        sizes = [len(data), self.chunk_bytes or len(data)]
        if self.bytes_per_s is not None:
            # Small pieces: one large write would arrive as a burst instead of at the bandwidth.
            sizes.append(max(1, int(self.bytes_per_s * _PIECE_S)))
        size = min(sizes)
        return [data[start : start + size] for start in range(0, len(data), size)] if size else []


class SocketWriter:
    """Writes to a transport, which may come later. `stop` keeps everything back, the end of the connection too."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, half_close: bool = False) -> None:
        self._half_close = half_close
        self.link: RedisLink | None = None
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._queue: deque[tuple[float, bytes | None]] = deque()
        self._line_free_s = 0.0
        self._stopped = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False

    @property
    def own_address(self) -> str:
        """The address (`host:port`) at this end; empty before `connect`, and for Unix sockets."""
        name = self._transport.get_extra_info("sockname") if self._transport else None
        # An IPv6 address has four parts.
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else ""

    def connect(self, transport: asyncio.Transport) -> None:
        """Start to write."""
        self._transport = transport
        self._pump()

    def write(self, data: bytes) -> None:
        """Send in turn."""
        if self._ended or not data:
            return
        # Only if nothing waits: otherwise the data would overtake the queue.
        if self._queue or self._stopped or self.link is not None or self._transport is None:
            self._enqueue(data)
            self._pump()
        else:
            self._send(self._transport, data)

    def finish(self) -> None:
        """End the connection (FIN) when all that was written before has gone out.

        Towards Redis only the sending half, so that what it still has to say arrives: it closes the other half itself.
        """
        if not self._ended:
            self._ended = True
            # Queued behind the data: FIN must not overtake bytes that a slow link still holds.
            self._queue.append((self._line_free_s, None))
            self._pump()

    def reset(self) -> None:
        """End the connection immediately with RST."""
        self.drop()
        if self._transport is not None and not self._transport.is_closing():
            connection = self._transport.get_extra_info("socket")
            if connection is not None and connection.family != getattr(socket, "AF_UNIX", None):
                # Linger with 0 s makes the kernel send RST instead of FIN.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    def abort(self) -> None:
        """End the connection immediately."""
        self.drop()
        if self._transport is not None:
            self._transport.abort()

    def drop(self) -> None:
        """Drop all unsent data, and send nothing more."""
        self._ended = True
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def stop(self) -> None:
        """Hold back all data, until the same number of calls of `go`."""
        # A count, not a flag: two rules may silence the same connection, and both must end.
        self._stopped += 1

    def go(self) -> None:
        """Send the data that `stop` held back."""
        self._stopped -= 1
        self._pump()

    def _enqueue(self, data: bytes) -> None:
        link = self.link or RedisLink()
        now = self._loop.time()
        for piece in link.pieces(data):
            # An idle line does not save up bandwidth for later.
            self._line_free_s = max(now, self._line_free_s)
            if link.bytes_per_s is not None:
                self._line_free_s += len(piece) / link.bytes_per_s
            self._queue.append((self._line_free_s + link.delay_s(), piece))

    def _pump(self) -> None:
        """Send due data, and set a timer for the rest. A chunked link sends one piece per turn of the loop."""
        # A pending timer continues the queue; a second one would send pieces early.
        if self._timer is not None or self._transport is None:
            return
        while self._queue and not self._stopped:
            # The piece stays first until it is due, so later ones cannot overtake it.
            due, data = self._queue[0]
            wait = due - self._loop.time()
            if wait > 0:
                self._timer = self._loop.call_later(wait, self._wake)
                return
            self._queue.popleft()
            if data is None:
                self._close(self._transport)
                return
            self._send(self._transport, data)
            if self.link is not None and self.link.chunk_bytes:
                # One piece per turn, or the kernel would merge the pieces into one packet again.
                self._timer = self._loop.call_later(0, self._wake)
                return

    def _send(self, transport: asyncio.Transport, data: bytes) -> None:
        """Write, unless the connection is closing: asyncio would print a warning for each piece."""
        if not transport.is_closing():
            transport.write(data)

    def _close(self, transport: asyncio.Transport) -> None:
        if self._half_close and transport.can_write_eof():
            if not transport.is_closing():
                with contextlib.suppress(OSError):  # Redis has reset the connection, but the loop has not noticed yet
                    transport.write_eof()
        else:
            # Close, not abort: bytes that were already passed on must still arrive.
            transport.close()

    def _wake(self) -> None:
        self._timer = None
        self._pump()
