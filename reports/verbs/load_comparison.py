"""`report compare`: compare loads with each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from conformance.environment.prepare import announce
from reports.comparison import Grouping, compare_runs
from reports.rendering import print_comparison, write_comparison_reports
from reports.report_folder import make_folder


def compare_loads(runs: Sequence[Path], by: Grouping, tolerance: float, out: Path | None) -> int:
    """Compare loads, print the outcome, write reports; returns the exit code. Raises Problems."""
    comparison = compare_runs(runs, by=by, tolerance=tolerance)
    print_comparison(comparison, Console())
    if out is not None:
        make_folder(out)
        for path in write_comparison_reports(out, comparison):
            announce(str(path))
    return 1 if comparison.worse else 4 if comparison.undecided else 0
