"""Redis runs, but refuses commands, hangs, or loses keys that no client has deleted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import redis

from chaos.faults.base import EVERYTHING, ChaosSystem, fault
from chaos.faults.redis_restarts import ALONE, local_process
from chaos.redis_servers import RedisServer
from conformance.problems import EnvironmentProblem
from conformance.servers.connection import send, wait_until

NOWHERE = ("127.0.0.1", "1")
"""An unreachable primary: no process listens at port 1."""
FOR_EVER = "while true do end"
LISTEN_S = 10.0
FILLER = "chaos:filler:"
FILLING = "x" * 20_000
ROUNDS = 12
ROUND_MS = 60
EXPIRING = ("lock", "limiter", "stalled-check")
"""The kinds of keys with a time to live, which memory pressure evicts."""


@contextmanager
def _frozen(system: ChaosSystem) -> Iterator[None]:
    server = system.primary
    with system.window(server.node, resume_ms=system.stall_ms):
        server.freeze()
        try:
            yield
        finally:
            server.thaw()


@fault("redis.freeze", group="redis", hold_ms=1500)
@contextmanager
def freeze(system: ChaosSystem) -> Iterator[None]:
    """Redis is frozen (SIGSTOP): connections stay open, and no command gets a reply."""
    with _frozen(system):
        yield


@fault("redis.freeze-past-locks", group="redis", hold_ms=6000, times=1)
@contextmanager
def freeze_past_locks(system: ChaosSystem) -> Iterator[None]:
    """Redis is frozen for three lock durations: all locks have expired when it continues."""
    with _frozen(system):
        yield


def _primaries(system: ChaosSystem) -> list[RedisServer]:
    """All servers that may hold data."""
    return list(system.topology.servers) if system.topology.cluster else [system.primary]


@fault("redis.flushall", group="redis", hold_ms=100, times=1)
@contextmanager
def flushall(system: ChaosSystem) -> Iterator[None]:
    """An operator sends FLUSHALL: all data is lost, scripts stay."""
    with system.window(resume_ms=system.stall_ms) as window:
        for server in _primaries(system):
            with server.connect() as client:
                send(client, "FLUSHALL")
        window.lost_since_ms = EVERYTHING
        yield


@fault("redis.script-flush", group="redis", hold_ms=300, times=4)
@contextmanager
def script_flush(system: ChaosSystem) -> Iterator[None]:
    """Redis forgets the scripts at random moments, several times in a row: clients load them again, unnoticed."""
    with system.window():
        for _ in range(4):
            for server in _primaries(system):
                with server.connect() as client:
                    send(client, "SCRIPT FLUSH")
            # At random, so that a flush falls between a client's EVALSHA and its next one.
            system.pause(system.random.uniform(5, 60))
        yield


@fault("redis.client-kill", group="redis", hold_ms=200, times=3)
@contextmanager
def client_kill(system: ChaosSystem) -> Iterator[None]:
    """All connections of clients are killed (CLIENT KILL TYPE normal)."""
    with system.window("normal"), system.primary.connect() as client:
        send(client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        yield


@fault("redis.client-kill-blocked", group="redis", hold_ms=200, times=3)
@contextmanager
def client_kill_blocked(system: ChaosSystem) -> Iterator[None]:
    """Only the connections that wait for a marker are killed."""
    with system.window("blocked"), system.primary.connect() as client:
        for line in bytes(send(client, "CLIENT", "LIST")).decode().splitlines():
            facts = dict(word.split("=", 1) for word in line.split(" ") if "=" in word)
            # Only workers that wait for a marker block in BZPOPMIN.
            if facts.get("cmd") == "bzpopmin":
                send(client, "CLIENT", "KILL", "ID", facts["id"])
        yield


@fault("redis.client-kill-pubsub", group="redis", hold_ms=200, times=1)
@contextmanager
def client_kill_pubsub(system: ChaosSystem) -> Iterator[None]:
    """The connections that listen to channels are killed (CLIENT KILL TYPE pubsub): BullMQ has none and continues."""
    with system.window("pubsub"), system.primary.connect() as client:
        with system.primary.connect() as own, own.pubsub() as listener:
            listener.subscribe("chaos")
            listener.get_message(timeout=LISTEN_S)  # the reply to SUBSCRIBE: only now there is a connection to kill
            if not send(client, "CLIENT", "KILL", "TYPE", "pubsub"):
                raise EnvironmentProblem("Redis found no connection of type pubsub, although one listens")
        yield


@fault("redis.client-pause", group="redis", hold_ms=800, times=2)
@contextmanager
def client_pause(system: ChaosSystem) -> Iterator[None]:
    """Commands wait (CLIENT PAUSE), as during a manual failover."""
    with system.window(), system.primary.connect() as client:
        # Longer than the fault is held; UNPAUSE ends it earlier.
        send(client, "CLIENT", "PAUSE", 5000, "WRITE")
        try:
            yield
        finally:
            send(client, "CLIENT", "UNPAUSE")


@fault("redis.maxclients", group="redis", hold_ms=1500, times=1)
@contextmanager
def maxclients(system: ChaosSystem) -> Iterator[None]:
    """All connections are killed, and Redis accepts only one new one."""
    with system.window(resume_ms=system.stall_ms), system.primary.connect() as client:
        # The kit's connection is one of the two.
        send(client, "CONFIG", "SET", "maxclients", 2)  # before the kill: clients reconnect at once
        try:
            send(client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            yield
        finally:
            send(client, "CONFIG", "SET", "maxclients", 10_000)


@fault("redis.oom", group="redis", hold_ms=700, times=2)
@contextmanager
def oom(system: ChaosSystem) -> Iterator[None]:
    """Redis has no memory left and evicts nothing: every script that writes is refused."""
    with system.window(resume_ms=system.stall_ms), system.primary.connect() as client:
        send(client, "CONFIG", "SET", "maxmemory", 1_000_000)
        try:
            yield
        finally:
            send(client, "CONFIG", "SET", "maxmemory", 0)


@fault("redis.readonly", group="redis", hold_ms=800, times=2, topologies=ALONE)
@contextmanager
def readonly(system: ChaosSystem) -> Iterator[None]:
    """The primary is made a replica of an unreachable server: it answers READONLY to every write."""
    with system.window(resume_ms=system.stall_ms), system.primary.connect() as client:
        send(client, "REPLICAOF", *NOWHERE)
        try:
            yield
        finally:
            send(client, "REPLICAOF", "NO", "ONE")


@fault("redis.busy", group="redis", hold_ms=1200, times=2)
@contextmanager
def busy(system: ChaosSystem) -> Iterator[None]:
    """A foreign script runs for ever: all other clients get BUSY until it is killed."""
    with system.window(resume_ms=system.stall_ms), system.primary.connect() as client:
        # Low, so that BUSY is answered soon and not after the default of 5 s.
        send(client, "CONFIG", "SET", "lua-time-limit", 50)
        # In a thread, because EVAL does not return until it is killed.
        thread = threading.Thread(target=_run_for_ever, args=(system,), daemon=True, name="busy script")
        thread.start()
        try:
            yield
        finally:
            # Repeated until it is gone: SCRIPT KILL finds no script while EVAL is still in flight.
            wait_until(lambda: _script_killed(client) or not thread.is_alive(), deadline_s=10)
            thread.join(10)


def _run_for_ever(system: ChaosSystem) -> None:
    with suppress(redis.RedisError), system.primary.connect(timeout_s=60) as client:
        send(client, "EVAL", FOR_EVER, 0)


def _script_killed(client: redis.Redis) -> bool:
    try:
        send(client, "SCRIPT", "KILL")
    except redis.RedisError:
        return False
    return True


@fault("redis.misconf", group="redis", hold_ms=800, times=1, topologies=ALONE, containers=False)
@contextmanager
def misconf(system: ChaosSystem) -> Iterator[None]:
    """Redis failed to save and refuses writes until it can save again (MISCONF)."""
    server = local_process(system)
    obstacle = server.folder / "dump.rdb"
    with system.window(resume_ms=system.stall_ms), server.connect() as client:
        # A folder of that name makes the save fail for every user; file modes would not stop root.
        obstacle.mkdir()
        try:
            # A rule that never triggers: only with a `save` setting does Redis refuse writes after a failed save.
            send(client, "CONFIG", "SET", "save", "3600 1000000")
            send(client, "BGSAVE")
            if not wait_until(lambda: _last_save(client) == "err", deadline_s=10):
                raise EnvironmentProblem("Redis could save although its file is a folder")
            yield
        finally:
            obstacle.rmdir()
            send(client, "CONFIG", "SET", "save", "")
            # A save that succeeds is what ends the refusals.
            send(client, "BGSAVE")
            wait_until(lambda: _last_save(client) == "ok", deadline_s=10)


def _last_save(client: redis.Redis) -> str:
    return str(client.info("persistence")["rdb_last_bgsave_status"])


@fault(
    "redis.disk-full",
    group="redis",
    hold_ms=2500,
    times=1,
    topologies=ALONE,
    persistence="aof-everysec",
    containers=False,
)
@contextmanager
def disk_full(system: ChaosSystem) -> Iterator[None]:
    """The disk is full for the append-only file: Redis refuses writes until there is room (MISCONF)."""
    server = local_process(system)
    with system.window(resume_ms=system.stall_ms), server.connect() as client:
        # A limit on the size of files acts like a full disk: the same failed write, for this one process.
        server.limit_files(0)
        try:
            # Redis notices at the next write, so the fault is not in force at once.
            if not wait_until(lambda: _last_append(client) == "err", deadline_s=10):
                raise EnvironmentProblem("Redis could write its append-only file although there is no room")
            yield
        finally:
            server.limit_files(None)
            if not wait_until(lambda: _last_append(client) == "ok", deadline_s=10):
                raise EnvironmentProblem("Redis does not write its append-only file although there is room again")


def _last_append(client: redis.Redis) -> str:
    return str(client.info("persistence")["aof_last_write_status"])


@fault("redis.noperm", group="redis", hold_ms=800, times=2)
@contextmanager
def noperm(system: ChaosSystem) -> Iterator[None]:
    """An operator revokes the clients' permission to call scripts (NOPERM), and grants it again."""
    with ExitStack() as stack:
        stack.enter_context(system.window("evalsha, eval", resume_ms=system.stall_ms))
        clients = [stack.enter_context(server.connect()) for server in _primaries(system)]
        for client in clients:
            # Registered before the change, so that it is undone even if another server fails.
            stack.callback(send, client, "ACL", "SETUSER", "default", "+@all")
            send(client, "ACL", "SETUSER", "default", "-evalsha", "-eval")
        yield


