"""A server process of our own: on 127.0.0.1, without persistence, and gone when the kit is gone."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import redis

from conformance.problems import EnvironmentProblem
from conformance.servers.binary import Binary
from conformance.servers.connection import connect_node
from conformance.servers.ports import HOST, free_port
from conformance.servers.setting import Address
from conformance.servers.waiting import wait_until

START_DEADLINE_S = 15.0
STOP_DEADLINE_S = 10.0
PORT_ATTEMPTS = 20

_GUARD = Path(__file__).with_name("guard.py")

_PORT_TAKEN = ("already in use", "Failed listening on port")
_SHOWN_LOG_LINES = 20
_OTHER_HINT = "try binary:/path/to/another or a redis:// URL"


class LocalProcess:
    """One running server process under its guard. `folder` holds its log and whatever it writes.

    `settings` are settings of redis.conf by name, on top of those that every server of the kit has.
    """

    def __init__(self, binary: Binary, port: int, *, cluster: bool, settings: Mapping[str, str] | None = None) -> None:
        self.binary = binary
        self.port = port
        self.folder = _new_folder()
        self._owner = os.getpid()
        self._command = self._argv(settings or {}, cluster=cluster)
        try:
            self._guard = self._start_guard()
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise EnvironmentProblem(f"{binary.source} could not be started: {error}", hint=_OTHER_HINT) from error
        atexit.register(self.stop)

    @property
    def address(self) -> Address:
        """Where the process listens; for a cluster node, the node alone."""
        return Address(mode="standalone", nodes=[f"{HOST}:{self.port}"])

    def log_tail(self) -> str:
        """Read the last lines that the server wrote."""
        with suppress(OSError):
            lines = (self.folder / "log").read_text("utf-8", "replace").splitlines()
            return "\n".join(lines[-_SHOWN_LOG_LINES:])
        return ""

    def running(self) -> bool:
        """Whether the process is still there."""
        return self._guard.poll() is None

    def answers(self) -> bool:
        """Whether our server, and not somebody else's, answers at the port."""
        with connect_node(self.address, self.address.nodes[0], timeout_s=1.0) as client:
            try:
                return bool(client.config_get("dir").get("dir") == str(self.folder))
            except redis.RedisError:
                return False

    def stop(self) -> None:
        """End the process and remove its folder. May be called again; does nothing in a forked child."""
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.stop)
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        try:
            # A guard that takes longer is not killed: it still has a server to end, and will.
            with suppress(subprocess.TimeoutExpired):
                self._guard.wait(STOP_DEADLINE_S)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def restart(self) -> None:
        """Shut the server down as an operator would, and start it again at its port with what it has saved.

        Raises EnvironmentProblem, with the end of the log, if it does not end or does not come back.
        """
        with connect_node(self.address, self.address.nodes[0]) as client, suppress(redis.ConnectionError):
            client.shutdown(nosave=True)
        try:
            self._guard.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise EnvironmentProblem(f"{self.binary.source} does not shut down:\n{self.log_tail()}") from None
        self._guard = self._start_guard()
        if not wait_until(lambda: not self.running() or self.answers(), deadline_s=START_DEADLINE_S):
            raise EnvironmentProblem(f"{self.binary.source} did not come back:\n{self.log_tail()}")
        if not self.running():
            raise EnvironmentProblem(f"{self.binary.source} ended when it came back:\n{self.log_tail()}")

    def _start_guard(self) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), str(self.folder), *self._command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C in the terminal is for the kit, which still needs Redis to clean up
            )

    def _argv(self, settings: Mapping[str, str], *, cluster: bool) -> list[str]:
        argv = [
            self.binary.path,
            *("--port", str(self.port)),
            *("--bind", HOST),
            *("--protected-mode", "yes"),
            *("--save", ""),
            *("--appendonly", "no"),
            *("--dir", str(self.folder)),
        ]
        if cluster:
            argv += ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-announce-ip", HOST]
        return argv + [word for name, value in settings.items() for word in (f"--{name}", value)]


@contextmanager
def local_process(
    binary: Binary, *, cluster: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[LocalProcess]:
    """Run a server process for the duration of the block. Raises EnvironmentProblem with its log if it fails."""
    process = _launch(binary, cluster=cluster, settings=settings or {})
    try:
        yield process
    finally:
        process.stop()


def _new_folder() -> Path:
    """Make a folder for temporary files. Its real path, because Redis reports that and is recognised by it."""
    try:
        return Path(tempfile.mkdtemp(prefix="bullmq-conformance-redis-")).resolve()
    except OSError as error:
        raise EnvironmentProblem(
            f"no folder for temporary files: {error}", hint="set TMPDIR to a writable one"
        ) from error


def _launch(binary: Binary, *, cluster: bool, settings: Mapping[str, str]) -> LocalProcess:
    for _ in range(PORT_ATTEMPTS):
        process = LocalProcess(binary, free_port(cluster=cluster), cluster=cluster, settings=settings)
        try:
            if _became_ready(process):
                return process
        except BaseException:
            process.stop()
            raise
        process.stop()
    raise EnvironmentProblem(
        f"{binary.source} found every port taken in {PORT_ATTEMPTS} attempts", hint="is something using up the ports?"
    )


def _became_ready(process: LocalProcess) -> bool:
    """Wait until the server answers (True) or its port turns out to be taken (False).

    Raises EnvironmentProblem with the end of the log for everything else.
    """
    settled = wait_until(lambda: not process.running() or process.answers(), deadline_s=START_DEADLINE_S)
    if settled and process.running():
        return True
    log = process.log_tail()
    if any(sign in log for sign in _PORT_TAKEN):
        return False
    how = "ended" if settled else f"did not answer on port {process.port} within {START_DEADLINE_S:g} s"
    raise EnvironmentProblem(
        f"{process.binary.source} {how}; the end of its log:\n{log}",
        hint=_OTHER_HINT,
    )
