"""A Redis server process that can be killed, frozen and started again on the same port and folder."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

import redis

from conformance.problems import EnvironmentProblem
from conformance.servers import guard
from conformance.servers.binary import Binary
from conformance.servers.connection import connect_node
from conformance.servers.ports import HOST, free_port
from conformance.servers.setting import Address
from conformance.servers.waiting import wait_until

START_DEADLINE_S = 20.0
STOP_DEADLINE_S = 10.0
FOLDER_PREFIX = "bullmq-chaos-redis-"

Persistence: TypeAlias = Literal["none", "rdb", "aof-everysec", "aof-always"]
PERSISTENCE: Mapping[Persistence, Sequence[str]] = {
    "none": ("--save", "", "--appendonly", "no"),
    "rdb": ("--save", "3600 1000000", "--appendonly", "no"),
    "aof-everysec": ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec"),
    "aof-always": ("--save", "", "--appendonly", "yes", "--appendfsync", "always"),
}
"""How Redis keeps its data: arguments of redis-server. `rdb` saves only when it is asked to (or shut down)."""


class RedisProcess:
    """One server. Ended with its folder by `close`, and by its guard when the kit is gone.

    `mode` `cluster` and `sentinel` start such nodes; `more` are further arguments of redis-server.
    """

    def __init__(
        self,
        binary: Binary,
        *,
        persistence: Persistence = "none",
        mode: Literal["single", "cluster", "sentinel"] = "single",
        more: Sequence[str] = (),
    ) -> None:
        self.binary = binary
        self.persistence = persistence
        self.folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX)).resolve()
        self.port = free_port(cluster=True)
        self.more = list(more)
        self._mode = mode
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid = 0
        atexit.register(self.close)

    @property
    def node(self) -> str:
        """`127.0.0.1:PORT`."""
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the process is there (frozen or not)."""
        return self._guard is not None and self._guard.poll() is None

    def connect(self, *, timeout_s: float = 10.0) -> redis.Redis:
        """A client of this one node."""
        return connect_node(Address(mode="standalone", nodes=[self.node]), self.node, timeout_s=timeout_s)

    def start(self, *, wait: bool = True) -> None:
        """Start with what is in the folder. Raises EnvironmentProblem with the end of the log."""
        with (self.folder / "log").open("ab") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, str(self.folder), *self._argv()],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until it serves commands. Raises EnvironmentProblem."""
        if not wait_until(lambda: self._serves() or not self.running, deadline_s=START_DEADLINE_S) or not self.running:
            tail = (self.folder / "log").read_text("utf-8", "replace").splitlines()[-10:]
            raise EnvironmentProblem(f"Redis on port {self.port} did not start:\n" + "\n".join(tail))

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. The folder stays."""
        self._signal(signal.SIGKILL)
        if self._guard is not None:
            self._guard.wait(STOP_DEADLINE_S)

    def freeze(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End it, whatever state it is in, and remove its folder. May be called again."""
        atexit.unregister(self.close)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._guard.wait(STOP_DEADLINE_S)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _serves(self) -> bool:
        try:
            with self.connect(timeout_s=1.0) as client:
                self._pid = int(client.info("server")["process_id"])
                return bool(client.ping())
        except redis.RedisError:
            return False

    def _signal(self, number: int) -> None:
        if self.running and self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def _argv(self) -> list[str]:
        where = ["--port", str(self.port), "--bind", HOST, "--dir", str(self.folder)]
        if self._mode == "sentinel":
            return [self.binary.path, str(self.folder / "sentinel.conf"), "--sentinel", *where]
        kept = [*PERSISTENCE[self.persistence], "--auto-aof-rewrite-percentage", "0"]
        replication = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]
        argv = [self.binary.path, *where, "--protected-mode", "yes", *kept, *replication]
        if self._mode == "cluster":
            argv += ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-announce-ip", HOST]
            argv += ["--cluster-node-timeout", "1500"]
        return [*argv, *self.more]