@fault("redis.noauth", group="redis", hold_ms=1000, times=1)
@contextmanager
def noauth(system: ChaosSystem) -> Iterator[None]:
    """An operator sets an unknown password, and all connections are killed: clients get NOAUTH."""
    with system.window(resume_ms=system.stall_ms), system.primary.connect() as client:
        send(client, "CONFIG", "SET", "requirepass", "unknown")
        try:
            send(client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            yield
        finally:
            send(client, "CONFIG", "SET", "requirepass", "")
            send(client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


@contextmanager
def _memory_pressure(system: ChaosSystem, policy: str) -> Iterator[None]:
    """Fill the memory up to its limit, so that Redis must evict keys; then make room again."""
    everything = policy.startswith("allkeys")
    with (
        # Every process, because scripts are refused as well while nothing is left that may be evicted.
        system.window(policy, keys=EXPIRING, resume_ms=system.stall_ms) as window,
        system.primary.connect() as client,
    ):
        if everything:
            # Eviction takes single keys, so the remaining ones may not fit together.
            window.lost_since_ms, window.torn = EVERYTHING, True
        send(client, "CONFIG", "SET", "maxmemory-policy", policy)
        used = int(client.info("memory")["used_memory"])
        # Little room is left, so that eviction starts at once and not only after the fault.
        send(client, "CONFIG", "SET", "maxmemory", used + 200_000)
        try:
            for number in range(ROUNDS):
                _fill(client, number)
                system.pause(ROUND_MS)
            yield
        finally:
            # The limit first: without it nothing is evicted any more.
            send(client, "CONFIG", "SET", "maxmemory", 0)
            send(client, "CONFIG", "SET", "maxmemory-policy", "noeviction")
            for number in range(ROUNDS):
                client.delete(f"{FILLER}{number}")


def _fill(client: redis.Redis, number: int) -> None:
    """Write one more key, if there is room for it."""
    with suppress(redis.OutOfMemoryError):
        client.set(f"{FILLER}{number}", FILLING)


@contextmanager
def _deleted(system: ChaosSystem, pattern: str, kind: str) -> Iterator[None]:
    """Delete all keys of one kind, several times."""
    with (
        system.window(kind, victims=[], keys=[kind], resume_ms=system.stall_ms),
        system.primary.connect() as client,
    ):
        # Again and again, because clients create such keys again within the fault.
        for _ in range(ROUNDS):
            for key in client.scan_iter(match=f"{_escaped(system.prefix)}:{pattern}", count=1000):
                client.delete(key)
            system.pause(ROUND_MS)
        yield


def _escaped(prefix: str) -> str:
    return prefix.replace("{", "[{]").replace("}", "[}]")


for _policy in ("volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"):

    @fault(f"evict.{_policy}", group="evictions", hold_ms=200, times=1, topologies=ALONE)
    @contextmanager
    def _under_volatile(system: ChaosSystem, policy: str = _policy) -> Iterator[None]:
        """Memory pressure under a policy that evicts keys with a time to live: locks, throttles, limits."""
        with _memory_pressure(system, policy):
            yield


for _policy in ("allkeys-lru", "allkeys-lfu", "allkeys-random"):

    @fault(f"evict.{_policy}", group="evictions", hold_ms=200, times=1, topologies=ALONE, drain_s=8)
    @contextmanager
    def _under_allkeys(system: ChaosSystem, policy: str = _policy) -> Iterator[None]:
        """Memory pressure under a policy that evicts any key: jobs are lost, and no client may crash."""
        with _memory_pressure(system, policy):
            yield


for _kind in ("lock", "marker", "stalled-check", "limiter", "stalled"):

    @fault(f"evict.{_kind}", group="evictions", hold_ms=200, times=1)
    @contextmanager
    def _of_kind(system: ChaosSystem, kind: str = _kind) -> Iterator[None]:
        """All keys of one kind are deleted, again and again: locks, markers, the stalled check's throttle, limits."""
        with _deleted(system, f"*:{kind}", kind):
            yield
