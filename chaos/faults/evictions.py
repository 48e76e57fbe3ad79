"""Keys go away that nobody has deleted: by memory pressure under each policy, and one kind at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import redis

from chaos.faults.redis_restarts import ALONE
from chaos.faults.registry import fault
from chaos.stage import EVERYTHING, Stage
from conformance.servers.connection import send

FILLER = "chaos:filler:"
PIECE = "x" * 20_000
ROUNDS = 12
ROUND_MS = 60


@contextmanager
def pressure(stage: Stage, policy: str) -> Iterator[None]:
    """Fill the memory up to its limit, so that Redis has to evict; then make room again."""
    everything = policy.startswith("allkeys")
    with stage.window("redis.evict", policy, resume_ms=stage.stall_ms) as window, stage.primary.connect() as client:
        if everything:
            window.lost_since_ms, window.torn = EVERYTHING, True
        send(client, "CONFIG", "SET", "maxmemory-policy", policy)
        used = int(client.info("memory")["used_memory"])
        send(client, "CONFIG", "SET", "maxmemory", used + 200_000)
        try:
            for number in range(ROUNDS):
                _fill(client, number, expiring=False)
                stage.pause(ROUND_MS)
            yield
        finally:
            send(client, "CONFIG", "SET", "maxmemory", 0)
            send(client, "CONFIG", "SET", "maxmemory-policy", "noeviction")
            for number in range(ROUNDS):
                client.delete(f"{FILLER}{number}")


def _fill(client: redis.Redis, number: int, *, expiring: bool) -> None:
    """One more piece, if there is room for it."""
    try:
        client.set(f"{FILLER}{number}", PIECE, px=60_000 if expiring else None)
    except redis.OutOfMemoryError:
        return


@contextmanager
def targeted(stage: Stage, pattern: str, target: str) -> Iterator[None]:
    """Delete all keys of one kind, several times."""
    with stage.window("redis.evict", target, resume_ms=stage.stall_ms), stage.primary.connect() as client:
        for _ in range(ROUNDS):
            for key in client.scan_iter(match=f"{_escaped(stage.prefix)}:{pattern}", count=1000):
                client.delete(key)
            stage.pause(ROUND_MS)
        yield


def _escaped(prefix: str) -> str:
    return prefix.replace("{", "[{]").replace("}", "[}]")


for _policy in ("volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"):

    @fault(f"evict.{_policy}", group="evictions", hold_ms=200, times=1, topologies=ALONE)
    @contextmanager
    def _under_volatile(stage: Stage, policy: str = _policy) -> Iterator[None]:
        """Memory pressure under a policy that evicts what expires: locks, throttles, limits."""
        with pressure(stage, policy):
            yield


for _policy in ("allkeys-lru", "allkeys-lfu", "allkeys-random"):

    @fault(f"evict.{_policy}", group="evictions", hold_ms=200, times=1, topologies=ALONE, drain_s=8)
    @contextmanager
    def _under_allkeys(stage: Stage, policy: str = _policy) -> Iterator[None]:
        """Memory pressure under a policy that evicts anything: jobs are lost, and nobody may crash of it."""
        with pressure(stage, policy):
            yield


for _kind in ("lock", "marker", "stalled-check", "limiter", "stalled"):

    @fault(f"evict.{_kind}", group="evictions", hold_ms=200, times=1)
    @contextmanager
    def _of_kind(stage: Stage, kind: str = _kind) -> Iterator[None]:
        """All keys of one kind go away, again and again: locks, markers, the stalled check's throttle, limits."""
        with targeted(stage, f"*:{kind}", kind):
            yield
