"""Redis is there, and does not do what it is asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import redis

from chaos.faults.redis_restarts import ALONE
from chaos.faults.registry import fault
from chaos.redis_process import RedisProcess
from chaos.stage import EVERYTHING, Stage
from chaos.topologies.base import RedisServer
from conformance.problems import EnvironmentProblem
from conformance.servers.connection import send
from conformance.servers.waiting import wait_until

NOWHERE = ("127.0.0.1", "1")
"""A primary that nobody can reach: nothing listens at port 1."""
FOR_EVER = "while true do end"
LISTEN_S = 10.0


@fault("redis.freeze", group="redis", hold_ms=1500)
@contextmanager
def freeze(stage: Stage) -> Iterator[None]:
    """Redis stands still (SIGSTOP): connections stay, and nobody gets an answer."""
    server = stage.primary
    with stage.window("redis.freeze", server.node, resume_ms=stage.stall_ms):
        server.freeze()
        try:
            yield
        finally:
            server.thaw()


@fault("redis.freeze-past-locks", group="redis", hold_ms=6000, times=1)
@contextmanager
def freeze_past_locks(stage: Stage) -> Iterator[None]:
    """Redis stands still for three lock durations: all locks have expired when it goes on."""
    server = stage.primary
    with stage.window("redis.freeze", server.node, resume_ms=stage.stall_ms):
        server.freeze()
        try:
            yield
        finally:
            server.thaw()


@fault("redis.flushall", group="redis", hold_ms=100, times=1)
@contextmanager
def flushall(stage: Stage) -> Iterator[None]:
    """Somebody sends FLUSHALL: everything is gone, scripts stay."""
    with stage.window("redis.flushall", resume_ms=stage.stall_ms) as window:
        for server in _primaries(stage):
            with server.connect() as client:
                send(client, "FLUSHALL")
        window.lost_since_ms = EVERYTHING
        yield


@fault("redis.script-flush", group="redis", hold_ms=300, times=4)
@contextmanager
def script_flush(stage: Stage) -> Iterator[None]:
    """The scripts are forgotten at random instants, several times in a row: clients load them anew, unnoticed."""
    with stage.window("redis.script-flush"):
        for _ in range(4):
            for server in _primaries(stage):
                with server.connect() as client:
                    send(client, "SCRIPT FLUSH")
            stage.pause(stage.random.uniform(5, 60))
        yield


@fault("redis.client-kill", group="redis", hold_ms=200, times=3)
@contextmanager
def client_kill(stage: Stage) -> Iterator[None]:
    """All connections of clients are killed (CLIENT KILL TYPE normal)."""
    with stage.window("redis.client-kill", "normal"), stage.primary.connect() as client:
        send(client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        yield


@fault("redis.client-kill-blocked", group="redis", hold_ms=200, times=3)
@contextmanager
def client_kill_blocked(stage: Stage) -> Iterator[None]:
    """Only the connections that wait for a marker are killed."""
    with stage.window("redis.client-kill", "blocked"), stage.primary.connect() as client:
        for line in bytes(send(client, "CLIENT", "LIST")).decode().splitlines():
            facts = dict(word.split("=", 1) for word in line.split(" ") if "=" in word)
            if facts.get("cmd") == "bzpopmin":
                send(client, "CLIENT", "KILL", "ID", facts["id"])
        yield


@fault("redis.client-kill-pubsub", group="redis", hold_ms=200, times=1)
@contextmanager
def client_kill_pubsub(stage: Stage) -> Iterator[None]:
    """The connections that listen to channels are killed (CLIENT KILL TYPE pubsub): BullMQ has none and goes on."""
    with stage.window("redis.client-kill", "pubsub"), stage.primary.connect() as client:
        with stage.primary.connect() as own, own.pubsub() as listener:
            listener.subscribe("chaos")
            listener.get_message(timeout=LISTEN_S)  # the answer to SUBSCRIBE: only now there is somebody to kill
            if not send(client, "CLIENT", "KILL", "TYPE", "pubsub"):
                raise EnvironmentProblem("Redis found no connection of type pubsub, although one listens")
        yield


@fault("redis.client-pause", group="redis", hold_ms=800, times=2)
@contextmanager
def client_pause(stage: Stage) -> Iterator[None]:
    """Commands wait (CLIENT PAUSE), as during a manual failover."""
    with stage.window("redis.client-pause"), stage.primary.connect() as client:
        send(client, "CLIENT", "PAUSE", 5000, "WRITE")
        try:
            yield
        finally:
            send(client, "CLIENT", "UNPAUSE")


@fault("redis.maxclients", group="redis", hold_ms=1500, times=1)
@contextmanager
def maxclients(stage: Stage) -> Iterator[None]:
    """All connections are killed, and Redis takes only one new one."""
    with stage.window("redis.maxclients", resume_ms=stage.stall_ms), stage.primary.connect() as client:
        send(client, "CONFIG", "SET", "maxclients", 2)
        try:
            send(client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            yield
        finally:
            send(client, "CONFIG", "SET", "maxclients", 10_000)


@fault("redis.oom", group="redis", hold_ms=700, times=2)
@contextmanager
def oom(stage: Stage) -> Iterator[None]:
    """Redis has no memory left and evicts nothing: every script that writes is refused."""
    with stage.window("redis.oom", resume_ms=stage.stall_ms), stage.primary.connect() as client:
        send(client, "CONFIG", "SET", "maxmemory", 1_000_000)
        try:
            yield
        finally:
            send(client, "CONFIG", "SET", "maxmemory", 0)


@fault("redis.readonly", group="redis", hold_ms=800, times=2, topologies=ALONE)
@contextmanager
def readonly(stage: Stage) -> Iterator[None]:
    """The primary is made a replica of nobody: it answers READONLY to everything that writes."""
    with stage.window("redis.readonly", resume_ms=stage.stall_ms), stage.primary.connect() as client:
        send(client, "REPLICAOF", *NOWHERE)
        try:
            yield
        finally:
            send(client, "REPLICAOF", "NO", "ONE")


@fault("redis.busy", group="redis", hold_ms=1200, times=2)
@contextmanager
def busy(stage: Stage) -> Iterator[None]:
    """Somebody's script runs for ever: everybody else is answered BUSY, until it is killed."""
    with stage.window("redis.busy", resume_ms=stage.stall_ms), stage.primary.connect() as client:
        send(client, "CONFIG", "SET", "lua-time-limit", 50)
        thread = threading.Thread(target=_run_for_ever, args=(stage,), daemon=True, name="busy script")
        thread.start()
        try:
            yield
        finally:
            wait_until(lambda: _script_killed(client) or not thread.is_alive(), deadline_s=10)
            thread.join(10)


