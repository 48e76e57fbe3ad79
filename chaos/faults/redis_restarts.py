"""Redis goes away and comes back: the remaining data depends on its persistence."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chaos.config import TopologyName
from chaos.faults.base import EVERYTHING, ChaosSystem, fault
from chaos.redis_servers import ContainerServer, RedisProcess
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.servers.connection import send

EVERYSEC_LOSS_MS = 2000
"""`appendfsync everysec` delays a write for at most 2 s while a sync is running."""
ALONE: tuple[TopologyName, ...] = ("single",)


def local_process(system: ChaosSystem) -> RedisProcess:
    """Redis as a process of this machine, whose files a fault can change. Raises EnvironmentProblem."""
    server = system.primary
    if not isinstance(server, RedisProcess):
        raise EnvironmentProblem("this fault needs Redis as a local process", hint="leave --redis away")
    return server


@contextmanager
def _down(system: ChaosSystem) -> Iterator[None]:
    """Redis is killed, and started again at the end of the block."""
    server = system.primary
    server.kill()
    try:
        yield
    finally:
        server.start()


@fault("redis.kill-without-persistence", group="redis", hold_ms=500, times=1, topologies=ALONE)
@contextmanager
def kill_without_persistence(system: ChaosSystem) -> Iterator[None]:
    """Redis without persistence is killed: all data is lost, and clients go on with an empty Redis."""
    with system.window("no persistence", resume_ms=system.stall_ms) as window:
        with _down(system):
            yield
        window.lost_since_ms = EVERYTHING


@fault("redis.kill-rdb", group="redis", hold_ms=500, times=1, persistence="rdb", topologies=ALONE)
@contextmanager
def kill_rdb(system: ChaosSystem) -> Iterator[None]:
    """Redis is killed some time after it has saved an RDB file: later writes are lost."""
    saved_ms = _save(system)
    # Writes in this time are missing from the file, so that the loss is real.
    system.pause(500)
    with system.window("rdb", resume_ms=system.stall_ms) as window:
        with _down(system):
            yield
        window.lost_since_ms = saved_ms


@fault("redis.kill-aof-everysec", group="redis", hold_ms=500, persistence="aof-everysec", topologies=ALONE)
@contextmanager
def kill_aof_everysec(system: ChaosSystem) -> Iterator[None]:
    """Redis is killed with `appendfsync everysec`: at most the last two seconds are lost."""
    # Before the kill: writes of the last two seconds may not be synced.
    with system.window("aof everysec", resume_ms=system.stall_ms) as window:
        window.lost_since_ms = system.recorder.now_ms() - EVERYSEC_LOSS_MS
        with _down(system):
            yield


@fault("redis.kill-aof-always", group="redis", hold_ms=500, persistence="aof-always", topologies=ALONE)
@contextmanager
def kill_aof_always(system: ChaosSystem) -> Iterator[None]:
    """Redis is killed with `appendfsync always`: no acknowledged write is lost."""
    with system.window("aof always", resume_ms=system.stall_ms), _down(system):
        yield


@fault("redis.away-20s", group="redis", hold_ms=20_000, times=1, persistence="aof-always", topologies=ALONE)
@contextmanager
def away(system: ChaosSystem) -> Iterator[None]:
    """Redis is away for 20 s and comes back with all its data: workers continue within 5 s, without a restart."""
    with system.window("20 s"), _down(system):
        yield


@fault("redis.restore-older-copy", group="redis", hold_ms=200, times=1, persistence="rdb", topologies=ALONE)
@contextmanager
def restore_older_copy(system: ChaosSystem) -> Iterator[None]:
    """An operator restores an older RDB file: later writes are lost."""
    folder = _folder(system)
    saved_ms = _save(system)
    # Copied before the second save, which replaces the file.
    shutil.copy(folder / "dump.rdb", folder / "older.rdb")
    system.pause(700)
    # A kill does not save, so without this save the file would already be the older one.
    _save(system)
    with system.window("older copy", resume_ms=system.stall_ms) as window:
        server = system.primary
        server.kill()
        shutil.move(folder / "older.rdb", folder / "dump.rdb")
        try:
            yield
        finally:
            server.start()
            window.lost_since_ms = saved_ms


@fault("redis.cut-aof", group="redis", hold_ms=200, times=1, persistence="aof-always", topologies=ALONE)
@contextmanager
def cut_aof(system: ChaosSystem) -> Iterator[None]:
    """The disk loses the end of the append-only file, in the middle of a command: those writes are lost."""
    folder = _folder(system)
    before_ms, kept = system.recorder.now_ms(), _aof(folder).stat().st_size
    system.pause(500)
    with system.window(resume_ms=system.stall_ms) as window:
        server = system.primary
        server.kill()
        with _aof(folder).open("r+b") as file:
            # A few bytes more than the size before, so that the file ends within a command.
            file.truncate(kept + 7)
        try:
            yield
        finally:
            server.start()
            window.lost_since_ms = before_ms


@fault("redis.loading", group="redis", hold_ms=1000, times=1, persistence="aof-always", topologies=ALONE)
@contextmanager
def loading(system: ChaosSystem) -> Iterator[None]:
    """Redis restarts at once and answers LOADING for a while."""
    server = local_process(system)
    with system.window(resume_ms=system.stall_ms):
        server.kill()
        slowly = ["--key-load-delay", "1500", "--loading-process-events-interval-bytes", "1024"]
        # Slow loading, because a small data set is loaded before any client notices.
        server.extra_arguments += slowly
        # Not waited for: the fault is that Redis is reachable and still loading.
        server.start(wait=False)
        try:
            yield
        finally:
            server.extra_arguments = server.extra_arguments[: -len(slowly)]
            server.wait_until_ready()


def _save(system: ChaosSystem) -> float:
    """Save now; returns the time before the save: later writes may be missing in the file."""
    # Before the save: a write during it may or may not be in the file.
    now = system.recorder.now_ms()
    with system.primary.connect() as client:
        send(client, "SAVE")
    return now


def _folder(system: ChaosSystem) -> Path:
    return local_process(system).folder


def _aof(folder: Path) -> Path:
    """The file that grows: Redis 7 has several in a folder, older ones have one."""
    parts = sorted(folder.glob("appendonlydir/*.incr.aof"))
    return parts[-1] if parts else folder / "appendonly.aof"


@fault("docker.unplug", group="containers", hold_ms=2500, times=1, topologies=ALONE, only_containers=True)
@contextmanager
def unplug_container(system: ChaosSystem) -> Iterator[None]:
    """Redis is disconnected from its Docker network and connected again: connections hang, and then break."""
    server = _container_of(system)
    with system.window(resume_ms=system.stall_ms):
        server.unplug()
        try:
            yield
        finally:
            server.plug()


@fault(
    "docker.restart",
    group="containers",
    hold_ms=500,
    times=2,
    persistence="aof-always",
    topologies=ALONE,
    only_containers=True,
)
@contextmanager
def restart_container(system: ChaosSystem) -> Iterator[None]:
    """The container is killed and started again, with its data."""
    _container_of(system)  # nowhere else
    with system.window(resume_ms=system.stall_ms), _down(system):
        yield


def _container_of(system: ChaosSystem) -> ContainerServer:
    server = system.primary
    if not isinstance(server, ContainerServer):
        raise UsageProblem("this fault needs Redis in a container", hint="--redis container")
    return server
