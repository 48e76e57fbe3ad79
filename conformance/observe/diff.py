"""The differences between two snapshots, located and classified, smallest explanation first. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.observe.compare.events import compare_events
from conformance.observe.compare.jobs import compare_jobs, compare_memberships, presence_of
from conformance.observe.compare.rest import (
    compare_counters,
    compare_deduplications,
    compare_dependencies,
    compare_expiries,
    compare_expiring,
    compare_foreign,
    compare_locks,
    compare_logs,
    compare_markers,
    compare_metrics,
    compare_schedulers,
    compare_settings,
)
from conformance.observe.differences import Difference, sort_key
from conformance.observe.tables import Snapshot


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
    yield from compare_locks(expected, actual, presence)
    yield from compare_dependencies(expected, actual, presence)
    yield from compare_logs(expected, actual, presence)
    yield from compare_events(expected, actual, presence)
    yield from compare_schedulers(expected, actual)
    yield from compare_deduplications(expected, actual, presence)
    yield from compare_settings(expected, actual)
    yield from compare_markers(expected, actual, presence)
    yield from compare_counters(expected, actual, presence)
    yield from compare_expiring(expected, actual)
    yield from compare_metrics(expected, actual)
    yield from compare_foreign(expected, actual)
    yield from compare_expiries(expected, actual)
