"""The findings of `watch` about one queue, as the checks of the table make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, cast, get_args

import msgspec

from conformance.checkers.live_queues import QueueLooks, WatchLimits
from conformance.checkers.queue_looks import QueueLook
from conformance.checkers.snapshot_checks import broken, checks_of
from conformance.checkers.table import DamageCause
from conformance.protocol.scripts import BULLMQ_VERSION

Kind = Literal["deaf", "no-worker", "growing", "stalls", "overdue", "schedule"]
"""Names of causes in the table, which are the values of an option."""

KINDS: tuple[Kind, ...] = get_args(Kind)

WATCH_CHECKS = checks_of("looks")

CAUSES: Mapping[str, DamageCause] = {name: cause for check in WATCH_CHECKS for name, cause in check.damages.items()}


class WatchFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something is wrong with a queue now.

    `since_ms`: since when at least, Unix ms. `number`: of the workers, jobs or schedules that `kind` is about.
    """

    kind: Kind
    queue: str
    since_ms: int
    number: int
    message: str
    examples: list[str] = []


def judge(queue: str, looks: Sequence[QueueLook], limits: WatchLimits) -> list[WatchFinding]:
    """The findings of the newest look; `looks` in the order of time, at least one."""
    view = QueueLooks(queue=queue, looks=looks, limits=limits)
    return [
        WatchFinding(
            kind=cast("Kind", check.damage_of(detail)),
            queue=queue,
            since_ms=int(detail.since_ms or 0),
            number=detail.number,
            message=detail.message,
            examples=list(detail.examples),
        )
        for check, detail in broken(view, WATCH_CHECKS, BULLMQ_VERSION)
    ]
