"""Local Redis servers: processes on 127.0.0.1, single or as a cluster, that end with the kit."""

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
from conformance.servers.setting import RedisUrl, split_node

HOST = "127.0.0.1"

PORTS = range(10_000, 22_768)
"""Below the ports of outgoing connections, so that the port of a killed server stays free for its restart."""

BUS_OFFSET = 10_000
"""A cluster node uses its port plus this for the cluster bus."""

PORT_SAMPLE = 400
START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 10.0
PORT_ATTEMPTS = 20

_GUARD = Path(__file__).with_name("guard.py")
_PORT_TAKEN = ("already in use", "Failed listening on port")
_SHOWN_LOG_LINES = 20
_OTHER_HINT = "try binary:/path/to/another or a redis:// URL"

FORM_DEADLINE_S = 60.0
"""Redis itself needs 2 s, because a master refuses writes just after its start."""

NODE_TIMEOUT_MS = 15_000
"""The default of Redis: a node that is silent for this time counts as failed."""

FORMING_NODE_TIMEOUT_MS = 1_000

_NODE_TIMEOUT = "cluster-node-timeout"
RANGES_SINCE = (7, 0, 0)
"""The first Redis that assigns ranges of slots."""


class LocalProcess:
    """A running server process with its guard. `folder` has its log and its files.

    `settings`: settings of redis.conf by name, in addition to the kit's settings.
    """

    def __init__(
        self, binary: ServerBinary, port: int, *, cluster: bool, settings: Mapping[str, str] | None = None
    ) -> None:
        self.binary = binary
        self.port = port
        # A forked child (xdist, Spark) inherits the object and its atexit handler, but must not stop the server.
        self._owner = os.getpid()
        with postponed():  # an interruption here would leave the folder behind
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
        """The address of the process; for a cluster node, only of that node."""
        return RedisUrl(mode="standalone", nodes=[f"{HOST}:{self.port}"])

    def log_tail(self) -> str:
        """The last lines of the server's log."""
        with suppress(OSError):
            lines = (self.folder / "log").read_text("utf-8", "replace").splitlines()
            return "\n".join(lines[-_SHOWN_LOG_LINES:])
        return ""

    def running(self) -> bool:
        """Whether the process is running."""
        return self._guard.poll() is None

    def answers(self) -> bool:
        """Whether this server answers at the port, and not a foreign one."""
        with connect_node(self.address, self.address.nodes[0], timeout_s=1.0) as client:
            try:
                # The folder is unique: another Redis may have taken the port between the check and the bind.
                return bool(client.config_get("dir").get("dir") == str(self.folder))
            except redis.RedisError:
                return False

    def stop(self) -> None:
        """End the process and remove its folder. May be called again; does nothing in a forked child."""
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.stop)
        if self._guard.stdin is not None:
            # The signal to the guard, which then kills the server.
            self._guard.stdin.close()
        try:
            # A slow guard is not killed: it still has to end the server.
            with suppress(subprocess.TimeoutExpired):
                self._guard.wait(STOP_DEADLINE_S)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def restart(self) -> None:
        """Shut the server down as an operator would, and restart it at its port with its saved data, without scripts.

        Raises EnvironmentProblem with the end of the log if it does not end or does not restart, or still has scripts.
        """
        self.shut_down()
        self.start_again()

    def shut_down(self) -> None:
        """Shut the server down, its scripts forgotten; its port then refuses connections. Raises as `restart`."""
        with connect_node(self.address, self.address.nodes[0]) as client, suppress(redis.ConnectionError):
            # Redis 6.2 writes SCRIPT LOAD to its append-only file, and SCRIPT FLUSH as well. Both commands are in one
            # packet, so that no client can load a script in between.
            batch = client.pipeline(transaction=False)
            send(batch, "SCRIPT", "FLUSH")
            send(batch, "SHUTDOWN", "NOSAVE")
            batch.execute()
        try:
            self._guard.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise EnvironmentProblem(f"{self.binary.source} did not shut down:\n{self.log_tail()}") from None

    def start_again(self) -> None:
        """Start the server after `shut_down`. Raises as `restart`."""
        self._guard = self._start_guard()
        # A process that ended will not answer any more: no need to wait for the deadline.
        if not wait_until(lambda: not self.running() or self.answers(), deadline_s=START_DEADLINE_S):
            raise EnvironmentProblem(f"{self.binary.source} did not restart:\n{self.log_tail()}")
        if not self.running():
            raise EnvironmentProblem(f"{self.binary.source} ended during its restart:\n{self.log_tail()}")
        if kept := self._scripts_kept():
            raise EnvironmentProblem(f"{self.binary.source} still has {kept} scripts after its restart")

    def _scripts_kept(self) -> int:
        """The least number of scripts that the server has not got from clients since its start."""
        with connect_node(self.address, self.address.nodes[0]) as client, explained(self.address):
            # One command, because clients reconnect meanwhile and load their scripts again.
            info = client.info("all")
        loads = sum(
            int(facts["calls"])
            for name, facts in info.items()
            # Since Redis 7 SCRIPT is counted per subcommand: `cmdstat_script|load`.
            if name in {"cmdstat_eval", "cmdstat_eval_ro", "cmdstat_script", "cmdstat_script|load"}
        )
        return max(0, int(info["number_of_cached_scripts"]) - loads)

    def _start_guard(self) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                # Isolated and without site-packages: every start of a server waits for the guard's imports.
                [sys.executable, "-I", "-S", str(_GUARD), str(self.folder), *self._command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C in the terminal must not reach Redis, which the kit needs to clean up
            )

    def _argv(self, settings: Mapping[str, str], *, cluster: bool) -> list[str]:
        argv = [
            self.binary.path,
            *server_arguments(self.port, cluster=cluster),
            *("--dir", str(self.folder)),
        ]
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
    """Run a cluster for the duration of the block. Raises EnvironmentProblem if it does not start."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(local_process(binary, cluster=True)) for _ in range(masters)]
        address = RedisUrl(mode="cluster", nodes=[f"{HOST}:{node.port}" for node in nodes])
        form_cluster(address, by_range=binary.version >= RANGES_SINCE, source=binary.source)
        yield address


def form_cluster(address: RedisUrl, *, by_range: bool, source: str) -> None:
    """Make one cluster of empty nodes on this machine. `by_range`: whether they are of Redis 7 or newer.

    Raises EnvironmentProblem if it does not form.
    """
    with explained(address), ExitStack() as stack:
        clients = [stack.enter_context(connect_node(address, node)) for node in address.nodes]
        ports = [split_node(node)[1] for node in address.nodes]
        _share_slots(clients, by_range=by_range)
        with _brief_handshakes(clients):
            _introduce(clients, ports)
            _wait_for_all(clients, ports, source)


def server_arguments(port: int, *, cluster: bool) -> list[str]:
    """Arguments of a redis-server that only this machine reaches."""
    arguments = [
        *("--port", str(port)),
        *("--bind", HOST),
        *("--protected-mode", "yes"),
        # No snapshots: a fork in the middle of a run delays commands and costs memory.
        *("--save", ""),
        *("--appendonly", "no"),
    ]
    if cluster:
        arguments += ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-announce-ip", HOST]
    return arguments


def free_port(*, cluster: bool) -> int:
    """Find a port that is free at this moment; for a cluster node its bus port must be free as well.

    Raises EnvironmentProblem if all are in use.
    """
    # The system's generator: runs with equal seeds would try the same ports and collide.
    for port in random.SystemRandom().sample(PORTS, k=PORT_SAMPLE):
        if _is_free(port) and (not cluster or _is_free(port + BUS_OFFSET)):
            return port
    raise EnvironmentProblem(
        f"no port between {PORTS.start} and {PORTS.stop} is free on {HOST}",
        hint="check which program uses all the ports",
    )


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        # As Redis does: without this, a port in state TIME_WAIT looks taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _new_folder() -> Path:
    """Create a temporary folder. Returns its real path, because `answers` compares it with that of Redis."""
    try:
        return Path(tempfile.mkdtemp(prefix="bullmq-conformance-redis-")).resolve()
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot create a temporary folder: {error}", hint="set TMPDIR to a writable folder"
        ) from error


def _launch(binary: ServerBinary, *, cluster: bool, settings: Mapping[str, str]) -> LocalProcess:
    # A port that was free a moment ago may be taken when the server binds it; then try another one.
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
        f"{binary.source} found no free port in {PORT_ATTEMPTS} attempts", hint="check which program uses all the ports"
    )


def _became_ready(process: LocalProcess) -> bool:
    """Wait until the server answers (True) or reports that its port is taken (False).

    Raises EnvironmentProblem with the end of the log in all other cases.
    """
    settled = wait_until(lambda: not process.running() or process.answers(), deadline_s=START_DEADLINE_S)
    if settled and process.running():
        return True
    log = process.log_tail()
    # The log is the only source: Redis exits with code 1 for every error at its start.
    if any(sign in log for sign in _PORT_TAKEN):
        return False
    how = "ended" if settled else f"did not answer on port {process.port} within {START_DEADLINE_S:g} s"
    raise EnvironmentProblem(
        f"{process.binary.source} {how}; the end of its log:\n{log}",
        hint=_OTHER_HINT,
    )


def slot_ranges(masters: int) -> list[range]:
    """Split all slots into ranges of (almost) equal length."""
    edges = [SLOTS * index // masters for index in range(masters + 1)]
    return [range(start, end) for start, end in pairwise(edges)]


def _share_slots(clients: list[redis.Redis], *, by_range: bool) -> None:
    """Assign every slot to one node. Each has its own epoch: equal ones would first be resolved as a conflict."""
    for epoch, (client, slots) in enumerate(zip(clients, slot_ranges(len(clients)), strict=True), start=1):
        # ADDSLOTSRANGE exists since 7.0; older servers need each of the slots as an argument.
        if by_range:
            send(client, "CLUSTER ADDSLOTSRANGE", slots.start, slots.stop - 1)
        else:
            send(client, "CLUSTER ADDSLOTS", *slots)
        send(client, "CLUSTER SET-CONFIG-EPOCH", epoch)


@contextmanager
def _brief_handshakes(clients: list[redis.Redis]) -> Iterator[None]:
    """Shorten the timeout of handshakes between nodes for the duration of the block.

    Two nodes that meet each other at the same moment may both hang until the node timeout, 15 s by default.
    """
    for client in clients:
        client.config_set(_NODE_TIMEOUT, FORMING_NODE_TIMEOUT_MS)
    yield
    for client in clients:
        client.config_set(_NODE_TIMEOUT, NODE_TIMEOUT_MS)


def _introduce(clients: list[redis.Redis], ports: list[int]) -> None:
    """Let every node meet every other, so that they need not wait for gossip."""
    for index, client in enumerate(clients):
        for other in ports[index + 1 :]:
            send(client, "CLUSTER MEET", HOST, other)


def _wait_for_all(clients: list[redis.Redis], ports: list[int], source: str) -> None:
    if wait_until(lambda: all(_is_complete(client, len(ports)) for client in clients), deadline_s=FORM_DEADLINE_S):
        return
    seen = "; ".join(f"port {port}: {read_cluster_info(client)}" for client, port in zip(clients, ports, strict=True))
    raise EnvironmentProblem(
        f"the cluster of {source} did not form within {FORM_DEADLINE_S:g} s ({seen})",
        hint="nodes also need their port + 10000 on 127.0.0.1",
    )


def _is_complete(client: redis.Redis, masters: int) -> bool:
    info = read_cluster_info(client)
    return (
        info.get("cluster_state") == "ok"
        and info.get("cluster_slots_ok") == str(SLOTS)
        and info.get("cluster_known_nodes") == str(masters)
    )
