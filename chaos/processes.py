"""The processes of the client under test, on this machine or in containers: each is a driver behind its own tap."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from conformance.driver.connection import HANDSHAKE_DEADLINE_MS
from conformance.driver.errors import DriverBroken, OperationFailed, OperationIndeterminate
from conformance.driver.ops.base import Op
from conformance.driver.ops.lifecycle import Close, Open, RedisAddress, Reset
from conformance.driver.transports import ChildProcess
from conformance.environment.clients import Launch
from conformance.observe.tap.tap import Tap
from conformance.servers.connection import wait_until

Answer = TypeVar("Answer")

OPEN_DEADLINE_MS = 30_000
CALL_DEADLINE_MS = 45_000
"""Longer than any fault: a client may wait as long as Redis is away."""
# The clock stands still between two settings, so times are off by at most this.
TICK_MS = 20
LABEL = "bullmq-conformance-chaos=1"
ENGINE_DEADLINE_S = 120
"""Long, because some engines copy the whole image for every container (storage driver vfs)."""


class ClientProcess:
    """One process: a driver. `open_handles` opens its handles, at its start and after each restart."""

    handshake_ms = HANDSHAKE_DEADLINE_MS
    """How long a start may take."""

    def __init__(self, name: str, launch: Launch, tap: Tap, *, mode: str, seed: int) -> None:
        self.name = name
        self.tap = tap
        self.launch = launch
        self.open_handles: Callable[[ClientProcess], None] = lambda _process: None
        self._address = RedisAddress(mode="cluster" if mode == "cluster" else "standalone", nodes=list(tap.addresses))
        self._seed = seed
        self._connection: ChildProcess | None = None
        self._replaced: list[ChildProcess] = []
        self._skew: _SkewedClock | None = None
        self._handles: list[str] = []

    @property
    def connection(self) -> ChildProcess:
        """The current driver; it may have ended."""
        assert self._connection is not None, "the process was not started"
        return self._connection

    @property
    def started(self) -> bool:
        """Whether it was ever started."""
        return self._connection is not None

    @property
    def alive(self) -> bool:
        """Whether its process is running."""
        return self._connection is not None and self._connection.alive

    @property
    def pid(self) -> int:
        """Of the driver, and of its process group."""
        return self.connection.pid

    def start(self) -> None:
        """Start the process and open its handles. Raises DriverBroken."""
        if self._connection is not None:
            self._replaced.append(self._connection)
        self._connection = ChildProcess.start(
            self.launch.command,
            seed=self._seed,
            env=self.launch.environment,
            handshake_deadline_ms=self.handshake_ms,
        )
        self._handles = []
        self.open_handles(self)

    def restart_if_dead(self) -> None:
        """Start it again if it has ended."""
        if not self.alive:
            self.start()

    def open(self, handle: str, role: str, queue: str, prefix: str, **more: Any) -> None:
        """Open a handle at this process's own tap. Raises what `call` raises."""
        op = Open(role=role, queue=queue, prefix=prefix, redis=self._address, **more)  # type: ignore[arg-type]
        self.connection.call(op, handle=handle, deadline_ms=OPEN_DEADLINE_MS)
        self._handles.append(handle)

    def call(self, op: Op[Answer], handle: str | None) -> Answer:
        """Carry out an operation. Raises as `DriverConnection.call`."""
        return self.connection.call(op, handle=handle, deadline_ms=CALL_DEADLINE_MS)

    def kill(self) -> None:
        """SIGKILL to the whole process group. A child in a session of its own outlives it, until `close`."""
        self.connection.kill_group()

    def freeze(self) -> None:
        """SIGSTOP to the whole process group."""
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT, if it is still there."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGCONT)

    def set_skew(self, skew_ms: float, handle: str, tick: Op[Any]) -> None:
        """Let its clock run this much ahead of (or behind) the machine's; it is set again every 20 ms."""
        if self._skew is None:
            # A second call only changes the skew: two threads would set the same clock in turn.
            self._skew = _SkewedClock(self, handle, tick)
        self._skew.skew_ms = skew_ms

    def reset_clock(self) -> None:
        """Let its clock run as the machine's: close its handles as a user does, and open them again.

        If the client cannot do that, kill and restart it, because the fault must be healed. Then raise the error of
        the call, with the stacks that the driver dumped.
        """
        if self._skew is None:
            return
        self._skew.stop()
        self._skew = None
        try:
            for handle in self._handles:
                self.call(Close(), handle)
            self._handles = []
            self.call(Reset(), None)
        except (DriverBroken, OperationFailed, OperationIndeterminate) as error:
            # The stacks are dumped before the kill, which would lose them.
            error.add_note("\n".join(self.connection.stacks()))
            self.kill()
            self.start()
            raise
        self.open_handles(self)

    def close(self) -> None:
        """End it, in any state."""
        if self._skew is not None:
            self._skew.stop()
        if self._connection is not None:
            self.thaw()
            for connection in (*self._replaced, self._connection):
                connection.kill()


class _SkewedClock:
    """Drivers only support a frozen clock: it is set so often that it seems to run."""

    def __init__(self, process: ClientProcess, handle: str, tick: Op[Any]) -> None:
        self.skew_ms = 0.0
        self._process, self._handle, self._tick = process, handle, tick
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="skewed clock")
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(TICK_MS / 1000):
            now = int(time.time() * 1000 + self.skew_ms)
            # A driver that is dead or restarting has no clock to set.
            with suppress(DriverBroken):
                self._process.connection.call(self._tick, handle=self._handle, now_ms=now, deadline_ms=20_000)


class ContainerProcess(ClientProcess):
    """A driver in a container that shares the network of this machine, and so reaches its tap at 127.0.0.1."""

    handshake_ms = ENGINE_DEADLINE_S * 1000

    def __init__(self, name: str, launch: Launch, tap: Tap, *, mode: str, seed: int, image: str) -> None:
        super().__init__(name, launch, tap, mode=mode, seed=seed)
        self._image = image
        self._container = ""
        self._started = False

    def start(self) -> None:
        """Start a new container. Raises DriverBroken."""
        # A new name for each start: the container before may still be in removal.
        self._container, self._started = f"bullmq-chaos-{secrets.token_hex(6)}", False
        run = [
            "docker",
            "run",
            "--rm",
            # `--interactive`, because the driver protocol runs over stdin.
            "--interactive",
            "--network",
            "host",
            "--name",
            self._container,
            "--label",
            LABEL,
        ]
        self.launch = Launch(self.launch.name, [*run, self._image])
        super().start()
        self._started = True

    def kill(self) -> None:
        """`docker kill`: the client gets no time to clean up."""
        # The container first: killing the docker client alone leaves it running.
        self._engine("kill")
        super().kill()

    def freeze(self) -> None:
        """`docker pause`."""
        self._engine("pause")

    def thaw(self) -> None:
        """`docker unpause`."""
        self._engine("unpause")

    def close(self) -> None:
        """Remove the container, in any state."""
        super().close()
        if self._started:
            self._engine("rm", "--force")
        elif self._container:
            # The engine may still be creating it, although the call that asked for it has timed out.
            wait_until(lambda: self._engine("rm", "--force"), deadline_s=ENGINE_DEADLINE_S, step_s=0.5)

    def _engine(self, *words: str) -> bool:
        """Run one docker command on this container; returns whether it succeeded. A removed container needs nothing."""
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                ["docker", *words, self._container],
                check=False,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=ENGINE_DEADLINE_S,
            )
            return done.returncode == 0
        return False
