"""The options of `watch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from conformance.checkers.live_queues import WatchLimits
from conformance.options import DurationMs, Option
from conformance.problems import UsageProblem
from reports.watch.judgement import Kind
from reports.watch.reader import ReadingLimits

SHORTEST_INTERVAL_MS = 100


class WatchConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All options of `watch`. `length_ms` None: until it is interrupted."""

    queue: Annotated[str, Option("Only this queue; default: all.")] = ""
    interval_ms: Annotated[DurationMs, Option("Time between two looks.", "--interval", positive=True)] = DurationMs(
        5_000
    )
    length_ms: Annotated[DurationMs | None, Option("End after this time.", "--for", positive=True)] = None
    fail_on: Annotated[
        Sequence[Kind], Option("End with exit code 1 at the first finding of this kind; repeatable.")
    ] = ()
    deaf_ms: Annotated[
        DurationMs,
        Option("Workers are deaf if jobs wait and none is taken for this time.", "--deaf-after", positive=True),
    ] = DurationMs(20_000)
    growth_ms: Annotated[
        DurationMs, Option("A backlog that grows for this time is a finding.", "--growing-for", positive=True)
    ] = DurationMs(60_000)
    growth_jobs: Annotated[int, Option("Jobs by which it grows at least.", "--growing-by", at_least=1)] = 100
    stalls: Annotated[int, Option("Stalled jobs in a minute that are a finding.", at_least=1)] = 1
    overdue_ms: Annotated[
        DurationMs, Option("Delayed jobs are overdue this long after their time.", "--overdue-after")
    ] = DurationMs(15_000)
    settle_ms: Annotated[
        DurationMs, Option("A schedule has ended if it has no next iteration for this time.", "--settle")
    ] = DurationMs(10_000)
    prometheus: Annotated[
        str, Option("Metrics for Prometheus: a port of 127.0.0.1, HOST:PORT, or a file.", metavar="PORT|FILE")
    ] = ""
    json: Annotated[bool, Option("Print one JSON object for each look.")] = False

    def check(self) -> None:
        """Raise UsageProblem for options that contradict each other."""
        if self.interval_ms < SHORTEST_INTERVAL_MS:
            raise UsageProblem(
                f"--interval is {self.interval_ms:.0f} ms, which loads Redis for nothing",
                hint=f"use {SHORTEST_INTERVAL_MS}ms or more; the default is 5s",
            )
        if self.interval_ms * 2 > self.deaf_ms:
            raise UsageProblem(
                "--deaf-after is shorter than two looks", hint="use a longer --deaf-after, or a shorter --interval"
            )

    @property
    def limits(self) -> WatchLimits:
        """The limits of findings."""
        return WatchLimits(
            deaf_ms=int(self.deaf_ms),
            growth_ms=int(self.growth_ms),
            growth_jobs=self.growth_jobs,
            stalls=self.stalls,
            settle_ms=int(self.settle_ms),
        )

    @property
    def reading(self) -> ReadingLimits:
        """The limits that the reader needs."""
        return ReadingLimits(overdue_ms=int(self.overdue_ms), settle_ms=int(self.settle_ms))
