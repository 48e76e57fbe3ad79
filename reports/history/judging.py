"""The checks that look at one job at a time, applied to the jobs of one partition. Pure, no Spark.

The checks are those of `conformance.checkers.histories`. The others look at more than a job: `order`, `rate` and
`concurrency` at a queue, `parents` at a family, `progress`, `markers` and `orphans` at the whole run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from conformance.checkers.histories.evidence import Evidence
from conformance.checkers.histories.history import History, HistoryHeader, HistoryLine, encode, in_order
from conformance.checkers.histories.history_checks import ALL_CHECKS
from conformance.observe.tables import Snapshot

DECOMPOSABLE = (
    *("conservation", "durability", "indeterminate"),
    *("duplicate-runs", "tokens", "counters", "timing", "events"),
)
"""Names of the checks that need no more than what there is of one job, and the lines about all jobs."""

CHECKS = tuple(check for check in ALL_CHECKS if check.name in DECOMPOSABLE)

COLUMNS = ("check", "job", "message", "evidence")
DDL = "`check` string, job string, message string, evidence string"


def judge(
    header: HistoryHeader, shared: Iterable[HistoryLine], own: Iterable[HistoryLine], snapshot: Snapshot | None = None
) -> Iterator[tuple[str, str, str, str]]:
    """The findings about these jobs: check, job, message, and lines as JSON.

    All lines of each of them have to be in `own`, and in `snapshot`, where there is one, all that it has of them.
    """
    evidence = Evidence(History(header, in_order([*shared, *own])), snapshot)
    for check in CHECKS:
        for finding in check.run(evidence).findings:
            shown = b"".join(encode(line) for line in finding.lines).decode()
            yield check.name, finding.job, finding.message, shown
