"""The queues of a load, and its progress. Sent to executors. No Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.environment.clients import Launch
from conformance.problems import UsageProblem
from conformance.protocol.keys import glob_escaped
from conformance.servers.connection import Client, connect, explained
from conformance.servers.setting import RedisUrl
from reports.load.workload import Workload

PROGRESS = "bullmq-conformance:load"
"""Beginning of the keys that say how far each partition has come; outside of every queue."""

BATCH = 1000
"""Jobs per addBulk."""


KEEP_ALL_EVENTS = 1_000_000_000
"""Events that a queue keeps: more than there will ever be, so that every job can be timed by them."""


@dataclass(frozen=True, kw_only=True)
class LoadTarget:
    """A load on its way to executors.

    `barrier`: name of the barrier that starts the schedule (`reports.load.barrier`), new for each attempt.
    Empty: there is none, and the schedule starts at `start_ms`, Unix ms of Redis' clock.
    """

    address: RedisUrl
    prefix: str
    workload: Workload
    start_ms: int = 0
    barrier: str = ""
    producer: Launch | None = None
    """None: the reference, inside the executor."""
    event_limit: int = KEEP_ALL_EVENTS
    partitions: int = 2
    resume: bool = False

    @property
    def queue_options(self) -> dict[str, Any]:
        """BullMQ's QueueOptions."""
        return {"streams": {"events": {"maxLen": self.event_limit}}}

    def progress_key(self, partition: int) -> str:
        """The key that holds how many jobs of a partition are added for certain."""
        return f"{self._keys}:{partition}"

    @property
    def schedule_key(self) -> str:
        """The key with the start of the schedule, for a load that is resumed."""
        return f"{self._keys}:schedule"

    @property
    def barrier_key(self) -> str:
        """The key of the set of producers that are connected."""
        return f"{self._keys}:ready:{self.barrier}"

    @property
    def start_key(self) -> str:
        """The key with the start of the schedule, for all producers."""
        return f"{self._keys}:start:{self.barrier}"

    @property
    def own_keys(self) -> list[str]:
        """Every key of the load other than its queues."""
        progress = [self.progress_key(partition) for partition in range(self.partitions)]
        return [*progress, self.schedule_key, self.barrier_key, self.start_key]

    @property
    def _keys(self) -> str:
        return f"{PROGRESS}:{self.prefix}:{self.workload.digest}:{self.partitions}"

    def connection(self) -> dict[str, Any]:
        """The address as the reference takes it."""
        names = ("mode", "nodes", "db", "username", "password", "tls")
        return {name: value for name in names if (value := getattr(self.address, name))}


def require_unused_queues(target: LoadTarget) -> None:
    """Refuse queues that hold something already, unless the load goes on with an earlier one.

    Raises UsageProblem; redis errors.
    """
    with connect(target.address) as client:
        used = [queue for queue in target.workload.queue_names if _is_used(client, f"{target.prefix}:{queue}")]
        was_started = any(client.exists(target.progress_key(partition)) for partition in range(target.partitions))
    if used and not target.resume:
        raise UsageProblem(
            f"queue {used[0]!r} under {target.prefix!r} is already in use",
            hint="choose another --prefix, or --resume if an earlier load with the same workload broke off",
        )
    if target.resume and used and not was_started:
        raise UsageProblem(
            f"queue {used[0]!r} was not filled by this workload (or by a load that has ended)",
            hint="--resume needs the same workload, seed, prefix and partitions as the load that broke off",
        )


def forget_progress(target: LoadTarget) -> None:
    """Remove the keys that only a load that broke off needs. Raises redis errors."""
    with connect(target.address) as client:
        for key in target.own_keys:
            client.delete(key)


def remove_load(target: LoadTarget) -> None:
    """Remove the queues of a load that was only a trial. Raises Problems."""
    with explained(target.address), connect(target.address) as client:
        untyped: Any = client
        for queue in target.workload.queue_names:
            pattern = f"{glob_escaped(f'{target.prefix}:{queue}:')}*"
            keys = list(untyped.scan_iter(match=pattern, count=5000))
            for key in keys:
                untyped.unlink(key)


def _is_used(client: Client, base: str) -> bool:
    return any(client.exists(f"{base}:{name}") for name in ("meta", "id", "events"))


def missing_of(client: Client, target: LoadTarget, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of the rows whose job does not exist yet: adding them again adds nothing twice. Raises redis errors."""
    pipeline: Any = client.pipeline(transaction=False) if not hasattr(client, "get_primaries") else client.pipeline()
    for row in rows:
        pipeline.exists(f"{target.prefix}:{row['queue']}:{row['id']}")
    return [row for row, is_there in zip(rows, pipeline.execute(), strict=True) if not is_there]
