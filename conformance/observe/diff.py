"""The differences between two snapshots, located and classified, smallest explanation first. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from conformance.observe.canonical import canonicalise
from conformance.observe.canonical_rules import (
    GENERATED_UUIDS,
    OWN_PREFIX,
    UUID,
    CanonicalContext,
    CanonicalRule,
    ids_by_appearance,
    with_prefixes_named,
    with_uuids_named,
)
from conformance.observe.compare_jobs import JobPresence, compare_events, compare_jobs, compare_memberships, presence_of
from conformance.observe.differences import Difference, compare_fields, compare_json, difference, same, sort_key
from conformance.observe.disputes import place, undisputed
from conformance.observe.keyspace import is_reserved, split_key
from conformance.observe.relay import relay_content, relay_place
from conformance.observe.tables import Deduplication, Dependency, Snapshot


def compare(
    expected: Snapshot, actual: Snapshot, rules: Sequence[CanonicalRule], context: CanonicalContext | None = None
) -> list[Difference]:
    """The differences between two snapshots as they were read, by these canonical rules.

    Equal values are never a difference. A relative rule may mask a value on one side only, because it judges it by
    other values of that side: then the other values differ, and this one does not.
    """
    sides = _with_common_uuids(expected, actual, rules)
    canonical = [canonicalise(side, rules, context) for side in sides]
    found = diff(*canonical)
    found = confirmed(found, *as_read(*sides, rules, context)) if found else []
    return undisputed(
        found, sides, canonical, lambda *both: diff(*(canonicalise(side, rules, context) for side in both))
    )


def as_read(
    expected: Snapshot, actual: Snapshot, rules: Sequence[CanonicalRule], context: CanonicalContext | None = None
) -> tuple[Snapshot, Snapshot]:
    """Both sides with common names for the same keys, and no value masked by a relative rule."""
    kept = [rule for rule in rules if not rule.relative]
    if OWN_PREFIX in rules:
        # Both prefixes on both sides: a text that mentions one of them would else have it named on one side only.
        prefixes = (expected.prefix, actual.prefix)
        expected, actual = with_prefixes_named(expected, prefixes), with_prefixes_named(actual, prefixes)
    return canonicalise(expected, kept, context), canonicalise(actual, kept, context)


def confirmed(found: Iterable[Difference], expected: Snapshot, actual: Snapshot) -> list[Difference]:
    """Those of the differences whose values differ as read as well. `expected`, `actual`: see `as_read`."""
    places = {place(difference) for difference in diff(expected, actual)}
    return [difference for difference in found if place(difference) in places]


def _with_common_uuids(
    expected: Snapshot, actual: Snapshot, rules: Sequence[CanonicalRule]
) -> tuple[Snapshot, Snapshot]:
    """Both sides with a name for each uuid that is the id of a job on both: it is not generated twice by chance."""
    if GENERATED_UUIDS not in rules:
        return expected, actual
    ids = [{job for job in ids_by_appearance(side) if UUID.fullmatch(job)} for side in (expected, actual)]
    names = {uuid: f"<{uuid}>" for uuid in ids[0] & ids[1]}
    return with_uuids_named(expected, names), with_uuids_named(actual, names)


def diff(expected: Snapshot, actual: Snapshot) -> list[Difference]:
    """All differences, in a fixed order.

    A job that only one side has is one difference: its containers, lock, log, events and children are not mentioned
    again, nor are the markers and counters of its queue.
    """
    return sorted(_all(expected, actual), key=sort_key)


def _all(expected: Snapshot, actual: Snapshot) -> Iterator[Difference]:
    presence = presence_of(expected, actual)
    yield from compare_jobs(expected, actual, presence)
    yield from compare_memberships(expected, actual, presence)
    yield from _compare_locks(expected, actual, presence)
    yield from _compare_dependencies(expected, actual, presence)
    yield from _compare_logs(expected, actual, presence)
    yield from compare_events(expected, actual, presence)
    yield from _compare_schedulers(expected, actual)
    yield from _compare_deduplications(expected, actual, presence)
    yield from _compare_settings(expected, actual)
    yield from _compare_markers(expected, actual, presence)
    yield from _compare_counters(expected, actual, presence)
    yield from _compare_expiring(expected, actual)
    yield from _compare_metrics(expected, actual)
    yield from _compare_foreign(expected, actual)
    yield from _compare_relays(expected, actual)
    yield from _compare_expiries(expected, actual)


Row = TypeVar("Row")
_MARKERS = {"0": "marker.base", "1": "marker.delay"}


def _compare_locks(expected: Snapshot, actual: Snapshot, presence: JobPresence) -> Iterator[Difference]:
    """Presence, token and lifetime of locks.

    A job that is active on one side only is in the wrong place: that it is locked there and not here is not mentioned
    again.
    """
    left_active, right_active = _active(expected), _active(actual)
    for key, left, right in _joined(expected.locks, actual.locks, lambda row: (row.queue, row.job)):
        if presence.explains(*key):
            continue
        name = ":".join(key)
        if left is None or right is None:
            # The lock follows the job's state, which is reported already.
            if (left is not None, right is not None) == (key in left_active, key in right_active):
                continue
            kind, where = ("missing-lock", "lock") if right is None else ("extra-lock", "lock.left")
            yield difference(kind, where, name, left and left.token, right and right.token)
            continue
        yield from _value("wrong-value", "lock.token", name, left.token, right.token)
        yield from _value("ttl", "lock.ttl", name, left.ttl_ms, right.ttl_ms)


def _active(snapshot: Snapshot) -> set[tuple[str, str]]:
    return {(row.queue, row.job) for row in snapshot.memberships if row.container == "active"}


def _compare_dependencies(expected: Snapshot, actual: Snapshot, presence: JobPresence) -> Iterator[Difference]:
    """The children in each key of their parent, with their values."""
    rows = _joined(expected.dependencies, actual.dependencies, lambda row: (row.queue, row.parent, row.kind, row.child))
    for (queue, parent, kind, child), left, right in rows:
        if presence.explains(queue, parent):
            continue
        where, name = f"dependency.{kind}", f"{queue}:{parent}"
        if left is None or right is None:
            found = "missing-member" if right is None else "extra-member"
            yield difference(found, where, name, left and child, right and child)
            continue
        yield from _result_of_child(where, name, child, left, right)
        yield from _value("wrong-value", f"{where}.score", name, left.score, right.score, field=child)


def _result_of_child(where: str, name: str, child: str, left: Dependency, right: Dependency) -> Iterator[Difference]:
    """The value of a child that has completed is JSON, that of a failed one is a text."""
    if left.kind == "processed" and left.value and right.value and not same(left.value, right.value):
        yield from compare_json(where, name, child, left.value, right.value)
    else:
        yield from _value("wrong-value", where, name, left.value, right.value, field=child)


def _compare_logs(expected: Snapshot, actual: Snapshot, presence: JobPresence) -> Iterator[Difference]:
    """The log of a job as a whole."""
    left, right = _logs(expected), _logs(actual)
    for queue, job in sorted(left.keys() | right.keys()):
        expected_rows, actual_rows = left.get((queue, job)), right.get((queue, job))
        if expected_rows != actual_rows and not presence.explains(queue, job):
            kind = "missing-key" if actual_rows is None else "extra-key" if expected_rows is None else "wrong-value"
            yield difference(kind, "log", f"{queue}:{job}", expected_rows, actual_rows)


def _logs(snapshot: Snapshot) -> dict[tuple[str, str], list[str]]:
    rows: dict[tuple[str, str], list[str]] = {}
    for row in sorted(snapshot.logs, key=lambda row: row.position):
        rows.setdefault((row.queue, row.job), []).append(row.text)
    return rows


def _compare_schedulers(expected: Snapshot, actual: Snapshot) -> Iterator[Difference]:
    """Next times and records of job schedulers."""
    for key, left, right in _joined(expected.schedulers, actual.schedulers, lambda row: (row.queue, row.id)):
        name = f"{key[0]}:repeat:{key[1]}"
        if left is None or right is None:
            yield _key_difference("scheduler", name, left, right)
            continue
        yield from _value("wrong-value", "scheduler.next", name, left.next, right.next)
        if left.fields is None or right.fields is None:
            if left.fields is not right.fields:
                yield _key_difference("scheduler.record", name, left.fields, right.fields)
            continue
        yield from compare_fields("scheduler", name, left.fields, right.fields)


def _compare_deduplications(expected: Snapshot, actual: Snapshot, presence: JobPresence) -> Iterator[Difference]:
    """Owner and lifetime of deduplication keys, and jobs kept back. Only a missing owner explains a missing key."""
    for key, left, right in _joined(
        expected.deduplications, actual.deduplications, lambda row: (row.queue, "dn" if row.next else "de", row.id)
    ):
        is_kept, name = key[1] == "dn", ":".join(key)
        if left is None or right is None:
            row = left or right
            if row is not None and not presence.explains(row.queue, row.job):
                yield _key_difference("dedup.next" if is_kept else "dedup", name, _held(left), _held(right))
            continue
        if left.next is not None and right.next is not None:
            yield from compare_fields("dedup.next", name, left.next, right.next)
        yield from _value("wrong-value", "dedup.job", name, left.job, right.job)
        yield from _value("ttl", "dedup.ttl", name, left.ttl_ms, right.ttl_ms)


def _held(row: Deduplication | None) -> Any:
    """The owner that a key names, or the job that it keeps back."""
    return row and (row.job if row.next is None else row.next)


def _compare_settings(expected: Snapshot, actual: Snapshot) -> Iterator[Difference]:
    """The `meta` hashes."""
    for (queue,), left, right in _joined(expected.metas, actual.metas, lambda row: (row.queue,)):
        if left is None or right is None:
            yield _key_difference("meta", f"{queue}:meta", left and dict(left.fields), right and dict(right.fields))
        else:
            yield from compare_fields("meta", f"{queue}:meta", left.fields, right.fields)


def _compare_markers(expected: Snapshot, actual: Snapshot, presence: JobPresence) -> Iterator[Difference]:
    """Wake-up tokens, where no missing or extra job explains them."""
    for (queue, member), left, right in _joined(expected.markers, actual.markers, lambda row: (row.queue, row.member)):
        where = _MARKERS.get(member, "marker.other")
        if presence.touches(queue):
            continue
        if left is None or right is None:
            yield _key_difference(where, f"{queue}:marker", left and left.score, right and right.score, field=member)
        else:
            yield from _value("wrong-value", where, f"{queue}:marker", left.score, right.score, field=member)


def _compare_counters(expected: Snapshot, actual: Snapshot, presence: JobPresence) -> Iterator[Difference]:
    """The counters `id` and `pc`, where no missing or extra job explains them."""
    for (queue, name), left, right in _joined(expected.counters, actual.counters, lambda row: (row.queue, row.name)):
        if presence.touches(queue):
            continue
        where, key = f"counter.{name}", f"{queue}:{name}"
        if left is None or right is None:
            yield _key_difference(where, key, left and left.value, right and right.value)
        else:
            yield from _value("wrong-value", where, key, left.value, right.value)


def _compare_expiring(expected: Snapshot, actual: Snapshot) -> Iterator[Difference]:
    """The rate limiter and the throttle of the stalled check."""
    old, new = ((*side.limiters, *side.stalled_checks) for side in (expected, actual))
    for (queue, name), left, right in _joined(old, new, lambda row: (row.queue, row.name)):
        key = f"{queue}:{name}"
        if left is None or right is None:
            yield _key_difference(name, key, left and left.value, right and right.value)
            continue
        yield from _value("wrong-value", name, key, left.value, right.value)
        yield from _value("ttl", f"{name}.ttl", key, left.ttl_ms, right.ttl_ms)


def _compare_metrics(expected: Snapshot, actual: Snapshot) -> Iterator[Difference]:
    """Counts and points of the metrics."""
    for (queue, kind), left, right in _joined(expected.metrics, actual.metrics, lambda row: (row.queue, row.kind)):
        where, key = f"metrics.{kind}", f"{queue}:metrics:{kind}"
        if left is None or right is None:
            yield _key_difference(where, key, left and dict(left.fields), right and dict(right.fields))
            continue
        yield from compare_fields(where, key, left.fields, right.fields)
        if left.points != right.points:
            yield difference("wrong-value", f"{where}.data", key, list(left.points), list(right.points))


def _compare_foreign(expected: Snapshot, actual: Snapshot) -> Iterator[Difference]:
    """Keys without meaning in BullMQ, known names of a foreign type, and expiry where nothing may expire."""
    foreign, other = (
        [row for row in side.unknown if relay_place(side.prefix, row.key) is None] for side in (expected, actual)
    )
    for (key,), left, right in _joined(foreign, other, lambda row: (row.key,)):
        row = left or right
        where = f"unknown.{row.type}" if row is not None else "unknown"
        short = ":".join(split_key(actual.prefix, key)) if split_key(actual.prefix, key)[1] else key
        if left is None or right is None:
            if right is not None and is_reserved(split_key(actual.prefix, key)[1]):
                yield difference("wrong-type", where, short, None, f"{right.type} {right.value!r}")
            else:
                yield _key_difference(where, short, left and left.value, right and right.value)
        elif (left.type, left.value) != (right.type, right.value):
            yield difference("wrong-value", where, short, [left.type, left.value], [right.type, right.value])
        else:
            yield from _value("ttl", where, short, left.ttl_ms, right.ttl_ms)


def _compare_relays(expected: Snapshot, actual: Snapshot) -> Iterator[Difference]:
    """The state that all processes of a relay share."""
    left, right = (
        {(part, key): value for part, key, value in relay_content(side.prefix, side.unknown)}
        for side in (expected, actual)
    )
    for part, key in sorted(left.keys() | right.keys()):
        before, after = left.get((part, key)), right.get((part, key))
        where = f"unknown.relay.{part}"
        if before is None or after is None:
            yield _key_difference(where, key, before, after)
        else:
            yield from _value("wrong-value", where, key, before, after)


def _compare_expiries(expected: Snapshot, actual: Snapshot) -> Iterator[Difference]:
    """Keys that expire although they must not."""
    for (key, kind), left, right in _joined(expected.expiries, actual.expiries, lambda row: (row.key, row.kind)):
        yield from _value("ttl", f"expiry.{kind}", key, left and left.ttl_ms, right and right.ttl_ms)


def _joined(
    expected: Iterable[Row], actual: Iterable[Row], key: Callable[[Row], tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], Row | None, Row | None]]:
    """The rows of both sides side by side, by key, in the order of the keys."""
    left: Mapping[tuple[str, ...], Row] = {key(row): row for row in expected}
    right: Mapping[tuple[str, ...], Row] = {key(row): row for row in actual}
    for name in sorted(left.keys() | right.keys()):
        yield name, left.get(name), right.get(name)


def _key_difference(where: str, key: str, expected: Any, actual: Any, *, field: str = "") -> Difference:
    kind = "missing-key" if actual is None else "extra-key"
    return difference(kind, where, key, expected, actual, field=field)


def _value(kind: str, where: str, key: str, expected: Any, actual: Any, *, field: str = "") -> Iterator[Difference]:
    if not same(expected, actual):
        yield difference(kind, where, key, expected, actual, field=field)
