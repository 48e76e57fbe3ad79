"""Proving that a run has come to rest: not by waiting, but by seeing that nothing is left that could still happen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from redis.exceptions import RedisClusterException, RedisError

from chaos.observer import backlog
from chaos.topologies.base import Topology
from conformance.checkers.histories.resting import waiting_for_good
from conformance.observe.reader import read_snapshot
from conformance.observe.tables import Snapshot
from conformance.servers.connection import Client

LOOK_S = 0.05


@dataclass(frozen=True)
class Rest:
    """Whether everything ended in time, and otherwise what was seen last."""

    reached: bool
    seen: str = ""


def wait_for_rest(
    topology: Topology, prefix: str, queues: tuple[str, ...], running: Callable[[], int], *, deadline_s: float
) -> Rest:
    """Wait until no job is in a state from which it could go on, and no processor runs.

    Nobody adds jobs any more when this is called. From empty containers nothing can come, so one look at them that
    finds nothing, with no processor running, is a proof.
    """
    ends = time.monotonic() + deadline_s
    seen = "nothing could be read"
    while time.monotonic() < ends:
        try:
            with topology.connect(timeout_s=5.0) as client:
                left = backlog(client, prefix, queues)
                at_rest = not running() and (not left or _waits_for_good(client, prefix, left))
        except (RedisError, RedisClusterException, OSError) as error:
            seen = f"Redis cannot be read: {error}"
        else:
            if at_rest:
                return Rest(reached=True)
            seen = ", ".join(f"{state} {count}" for state, count in left.items()) or f"{running()} processors run"
        time.sleep(LOOK_S)
    return Rest(reached=False, seen=seen)


def _waits_for_good(client: Client, prefix: str, left: dict[str, int]) -> bool:
    """Whether the jobs left are parents of failed children, which nothing will ever release."""
    if left.keys() != {"waiting-children"}:
        return False
    return left["waiting-children"] == len(waiting_for_good(read_snapshot(client, prefix)))


def final_snapshot(topology: Topology, prefix: str) -> Snapshot:
    """Everything under the prefix. Raises EnvironmentProblem where Redis cannot be read."""
    with topology.connect() as client:
        return read_snapshot(client, prefix)
