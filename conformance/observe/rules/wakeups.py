"""The rule about wake-up markers that are left over when workers run by themselves."""

from __future__ import annotations

from dataclasses import replace

from conformance.observe.rules.base import Context, Rule
from conformance.observe.tables import Snapshot


def _no_markers(snapshot: Snapshot, _: Context) -> Snapshot:
    return replace(snapshot, markers=())


IDLE_MARKERS = Rule(
    name="idle-markers",
    reason="Where workers run by themselves, a marker may be taken before or after the last claim; that one is there "
    "when work waits is an invariant of its own.",
    transform=_no_markers,
)
