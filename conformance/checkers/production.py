"""Invariants of a store in use: what must go on by itself, and settings of the server. Pure.

They do not hold in the middle of a scenario, in which the kit stops the clock or acts for a worker.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from conformance.checkers.base import (
    EARLIEST_MS,
    SnapshotView,
    ViolationDetail,
    has_chosen_timestamp,
    is_plausible_ms,
)
from conformance.checkers.table import check
from conformance.observe.keyspace import split_key
from conformance.observe.tables import Counter, Deduplication, Expiring, Job, Snapshot, as_number, moment_of
from conformance.protocol.job_fields import ALIAS_OF_OPTION, CHILD_FAILURE_OPTIONS, DEFAULT_MAX_EVENTS
from conformance.protocol.keys import EVENT_READER_SUFFIX, NAMED_WORKER_INFIX, hashed_part
from conformance.protocol.states import DELAY_FACTOR, UNFINISHED_CONTAINERS

OVERDUE_MS = 60_000
"""How late a delayed job has to be. A worker that waits looks for due jobs at least every 10 s."""

ADDED_TOLERANCE_MS = 60_000
"""How far a job's timestamp may be from when Redis took its event `added`: other clocks, large batches."""

EARLY_END_MS = 2000
"""How much before the moment asked for a key may end: the timestamp is of another clock than Redis'."""

EVENTS_TOO_MANY = 1000
"""Entries above the limit of an event stream, or twice the limit. Redis trims whole nodes of about a hundred."""

NEARLY_FULL = 0.9
"""The share of `maxmemory` from which memory is nearly used up."""

