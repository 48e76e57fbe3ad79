"""Keys that each eviction policy of Redis removes from a queue under real memory pressure, and the fate of the jobs.

    python -m benchmarks.eviction [--client node] [--policies noeviction,volatile-lru,...] [--megabytes 0.4]

For every policy: a separate Redis, one queue with 20 jobs of each state and a flow, and more junk than fits into
memory. Then the workers of the active jobs are gone, two stalled checks run, and a worker runs the jobs that it finds.
Its output is the table of docs/explanation/corner-cases.md.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from conformance.driver.errors import OperationFailed
from conformance.driver.ops import queue as queue_ops
from conformance.environment.clients import client_names
from conformance.environment.prepare import EnvironmentOptions, prepare
from conformance.gate.bench import BenchPlan
from conformance.participants.expect import Mismatch
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.own_redis import JUNK_BYTES, OwnRedis, own_redis
from conformance.participants.participant import Participant
from conformance.participants.redis_view import RedisView

POLICIES = (
    "noeviction",
    *(f"volatile-{how}" for how in ("lru", "lfu", "random", "ttl")),
    *(f"allkeys-{how}" for how in ("lru", "lfu", "random")),
)
EACH = 20
"""Jobs of each state."""
CHILDREN = 5
JOBS = 5 * EACH + CHILDREN + 1
PATIENCE_MS = 5000
LOCKS, THROTTLES, HASHES, FLOW, OTHER = "locks", "throttles", "hashes", "flow keys", "queue keys"
KINDS = (LOCKS, THROTTLES, HASHES, FLOW, OTHER)
FATES = ("whole", "without data", "lost")


@dataclass(frozen=True)
class Loss:
    """One policy: keys gone by kind, the names of the queue's own keys, jobs by their fate, pieces of junk stored."""

    policy: str
    keys: Counter[str]
    names: tuple[str, ...]
    fates: Counter[str]
    junk_taken: int = field(default=0)


def measure(client: Participant, policy: str, pieces: int) -> Loss:
    """Fill a queue, add junk, and let a worker run the remaining jobs."""
    with own_redis(client, maxmemory_policy=policy) as alone:
        queue = alone.client.queue()
        worker = _populate(alone.client, queue)
        before = _names(alone, queue.redis)
        taken = alone.press(pieces)
        gone = before - _names(alone, queue.redis)
        _work_off(alone.client, queue, worker)
        fates = Counter(_fate(queue.redis, str(number)) for number in _job_ids())
        own = sorted(name for name in gone if kind(name) == OTHER)
        return Loss(policy, Counter(map(kind, gone)), tuple(own), fates, taken)


def kind(name: str) -> str:
    """The kind of a key, from its name after the queue's."""
    if name.endswith(":lock"):
        return LOCKS
    if name in {"stalled-check", "limiter"} or name.startswith("de:"):
        return THROTTLES
    if ":" in name and not name.startswith(("repeat", "metrics")):
        return FLOW
    return HASHES if name in set(_job_ids()) else OTHER


def _job_ids() -> Iterator[str]:
    yield from map(str, range(1, 5 * EACH + 1))
    yield "parent"
    yield from (f"child-{number}" for number in range(1, CHILDREN + 1))


def _populate(client: Participant, queue: QueueHandle) -> WorkerHandle:
    """Completed, active, waiting, delayed and prioritized jobs, a flow, and every key that expires by itself."""
    worker = client.worker(lockDuration=600_000, stalledInterval=600_000)
    queue.add_bulk(*(("job", {"text": "x" * 200}, {}) for _ in range(3 * EACH)))
    queue.add_bulk(*(("job", {"text": "x" * 200}, {"delay": 3_600_000}) for _ in range(EACH)))
    queue.add_bulk(*(("job", {"text": "x" * 200}, {"priority": 5}) for _ in range(EACH)))
    for number in range(EACH):
        worker.complete(worker.claim_one(f"done-{number}").id, "result", f"done-{number}")
    for number in range(EACH):
        worker.claim_one(f"token-{number}")
    child = {"name": "child", "queue": "q"}
    children = [{**child, "opts": {"jobId": f"child-{number}"}} for number in range(1, CHILDREN + 1)]
    client.flow().add({"name": "parent", "queue": "q", "opts": {"jobId": "parent"}, "children": children})
    worker.check_stalled()
    queue.call(queue_ops.SetRateLimit(expire_ms=600_000))
    queue.redis.set_string("de:some", "1", ttl_ms=600_000)
    return worker


def _names(alone: OwnRedis, view: RedisView) -> set[str]:
    return {key.decode().removeprefix(view.base) for key in alone.redis.scan_iter(f"{view.base}*")}


def _work_off(client: Participant, queue: QueueHandle, checker: WorkerHandle) -> None:
    """Locks run out, stalled checks run, delayed jobs become due, and a worker runs until it finds no more jobs."""
    for job in _job_ids():
        queue.redis.delete(f"{job}:lock")
    for _ in range(2):
        queue.redis.delete("stalled-check")
        checker.check_stalled()
    queue.call(queue_ops.PromoteJobs(count=1000))
    last_worker = client.worker("noop", concurrency=10, drainDelay=1)
    with suppress(Mismatch):  # the remaining jobs are those that no worker can find or finish
        client.eventually(
            lambda: [queue.redis.exists(name) for name in ("wait", "prioritized", "active")],
            lambda there: not any(there),
            "everything is worked off",
            within_ms=PATIENCE_MS,
        )
    with suppress(OperationFailed):
        last_worker.close()


def _fate(view: RedisView, job: str) -> str:
    if not {"completed", "failed"} & set(view.state(job)):
        return "lost"
    return "whole" if view.field(job, "name") is not None else "without data"


@contextmanager
def client_alone(name: str) -> Iterator[Participant]:
    """The client in front of an unused Redis; each policy gets a separate one."""
    with prepare(EnvironmentOptions(client=name)) as environment:
        bench = BenchPlan.of(environment).open()
        try:
            yield bench.participant("client", bench.names("client"), bench.clock(frozen=False))
        finally:
            bench.close()


def table(losses: Sequence[Loss]) -> Table:
    """One row per policy."""
    rows = Table(
        "policy", "junk taken", *(f"{kind_} gone" for kind_ in KINDS), *(f"jobs {fate}" for fate in FATES), "names"
    )
    for loss in losses:
        keys = [str(loss.keys[kind_]) for kind_ in KINDS]
        fates = [str(loss.fates[fate]) for fate in FATES]
        rows.add_row(loss.policy, str(loss.junk_taken), *keys, *fates, ", ".join(loss.names))
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", choices=client_names(), default="node")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--megabytes", type=float, default=0.4, help="how much junk is stored")
    given = parser.parse_args()
    pieces = int(given.megabytes * 1_000_000 / JUNK_BYTES)
    with client_alone(given.client) as client:
        losses = [measure(client, policy, pieces) for policy in given.policies.split(",")]
    Console(width=200).print(table(losses))


if __name__ == "__main__":
    main()
