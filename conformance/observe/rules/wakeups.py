"""The rule about what running workers leave behind by the moment at which they were stopped."""

from __future__ import annotations

from dataclasses import replace

from conformance.observe.rules.base import Context, Rule
from conformance.observe.tables import Snapshot


def _no_traces(snapshot: Snapshot, _: Context) -> Snapshot:
    return replace(snapshot, markers=(), stalled_checks=())


WORKER_TRACES = Rule(
    name="worker-traces",
    reason="Where workers run by themselves, a marker may be taken before or after the last claim, and the throttle of "
    "the stalled check comes and goes; that the marker is there when work waits is an invariant of its own.",
    transform=_no_traces,
)