_WHOLE = re.compile(r"\d+", re.ASCII)
_REPEATABLE = re.compile(r"[0-9a-f]{32}")
_VERSION = re.compile(r"bullmq:(\d+\.\d+\.\d+)\S*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedConnection:
    """A connection of Redis' CLIENT LIST: its name and its last command."""

    name: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts:
    """Facts about a store besides its rows; empty or 0: unknown.

    `events`: length of the event stream by queue. `used_bytes` and `most_bytes` (`maxmemory`): of the fullest node.
    """

    events: Mapping[str, int] = field(default_factory=dict)
    policy: str = ""
    used_bytes: int = 0
    most_bytes: int = 0
    is_cluster: bool = False
    connections: tuple[ListedConnection, ...] = ()


class StoreView(SnapshotView):
    """A snapshot of a store in use, or of a part of it, with facts about the store."""

    def __init__(self, snapshot: Snapshot, facts: StoreFacts) -> None:
        super().__init__(snapshot)
        self.facts = facts


@check("active-locks")
def _active_locks(view: StoreView) -> Iterator[ViolationDetail]:
    """An active job has a lock, or a stalled check will find it: its throttle `stalled-check` exists.

    Without that key no worker has looked for stalled jobs in its last interval.
    """
    locked = {(row.queue, row.job) for row in view.snapshot.locks}
    watched = {row.queue for row in view.snapshot.stalled_checks}
    for key, job in sorted(view.jobs.items()):
        if view.state_of(job) == "active" and key not in locked and key[0] not in watched:
            message = "the job is active without a lock, and no worker looks for stalled jobs"
            yield ViolationDetail(where="lock", key=":".join(key), message=message)


@check("overdue")
def _overdue(view: StoreView) -> Iterator[ViolationDetail]:
    """A delayed job is due for at most a minute.

    Not judged while a queue is paused or limited, or while all that is active was claimed before the job was due: all
    workers may be busy then.
    """
    for queue in view.snapshot.queues:
        delayed = view.members(queue, "delayed")
        if not delayed or _may_be_late(view, queue):
            continue
        claimed = _last_claim(view, queue)
        for row in delayed:
            due = (as_number(row.score) or 0) / DELAY_FACTOR
            is_late = EARLIEST_MS <= due < view.snapshot.taken_ms - OVERDUE_MS
            if is_late and (claimed is None or claimed > due + OVERDUE_MS):
                message = f"the job is due since {due:.0f}, and still delayed"
                yield ViolationDetail(
                    where="membership.delayed", key=f"{queue}:{row.job}", message=message, since_ms=due
                )


def _may_be_late(view: StoreView, queue: str) -> bool:
    meta = view.snapshot.meta(queue)
    return "paused" in meta or any(row.queue == queue for row in view.snapshot.limiters)


def _last_claim(view: StoreView, queue: str) -> float | None:
    """When a worker took the newest job that is active; None if nothing is active."""
    active = [view.jobs.get((queue, row.job)) for row in view.members(queue, "active")]
    if not active:
        return None
    return max((job.number("processedOn") or 0 for job in active if job is not None), default=0)


@check("next-iterations")
def _next_iterations(view: StoreView) -> Iterator[ViolationDetail]:
    """A job scheduler has its next iteration: the job `repeat:ID:TIME` of its entry in `repeat` has not ended.

    Not judged after the last iteration (`limit`, `endDate`), and without a record or a readable time.
    """
    for row in view.snapshot.schedulers:
        time = as_number(row.next)
        if row.fields is None or not is_plausible_ms(time) or time is None:
            continue
        name = f"repeat:{row.id}:{time:.0f}"
        states = view.states.get((row.queue, name), [])
        if (row.queue, name) in view.jobs and set(states) & set(UNFINISHED_CONTAINERS):
            continue
        if not may_have_ended(row.id, row.fields, time, view.snapshot.taken_ms):
            message = f"its next iteration {name} {'has ended' if states else 'does not exist'}"
            since = time if time < view.snapshot.taken_ms else None
            yield ViolationDetail(
                where="scheduler.next", key=f"{row.queue}:repeat:{row.id}", message=message, since_ms=since
            )


def may_have_ended(name: str, fields: Mapping[str, str], time: float, now: int) -> bool:
    """Whether a schedule may have had its last iteration, that of `time`. `fields`: its record.

    With a pattern only the end date itself is known. Records of repeatable jobs of older versions, which are named by a
    hash, do not have their limit.
    """
    limit, made = as_number(fields.get("limit")), as_number(fields.get("ic")) or 0
    end, every = as_number(fields.get("endDate")), as_number(fields.get("every"))
    if _REPEATABLE.fullmatch(name) or (limit is not None and made >= limit):
        return True
    return end is not None and (every is None or now > end or time + every > end)


@check("schedules-of-iterations")
def _schedules_of_iterations(view: StoreView) -> Iterator[ViolationDetail]:
    """An iteration that waits for its time is the next one of its scheduler.

    One that was started before may wait again: it was retried, or its processor delayed it.
    """
    entries = {(row.queue, row.id): as_number(row.next) for row in view.snapshot.schedulers}
    for (queue, name), job in sorted(view.jobs.items()):
        if not is_waiting_iteration(job) or view.state_of(job) != "delayed":
            continue
        scheduler = job.fields.get("rjk", "")
        time = entries.get((queue, scheduler))
        if time is None:
            message = f"the job is an iteration of the scheduler {scheduler!r}, which does not exist"
        elif name != f"repeat:{scheduler}:{time:.0f}":
            message = f"the next iteration of the scheduler {scheduler!r} is at {time:.0f}"
        else:
            continue
        yield ViolationDetail(where="scheduler", key=f"{queue}:{name}", message=message)


def is_waiting_iteration(job: Job) -> bool:
    """Whether a scheduler made the job, and no worker has started it."""
    return job.is_iteration and not job.number("ats")


@check("ended-children")
def _ended_children(view: StoreView) -> Iterator[ViolationDetail]:
    """A child that failed under an option for its parent is not pending any more.

    The options are those of `CHILD_FAILURE_OPTIONS`; without one of them the parent waits for a retry.
    """
    options = [ALIAS_OF_OPTION[option] for option in CHILD_FAILURE_OPTIONS]
    for row in view.snapshot.dependencies:
        place = split_key(view.snapshot.prefix, row.child)
        child = view.jobs.get(place)
        if row.kind != "pending" or child is None or view.state_of(child) != "failed":
            continue
        chosen = [option for option in options if child.opts.get(option)]
        if chosen:
            message = f"the pending child {row.child} has failed with the option `{chosen[0]}`"
            yield ViolationDetail(
                where="dependency.pending", key=f"{row.queue}:{row.parent}", message=message, other=row.child
            )


@check("added-in-time")
def _added_in_time(view: SnapshotView) -> Iterator[ViolationDetail]:
    """A job's timestamp is about when Redis took its event `added` (clocks may differ by a minute).

    Not where the user chose the timestamp.
    """
    first: dict[tuple[str, str], int] = {}
    for event in view.snapshot.events:
        if event.name == "added":
            first.setdefault((event.queue, event.job), int(event.id.partition("-")[0]))
    for key, added_ms in sorted(first.items()):
        job = view.jobs.get(key)
        timestamp = job.number("timestamp") if job is not None else None
        # A timestamp in another unit is reported as such.
        if job is None or not is_plausible_ms(timestamp) or timestamp is None or has_chosen_timestamp(job):
            continue
        if abs(timestamp - added_ms) > ADDED_TOLERANCE_MS:
            message = f"timestamp {timestamp:.0f}, and the job was added at {added_ms}"
            yield ViolationDetail(where="job.timestamp", key=":".join(key), message=message, since_ms=added_ms)


@check("deduplication-ttl")
def _deduplication_ttl(view: SnapshotView) -> Iterator[ViolationDetail]:
    """A deduplication key lives for as long as its owner asked for, from the moment at which the owner was added.

    It may live longer: a duplicate may have restarted the time (option `extend`).
    """
    for row in view.snapshot.deduplications:
        owner = view.jobs.get((row.queue, row.job))
        ends_ms, timestamp = moment_of(row, view.snapshot), owner.number("timestamp") if owner is not None else None
        asked = _asked_ttl(view, row)
        if ends_ms is None or asked is None or timestamp is None:
            continue
        short_by = timestamp + asked - ends_ms
        if short_by > EARLY_END_MS:
            message = f"the key ends {short_by:.0f} ms before the {asked:.0f} ms that job {row.job!r} asked for"
            yield ViolationDetail(where="dedup.ttl", key=f"{row.queue}:de:{row.id}", message=message)


def _asked_ttl(view: SnapshotView, row: Deduplication) -> float | None:
    owner = view.jobs.get((row.queue, row.job))
    asked = owner.opts.get("de") if owner is not None else None
    return as_number(asked.get("ttl")) if isinstance(asked, dict) else None


@check("settings")
def _settings(view: StoreView) -> Iterator[ViolationDetail]:
    """Settings and counters are numbers: `concurrency`, `max` and `duration` from 1, the others from 0."""
    for meta in view.snapshot.metas:
        for name, least in (("concurrency", 1), ("max", 1), ("duration", 1), ("opts.maxLenEvents", 0)):
            number = as_number(meta.fields.get(name, str(least)))
            if number is None or number < least:
                message = f"{name} is {meta.fields[name]!r}"
                yield ViolationDetail(where=f"meta.{name}", key=f"{meta.queue}:meta", message=message)
    rows: tuple[Counter | Expiring, ...] = (*view.snapshot.counters, *view.snapshot.limiters)
    for row in rows:
        if not _WHOLE.fullmatch(row.value):
            message = f"{row.name} is {row.value!r}"
            yield ViolationDetail(where=f"counter.{row.name}", key=f"{row.queue}:{row.name}", message=message)


@check("event-streams")
def _event_streams(view: StoreView) -> Iterator[ViolationDetail]:
    """An event stream is not much longer than its limit: adding and finishing jobs trims it."""
    for queue, length in sorted(view.facts.events.items()):
        limit = as_number(view.snapshot.meta(queue).get("opts.maxLenEvents", DEFAULT_MAX_EVENTS))
        if limit is not None and length > limit + max(limit, EVENTS_TOO_MANY):
            message = f"{length} entries, and the limit is {limit:.0f}"
            yield ViolationDetail(where="events", key=f"{queue}:events", message=message)


@check("hash-tags")
def _hash_tags(view: StoreView) -> Iterator[ViolationDetail]:
    """In a cluster, all keys of a queue have a common hash tag: scripts need them in one slot."""
    for queue in view.snapshot.queues if view.facts.is_cluster else ():
        base = f"{view.snapshot.prefix}:{queue}:".encode("utf-8", "surrogateescape")
        if hashed_part(base) == base:
            message = f"the keys of the queue {queue!r} are in different slots"
            yield ViolationDetail(where="prefix", key=f"{queue}:meta", message=message)


@check("eviction")
def _eviction(view: StoreView) -> Iterator[ViolationDetail]:
    """Redis does not evict keys (`maxmemory-policy noeviction`), if its memory is limited."""
    if view.facts.most_bytes and view.facts.policy and view.facts.policy != "noeviction":
        message = f"maxmemory-policy is {view.facts.policy}, and maxmemory {view.facts.most_bytes} bytes"
        yield ViolationDetail(where="redis.policy", key="maxmemory-policy", message=message)


@check("memory")
def _memory(view: StoreView) -> Iterator[ViolationDetail]:
    """Less than 90 % of `maxmemory` is used."""
    used, most = view.facts.used_bytes, view.facts.most_bytes
    if most and used > most * NEARLY_FULL:
        message = f"{used} of {most} bytes are used ({100 * used / most:.0f} %)"
        yield ViolationDetail(where="redis.memory", key="maxmemory", message=message)


@check("versions")
def _versions(view: StoreView) -> Iterator[ViolationDetail]:
    """All queues were opened by the same release of BullMQ (field `version` of `meta`)."""
    queues: defaultdict[str, list[str]] = defaultdict(list)
    for meta in view.snapshot.metas:
        found = _VERSION.fullmatch(meta.fields.get("version", ""))
        if found:
            queues[found[1]].append(meta.queue)
    if len(queues) > 1:
        shown = (f"{version}: {_some(names)}" for version, names in sorted(queues.items()))
        yield ViolationDetail(where="meta.version", key="version", message="; ".join(shown))


def _some(names: list[str]) -> str:
    return ", ".join([*sorted(names)[:3], *(["…"] if len(names) > 3 else [])])


@check("connection-names")
def _connection_names(view: StoreView) -> Iterator[ViolationDetail]:
    """A connection that waits for jobs (BZPOPMIN) has a name that getWorkers reads: `PREFIX:` and the queue in base64.

    In a cluster older releases set none.
    """
    for connection in view.facts.connections:
        is_worker = connection.command == "bzpopmin"
        starts = connection.name.startswith(f"{view.snapshot.prefix}:")
        if starts and not named_queue(connection.name, view.snapshot.prefix):
            message = f"getWorkers cannot read the connection name {connection.name!r}"
        elif is_worker and not connection.name and not view.facts.is_cluster:
            message = "a connection that waits for jobs (BZPOPMIN) has no name"
        else:
            continue
        yield ViolationDetail(where="client.name", key=connection.name or "(no name)", message=message)


def named_queue(name: str, prefix: str) -> str:
    """The queue in a connection name `PREFIX:BASE64`, with `:w:NAME` of a worker or `:qe` of a reader of events.

    Empty for a name that getWorkers does not read.
    """
    rest = name.removeprefix(f"{prefix}:").removesuffix(EVENT_READER_SUFFIX)
    encoded = rest.partition(NAMED_WORKER_INFIX)[0]
    try:
        queue = b64decode(encoded, validate=True)
        # A bare name may look like base64 by chance; then it hardly decodes to a text.
        return queue.decode() if b64encode(queue).decode() == encoded else ""
    except ValueError:
        return ""