def _run_for_ever(stage: Stage) -> None:
    with suppress(redis.RedisError), stage.primary.connect(timeout_s=60) as client:
        send(client, "EVAL", FOR_EVER, 0)


def _script_killed(client: redis.Redis) -> bool:
    try:
        send(client, "SCRIPT", "KILL")
    except redis.RedisError:
        return False
    return True


@fault("redis.misconf", group="redis", hold_ms=800, times=1, topologies=ALONE, containers=False)
@contextmanager
def misconf(stage: Stage) -> Iterator[None]:
    """Redis could not save and takes no writes until it can (MISCONF)."""
    server = stage.primary
    if not isinstance(server, RedisProcess):
        raise EnvironmentProblem("this fault needs Redis as a local process", hint="leave --redis away")
    obstacle = server.folder / "dump.rdb"
    with stage.window("redis.misconf", resume_ms=stage.stall_ms), server.connect() as client:
        obstacle.mkdir()
        try:
            send(client, "CONFIG", "SET", "save", "3600 1000000")
            send(client, "BGSAVE")
            if not wait_until(lambda: _last_save(client) == "err", deadline_s=10):
                raise EnvironmentProblem("Redis could save although its file is a folder")
            yield
        finally:
            obstacle.rmdir()
            send(client, "CONFIG", "SET", "save", "")
            send(client, "BGSAVE")
            wait_until(lambda: _last_save(client) == "ok", deadline_s=10)


def _last_save(client: redis.Redis) -> str:
    return str(client.info("persistence")["rdb_last_bgsave_status"])


@fault("redis.noauth", group="redis", hold_ms=1000, times=1)
@contextmanager
def noauth(stage: Stage) -> Iterator[None]:
    """Somebody sets a password that clients do not know, and all connections have to be made anew: NOAUTH."""
    with stage.window("redis.noauth", resume_ms=stage.stall_ms), stage.primary.connect() as client:
        send(client, "CONFIG", "SET", "requirepass", "unknown")
        try:
            send(client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            yield
        finally:
            send(client, "CONFIG", "SET", "requirepass", "")
            send(client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def _primaries(stage: Stage) -> list[RedisServer]:
    """All servers that may have data of their own."""
    return list(stage.topology.servers) if stage.topology.cluster else [stage.primary]
