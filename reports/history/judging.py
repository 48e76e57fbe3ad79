"""The checks that look at one job at a time, applied to the jobs of one partition. Pure, no Spark.

The checks are those of `conformance.checkers.histories`. The others (order, rates, progress, what is left in the end)
look at a queue or at the whole run, and stay with `check_history`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from conformance.checkers.histories import running, timing, transitions
from conformance.checkers.histories.evidence import Evidence
from conformance.checkers.histories.history import History, encode, in_order
from conformance.checkers.histories.lines import Header, Line

DECOMPOSABLE = ("duplicate-runs", "tokens", "timing", "events")
"""Names of the checks that need no more than the lines of one job, and those about all jobs."""

CHECKS = tuple(check for check in (*running.CHECKS, *timing.CHECKS, *transitions.CHECKS) if check.name in DECOMPOSABLE)

COLUMNS = ("check", "job", "message", "evidence")
DDL = "`check` string, job string, message string, evidence string"


def judge(header: Header, shared: Iterable[Line], own: Iterable[Line]) -> Iterator[tuple[str, str, str, str]]:
    """The findings about these jobs; all lines of each of them have to be in `own`. `evidence`: lines as JSON."""
    evidence = Evidence(History(header, in_order([*shared, *own])))
    for check in CHECKS:
        for finding in check.run(evidence).findings:
            shown = b"".join(encode(line) for line in finding.lines).decode()
            yield check.name, finding.job, finding.message, shown
