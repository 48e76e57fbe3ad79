"""`diff`: compare two stores, in this process if possible, else with Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from rich.console import Console

from conformance.environment.prepare import announce
from conformance.observe.canonical import ALL_RULES, without
from conformance.pages.terminal import terminal_text
from conformance.problems import UsageProblem
from reports.diff.local_diff import compare_locally
from reports.diff.plan import compare_snapshots
from reports.diff.snapshot_comparison import SnapshotComparison
from reports.diff.summary import DiffSummary, summarise, summarise_local
from reports.options import DiffConfig
from reports.rendering import print_diff, write_diff_reports
from reports.session import settings_of, size_queries, spark_session
from reports.snapshot.folders import Folder, explained_folder, folder_at
from reports.snapshot.format import SnapshotFolder
from reports.snapshot.rows import narrowed
from reports.snapshot.spark_rows import StoredSnapshot, open_stored
from reports.store_address import store_addresses
from reports.verbs.places import place_of
from reports.verbs.store_readings import demand_content, output_folder, store_readings

_Side = TypeVar("_Side", bound=SnapshotFolder)


def compare_stores(config: DiffConfig, expected: str, actual: str) -> int:
    """Compare two stores, print the outcome, write reports; returns the exit code. Raises Problems."""
    if config.job and not config.queue:
        raise UsageProblem("--job needs --queue", hint="job ids are unique only within a queue")
    without(ALL_RULES, *config.no_rule)  # an unknown rule is reported before anything is read
    sides = store_addresses(expected, actual, queue=config.queue, replicate=config.replicate)
    for side in sides:
        side.prove()
    narrowing = {"switched_off": tuple(config.no_rule), "queue": config.queue, "job": config.job}
    out = None if config.out is None else folder_at(config.out)
    names = ("expected", "actual")
    with (
        output_folder(out) as reports,
        place_of(config) as place,
        store_readings(sides, names, reports.out, place) as kept,
    ):
        summary = None if config.wants_spark else _compared_locally(_comparison(kept, reports.out, narrowing))
        if summary is None:
            with spark_session(settings_of(config)) as session:
                stored = [open_stored(session, side.folder) for side in kept]
                summary = _compared_by_spark(session, _comparison(stored, reports.out, narrowing))
        if not summary.total:
            demand_content(config.queue, *(side.manifest for side in kept))
        written = write_diff_reports(reports.local, summary) if out is not None else ()
        print_diff(summary, Console())
        for address in reports.addresses_of(written):
            announce(address)
    return 1 if summary.total else 0


def _comparison(sides: Sequence[_Side], folder: Folder, narrowing: Mapping[str, Any]) -> SnapshotComparison[_Side]:
    return SnapshotComparison(expected=sides[0], actual=sides[1], folder=folder / "differences", **narrowing)


def _compared_locally(comparison: SnapshotComparison[SnapshotFolder]) -> DiffSummary | None:
    """The outcome if this process can compare the snapshots, else None. Raises EnvironmentProblem on a full disk."""
    with explained_folder(comparison.folder, *comparison.folders):
        compared = compare_locally(comparison)
    return None if compared is None else summarise_local(comparison, compared)


def _compared_by_spark(session: SparkSession, comparison: SnapshotComparison[StoredSnapshot]) -> DiffSummary:
    size_queries(session, sum(sum(side.manifest.rows.values()) for side in comparison.sides))
    if comparison.job:
        for side in comparison.sides:
            _print_job(side, comparison.queue, comparison.job)
    return summarise(comparison, compare_snapshots(session, comparison))


def _print_job(stored: StoredSnapshot, queue: str, job: str) -> None:
    """Print everything that one side stores of a job."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(stored.name, style="bold")
    for row in stored.rows.where((sql.col("queue") == queue) & (sql.col("id") == job)).collect():
        wide = {**row.asDict(), "fields": None if row["fields"] is None else list(row["fields"].items())}
        console.print(terminal_text(f"  {narrowed(wide)}"))
