"""The model as a snapshot: the same tables that the reader fills from Redis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance.model.state import Family, Queue, World
from conformance.observe.layout import LISTS, SORTED_SETS
from conformance.observe.tables import (
    Counter,
    Deduplication,
    Dependency,
    Expiring,
    Job,
    Lock,
    LogRow,
    Marker,
    Membership,
    Meta,
    Metrics,
    Scheduler,
    Snapshot,
)


def snapshot(world: World) -> Snapshot:
    """Everything under the model's prefix, of this instant."""
    queues = sorted(world.queues.values(), key=lambda queue: queue.name)
    tables: dict[str, Any] = {
        "jobs": _jobs,
        "memberships": _memberships,
        "locks": lambda queue: _locks(world, queue),
        "dependencies": _dependencies,
        "logs": _logs,
        "events": lambda queue: iter(queue.events),
        "schedulers": _schedulers,
        "deduplications": lambda queue: _deduplications(world, queue),
        "metas": _metas,
        "markers": _markers,
        "limiters": lambda queue: _expiring(world, queue, "limiter"),
        "stalled_checks": lambda queue: _expiring(world, queue, "stalled-check"),
        "counters": _counters,
        "metrics": _metrics,
    }
    rows = {name: tuple(row for queue in queues for row in make(queue)) for name, make in tables.items()}
    return Snapshot(prefix=world.prefix, taken_ms=world.server_ms, **rows)


def _jobs(queue: Queue) -> Iterator[Job]:
    for job, fields in sorted(queue.jobs.items()):
        if fields:
            yield Job(queue=queue.name, id=job, fields=dict(fields))


def _memberships(queue: Queue) -> Iterator[Membership]:
    for name in (*LISTS, *SORTED_SETS):
        container = queue.container(name)
        if isinstance(container, list):
            for position, job in enumerate(container):
                yield Membership(queue=queue.name, container=name, job=job, position=position)
        else:
            for job, score in container.items():
                yield Membership(queue=queue.name, container=name, job=job, score=score)
    for job in sorted(queue.stalled):
        yield Membership(queue=queue.name, container="stalled", job=job)


def _locks(world: World, queue: Queue) -> Iterator[Lock]:
    for job, lock in sorted(queue.locks.items()):
        yield Lock(queue=queue.name, job=job, token=lock.value, ttl_ms=lock.ttl_ms(world.server_ms))


def _dependencies(queue: Queue) -> Iterator[Dependency]:
    for parent, family in sorted(queue.families.items()):
        yield from _children(queue.name, parent, family)


def _children(queue: str, parent: str, family: Family) -> Iterator[Dependency]:
    for child in sorted(family.unprocessed):
        yield Dependency(queue=queue, parent=parent, kind="pending", child=child)
    for kind, values in (("processed", family.processed), ("failed", family.ignored)):
        for child, value in sorted(values.items()):
            yield Dependency(queue=queue, parent=parent, kind=kind, child=child, value=value)
    for child, score in family.failed.items():
        yield Dependency(queue=queue, parent=parent, kind="unsuccessful", child=child, score=score)


def _logs(queue: Queue) -> Iterator[LogRow]:
    for job, rows in sorted(queue.logs.items()):
        for position, text in enumerate(rows):
            yield LogRow(queue=queue.name, job=job, position=position, text=text)


def _schedulers(queue: Queue) -> Iterator[Scheduler]:
    for one in sorted({*queue.scheduler_times, *queue.scheduler_records}):
        time, record = queue.scheduler_times.score(one), queue.scheduler_records.get(one)
        yield Scheduler(queue=queue.name, id=one, next=time, fields=None if record is None else dict(record))


def _deduplications(world: World, queue: Queue) -> Iterator[Deduplication]:
    for name, owner in sorted(queue.deduplications.items()):
        yield Deduplication(queue=queue.name, id=name, job=owner.value, ttl_ms=owner.ttl_ms(world.server_ms))


def _metas(queue: Queue) -> Iterator[Meta]:
    if queue.meta:
        yield Meta(queue=queue.name, fields=dict(queue.meta))


def _markers(queue: Queue) -> Iterator[Marker]:
    for member, score in sorted(queue.marker.items()):
        yield Marker(queue=queue.name, member=member, score=score)


def _expiring(world: World, queue: Queue, name: str) -> Iterator[Expiring]:
    key = queue.limiter if name == "limiter" else queue.stalled_check
    if key is not None:
        yield Expiring(queue=queue.name, name=name, value=key.value, ttl_ms=key.ttl_ms(world.server_ms))


def _counters(queue: Queue) -> Iterator[Counter]:
    for name, value in (("id", queue.id_counter), ("pc", queue.priority_counter)):
        if value is not None:
            yield Counter(queue=queue.name, name=name, value=str(value))


def _metrics(queue: Queue) -> Iterator[Metrics]:
    for kind, record in sorted(queue.metrics.items()):
        yield Metrics(queue=queue.name, kind=kind, fields=dict(record.fields), points=tuple(record.points))
