"""The processes of the client under test: each a driver behind a tap of its own, so that it can be hurt alone."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from conformance.driver.connection import HANDSHAKE_DEADLINE_MS, DriverBroken
from conformance.driver.messages import RedisAddress
from conformance.driver.ops.base import Op
from conformance.driver.ops.lifecycle import Close, Open, Reset
from conformance.driver.process import ChildProcess
from conformance.environment.clients import Launch
from conformance.observe.tap.tap import Tap

Answer = TypeVar("Answer")

OPEN_DEADLINE_MS = 30_000
CALL_DEADLINE_MS = 45_000
"""Longer than any fault: what a client does while Redis is away is not hurried."""
TICK_MS = 20


class Member:
    """One process. `furnish` opens its handles, at its start and after each restart."""

    handshake_ms = HANDSHAKE_DEADLINE_MS
    """How long a start may take."""

    def __init__(self, name: str, launch: Launch, tap: Tap, *, mode: str, seed: int) -> None:
        self.name = name
        self.tap = tap
        self.launch = launch
        self.furnish: Callable[[Member], None] = lambda _member: None
        self._address = RedisAddress(mode="cluster" if mode == "cluster" else "standalone", nodes=list(tap.addresses))
        self._seed = seed
        self._connection: ChildProcess | None = None
        self._skew: _SkewedClock | None = None
        self._handles: list[str] = []

    @property
    def connection(self) -> ChildProcess:
        """The driver as it is now; it may have ended."""
        assert self._connection is not None, "the member was not started"
        return self._connection

    @property
    def alive(self) -> bool:
        """Whether its process is there."""
        return self._connection is not None and self._connection.alive

    @property
    def pid(self) -> int:
        """Of the driver, and of its process group."""
        return self.connection.pid

    def start(self) -> None:
        """Start the process and open its handles. Raises DriverBroken."""
        self._connection = ChildProcess.start(
            self.launch.command,
            seed=self._seed,
            env=self.launch.environment,
            handshake_deadline_ms=self.handshake_ms,
        )
        self._handles = []
        self.furnish(self)

    def ensure(self) -> None:
        """Start it again if it has ended."""
        if not self.alive:
            self.start()

    def open(self, handle: str, role: str, queue: str, prefix: str, **more: Any) -> None:
        """Open a handle at this member's own tap. Raises what `call` raises."""
        op = Open(role=role, queue=queue, prefix=prefix, redis=self._address, **more)  # type: ignore[arg-type]
        self.connection.call(op, handle=handle, deadline_ms=OPEN_DEADLINE_MS)
        self._handles.append(handle)

    def call(self, op: Op[Answer], handle: str | None) -> Answer:
        """Carry out an operation. Raises as `DriverConnection.call`."""
        return self.connection.call(op, handle=handle, deadline_ms=CALL_DEADLINE_MS)

    def kill(self) -> None:
        """SIGKILL to the whole process group."""
        self.connection.kill()

    def freeze(self) -> None:
        """SIGSTOP to the whole process group."""
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT, if it is still there."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGCONT)

    def set_skew(self, skew_ms: float, handle: str, tick: Op[Any]) -> None:
        """Let its clock run this much ahead of (or behind) the machine's, told anew every 20 ms."""
        if self._skew is None:
            self._skew = _SkewedClock(self, handle, tick)
        self._skew.skew_ms = skew_ms

    def set_right(self) -> None:
        """Let its clock run as the machine's: its handles are closed as users do, and opened anew."""
        if self._skew is None:
            return
        self._skew.stop()
        self._skew = None
        for handle in self._handles:
            self.call(Close(), handle)
        self._handles = []
        self.call(Reset(), None)
        self.furnish(self)

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self._skew is not None:
            self._skew.stop()
        if self._connection is not None:
            self.thaw()
            self._connection.kill()


class _SkewedClock:
    """Drivers can only let their clock stand still: it is set so often that it seems to run."""

    def __init__(self, member: Member, handle: str, tick: Op[Any]) -> None:
        self.skew_ms = 0.0
        self._member, self._handle, self._tick = member, handle, tick
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="skewed clock")
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(TICK_MS / 1000):
            now = int(time.time() * 1000 + self.skew_ms)
            with suppress(DriverBroken):
                self._member.connection.call(self._tick, handle=self._handle, now_ms=now, deadline_ms=20_000)
