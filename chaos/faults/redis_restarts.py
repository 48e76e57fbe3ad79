"""Redis is killed and comes back: what is still there depends on how it keeps its data."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chaos.faults.registry import fault
from chaos.redis_process import RedisProcess
from chaos.stage import EVERYTHING, Stage
from chaos.topologies.base import TopologyName
from conformance.problems import EnvironmentProblem
from conformance.servers.connection import send

EVERYSEC_LOSS_MS = 2000
"""`appendfsync everysec` postpones a write for at most 2 s while a sync is on its way."""
ALONE: tuple[TopologyName, ...] = ("single",)


@contextmanager
def down(stage: Stage) -> Iterator[None]:
    """Redis is killed, and started again at the end of the block."""
    server = stage.primary
    server.kill()
    try:
        yield
    finally:
        server.start()


@fault("redis.kill-without-persistence", group="redis", hold_ms=500, times=1, topologies=ALONE)
@contextmanager
def kill_without_persistence(stage: Stage) -> Iterator[None]:
    """Redis keeps nothing and is killed: everything is gone, and clients go on with an empty one."""
    with stage.window("redis.kill", "no persistence", resume_ms=stage.stall_ms) as window:
        with down(stage):
            yield
        window.lost_since_ms = EVERYTHING


@fault("redis.kill-rdb", group="redis", hold_ms=500, times=1, persistence="rdb", topologies=ALONE)
@contextmanager
def kill_rdb(stage: Stage) -> Iterator[None]:
    """Redis is killed some time after it has saved an RDB file: what came after is gone."""
    saved_ms = _save(stage)
    stage.pause(500)
    with stage.window("redis.kill", "rdb", resume_ms=stage.stall_ms) as window:
        with down(stage):
            yield
        window.lost_since_ms = saved_ms


@fault("redis.kill-aof-everysec", group="redis", hold_ms=500, persistence="aof-everysec", topologies=ALONE)
@contextmanager
def kill_aof_everysec(stage: Stage) -> Iterator[None]:
    """Redis is killed with `appendfsync everysec`: at most the last two seconds are gone."""
    with stage.window("redis.kill", "aof everysec", resume_ms=stage.stall_ms) as window:
        window.lost_since_ms = stage.recorder.now_ms() - EVERYSEC_LOSS_MS
        with down(stage):
            yield


@fault("redis.kill-aof-always", group="redis", hold_ms=500, persistence="aof-always", topologies=ALONE)
@contextmanager
def kill_aof_always(stage: Stage) -> Iterator[None]:
    """Redis is killed with `appendfsync always`: nothing that was answered is gone."""
    with stage.window("redis.kill", "aof always", resume_ms=stage.stall_ms), down(stage):
        yield


@fault("redis.away-20s", group="redis", hold_ms=20_000, times=1, persistence="aof-always", topologies=ALONE)
@contextmanager
def away(stage: Stage) -> Iterator[None]:
    """Redis is away for 20 s and comes back with all its data: workers go on within 5 s, without a restart."""
    with stage.window("redis.away", "20 s"), down(stage):
        yield


@fault("redis.restore-older-copy", group="redis", hold_ms=200, times=1, persistence="rdb", topologies=ALONE)
@contextmanager
def restore_older_copy(stage: Stage) -> Iterator[None]:
    """Somebody puts back an older RDB file: what was written after it was made is gone."""
    folder = _folder(stage)
    saved_ms = _save(stage)
    shutil.copy(folder / "dump.rdb", folder / "older.rdb")
    stage.pause(700)
    _save(stage)
    with stage.window("redis.restore", "older copy", resume_ms=stage.stall_ms) as window:
        server = stage.primary
        server.kill()
        shutil.move(folder / "older.rdb", folder / "dump.rdb")
        try:
            yield
        finally:
            server.start()
            window.lost_since_ms = saved_ms


@fault("redis.cut-aof", group="redis", hold_ms=200, times=1, persistence="aof-always", topologies=ALONE)
@contextmanager
def cut_aof(stage: Stage) -> Iterator[None]:
    """The disk loses the end of the append-only file, in the middle of a command: what stood there is gone."""
    folder = _folder(stage)
    before_ms, kept = stage.recorder.now_ms(), _aof(folder).stat().st_size
    stage.pause(500)
    with stage.window("redis.cut-aof", resume_ms=stage.stall_ms) as window:
        server = stage.primary
        server.kill()
        with _aof(folder).open("r+b") as file:
            file.truncate(kept + 7)
        try:
            yield
        finally:
            server.start()
            window.lost_since_ms = before_ms


@fault("redis.loading", group="redis", hold_ms=1000, times=1, persistence="aof-always", topologies=ALONE)
@contextmanager
def loading(stage: Stage) -> Iterator[None]:
    """Redis is back at once and answers LOADING for a while."""
    server = _process(stage)
    with stage.window("redis.loading", resume_ms=stage.stall_ms):
        server.kill()
        slowly = ["--key-load-delay", "1500", "--loading-process-events-interval-bytes", "1024"]
        server.more += slowly
        server.start(wait=False)
        try:
            yield
        finally:
            server.more = server.more[: -len(slowly)]
            server.wait_until_ready()


def _save(stage: Stage) -> float:
    """Save now; answers the time from before, since which nothing is sure to be in the file."""
    now = stage.recorder.now_ms()
    with stage.primary.connect() as client:
        send(client, "SAVE")
    return now


def _process(stage: Stage) -> RedisProcess:
    server = stage.primary
    if not isinstance(server, RedisProcess):
        raise EnvironmentProblem("this fault needs Redis as a local process", hint="leave --redis away")
    return server


def _folder(stage: Stage) -> Path:
    return _process(stage).folder


def _aof(folder: Path) -> Path:
    """The file that grows: Redis 7 has several in a folder, older ones have one."""
    parts = sorted(folder.glob("appendonlydir/*.incr.aof"))
    return parts[-1] if parts else folder / "appendonly.aof"
