"""Redis servers of our own: processes on 127.0.0.1, single or a cluster, that do not outlive the kit."""

from __future__ import annotations

import atexit
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import redis

from conformance.interruption import postponed
from conformance.problems import EnvironmentProblem
from conformance.protocol.keys import SLOTS
from conformance.servers.binary import ServerBinary
from conformance.servers.connection import connect_node, explained, read_cluster_info, send, wait_until
from conformance.servers.setting import RedisUrl

HOST = "127.0.0.1"

PORTS = range(10_000, 22_768)
"""Below the ports of outgoing connections, so that a killed server finds its port free again; + 10000 for a bus."""

BUS_OFFSET = 10_000
"""A cluster node talks to the others on its port plus this."""

PORT_SAMPLE = 400
START_DEADLINE_S = 15.0
STOP_DEADLINE_S = 10.0
PORT_ATTEMPTS = 20

_GUARD = Path(__file__).with_name("guard.py")
_PORT_TAKEN = ("already in use", "Failed listening on port")
_SHOWN_LOG_LINES = 20
_OTHER_HINT = "try binary:/path/to/another or a redis:// URL"

FORM_DEADLINE_S = 60.0
"""Redis itself takes 2 s: a master accepts no writes so soon after its start."""

NODE_TIMEOUT_MS = 15_000
"""Redis's own default: a node that is silent for so long counts as failed."""

FORMING_NODE_TIMEOUT_MS = 1_000

_NODE_TIMEOUT = "cluster-node-timeout"
_RANGES_SINCE = (7, 0, 0)


class LocalProcess:
    """One running server process under its guard. `folder` holds its log and whatever it writes.

    `settings` are settings of redis.conf by name, on top of those that every server of the kit has.
    """

    def __init__(
        self, binary: ServerBinary, port: int, *, cluster: bool, settings: Mapping[str, str] | None = None
    ) -> None:
        self.binary = binary
        self.port = port
        self._owner = os.getpid()
        with postponed():  # a folder that nobody knows of would stay
            self.folder = _new_folder()
            self._command = self._argv(settings or {}, cluster=cluster)
            try:
                self._guard = self._start_guard()
            except OSError as error:
                shutil.rmtree(self.folder, ignore_errors=True)
                raise EnvironmentProblem(f"{binary.source} could not be started: {error}", hint=_OTHER_HINT) from error
            atexit.register(self.stop)

    @property
    def address(self) -> RedisUrl:
        """Where the process listens; for a cluster node, the node alone."""
        return RedisUrl(mode="standalone", nodes=[f"{HOST}:{self.port}"])

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
    binary: ServerBinary, *, cluster: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[LocalProcess]:
    """Run a server process for the duration of the block. Raises EnvironmentProblem with its log if it fails."""
    process = _launch(binary, cluster=cluster, settings=settings or {})
    try:
        yield process
    finally:
        process.stop()


@contextmanager
def local_cluster(binary: ServerBinary, masters: int) -> Iterator[RedisUrl]:
    """Run a cluster for the duration of the block. Raises EnvironmentProblem if it does not come up."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(local_process(binary, cluster=True)) for _ in range(masters)]
        address = RedisUrl(mode="cluster", nodes=[f"{HOST}:{node.port}" for node in nodes])
        with explained(address):
            clients = [stack.enter_context(connect_node(address, node)) for node in address.nodes]
            _share_slots(clients, by_range=binary.version >= _RANGES_SINCE)
            with _brief_handshakes(clients):
                _introduce(clients, nodes)
                _wait_for_all(clients, nodes)
        yield address


def free_port(*, cluster: bool) -> int:
    """Find a port that nobody listens on at this moment, and for a cluster node its bus port neither.

    Raises EnvironmentProblem if all are taken.
    """
    for port in random.SystemRandom().sample(PORTS, k=PORT_SAMPLE):
        if _is_free(port) and (not cluster or _is_free(port + BUS_OFFSET)):
            return port
    raise EnvironmentProblem(
        f"no port between {PORTS.start} and {PORTS.stop} is free on {HOST}", hint="is something using up the ports?"
    )


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        # As Redis does: without this, a port whose last connection has just ended looks taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _new_folder() -> Path:
    """Make a folder for temporary files. Its real path, because Redis reports that and is recognised by it."""
    try:
        return Path(tempfile.mkdtemp(prefix="bullmq-conformance-redis-")).resolve()
    except OSError as error:
        raise EnvironmentProblem(
            f"no folder for temporary files: {error}", hint="set TMPDIR to a writable one"
        ) from error


def _launch(binary: ServerBinary, *, cluster: bool, settings: Mapping[str, str]) -> LocalProcess:
    # A port that was free a moment ago may be taken when the server binds it: then another one is tried.
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


def slot_ranges(masters: int) -> list[range]:
    """Cut all slots into as many runs of (almost) equal length."""
    edges = [SLOTS * index // masters for index in range(masters + 1)]
    return [range(start, end) for start, end in pairwise(edges)]


def _share_slots(clients: list[redis.Redis], *, by_range: bool) -> None:
    """Give every slot to one node. Different epochs, as if elected: equal ones would first have to be fought out."""
    for epoch, (client, slots) in enumerate(zip(clients, slot_ranges(len(clients)), strict=True), start=1):
        if by_range:
            send(client, "CLUSTER ADDSLOTSRANGE", slots.start, slots.stop - 1)
        else:
            send(client, "CLUSTER ADDSLOTS", *slots)
        send(client, "CLUSTER SET-CONFIG-EPOCH", epoch)


@contextmanager
def _brief_handshakes(clients: list[redis.Redis]) -> Iterator[None]:
    """Let nodes give up a handshake soon for the duration of the block.

    Two nodes that meet each other at the same moment may both get stuck in it until the node timeout, 15 s by default.
    """
    for client in clients:
        client.config_set(_NODE_TIMEOUT, FORMING_NODE_TIMEOUT_MS)
    yield
    for client in clients:
        client.config_set(_NODE_TIMEOUT, NODE_TIMEOUT_MS)


def _introduce(clients: list[redis.Redis], nodes: list[LocalProcess]) -> None:
    """Every node meets every other, so that nobody has to wait for gossip."""
    for index, client in enumerate(clients):
        for other in nodes[index + 1 :]:
            send(client, "CLUSTER MEET", HOST, other.port)


def _wait_for_all(clients: list[redis.Redis], nodes: list[LocalProcess]) -> None:
    if wait_until(lambda: all(_is_complete(client, len(nodes)) for client in clients), deadline_s=FORM_DEADLINE_S):
        return
    seen = "; ".join(
        f"port {node.port}: {read_cluster_info(client)}" for client, node in zip(clients, nodes, strict=True)
    )
    raise EnvironmentProblem(
        f"the cluster of {nodes[0].binary.source} did not form within {FORM_DEADLINE_S:g} s ({seen})",
        hint="nodes also need their port + 10000 on 127.0.0.1",
    )


def _is_complete(client: redis.Redis, masters: int) -> bool:
    info = read_cluster_info(client)
    return (
        info.get("cluster_state") == "ok"
        and info.get("cluster_slots_ok") == str(SLOTS)
        and info.get("cluster_known_nodes") == str(masters)
    )
