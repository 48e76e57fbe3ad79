"""A TCP proxy that makes the network of this machine as slow as one between two machines.

Made for conversations of one command at a time: what comes while something is being held back waits for its own turn.
Threads, because timers of an event loop are only good to a millisecond.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def slow_proxy(host: str, port: int, round_trip_s: float) -> Iterator[int]:
    """Answer the port of a proxy to this address, which takes connections as long as the block lasts."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        arguments = (listener, (host, port), round_trip_s / 2)
        threading.Thread(target=_serve, args=arguments, daemon=True).start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, target: tuple[str, int], delay_s: float) -> None:
    """Take connections until the listener is shut down. Both threads of a connection end with it."""
    with contextlib.suppress(OSError):
        while True:
            near, _ = listener.accept()
            far = socket.create_connection(target)
            for source, sink in ((near, far), (far, near)):
                sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_pass_on, args=(source, sink, delay_s), daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket, delay_s: float) -> None:
    with contextlib.suppress(OSError):
        while heard := source.recv(2**16):
            time.sleep(delay_s)
            sink.sendall(heard)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
