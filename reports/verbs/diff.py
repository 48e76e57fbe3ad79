"""`diff`: compare two stores, in this process or where the options say."""

from __future__ import annotations

from rich.console import Console

from conformance.environment.prepare import announce
from conformance.observe.canonical import ALL_RULES, without
from conformance.pages.terminal import terminal_text
from conformance.problems import UsageProblem
from reports.diff.comparison import compare_snapshots
from reports.diff.queue_groups import SideRows, StoreScope
from reports.diff.representatives import NO_FACTS
from reports.diff.snapshot_comparison import SnapshotComparison
from reports.diff.summary import summarise
from reports.options import DiffConfig
from reports.progress import shown
from reports.snapshot.digests.rows import DigestedFolder
from reports.snapshot.folders import folder_at
from reports.store_address import store_addresses
from reports.store_pages import print_diff, write_diff_reports
from reports.verbs.places import place_of
from reports.verbs.store_readings import demand_both, demand_content, output_folder, store_readings


def compare_stores(config: DiffConfig, expected: str, actual: str) -> int:
    """Compare two stores, print the outcome, write reports; returns the exit code. Raises Problems."""
    if config.job and not config.queue:
        raise UsageProblem("--job needs --queue", hint="job ids are unique only within a queue")
    without(ALL_RULES, *config.no_rule)  # an unknown rule is reported before anything is read
    sides = store_addresses(expected, actual, queue=config.queue, replicate=config.replicate)
    for side in sides:
        side.prove()
    out = None if config.out is None else folder_at(config.out)
    names = ("expected", "actual")
    with (
        output_folder(out) as reports,
        place_of(config) as place,
        store_readings(sides, names, reports.out, place) as kept,
    ):
        demand_content(config.queue, *(side.manifest for side in kept))
        demand_both(*kept)
        comparison = SnapshotComparison(
            expected=kept[0],
            actual=kept[1],
            folder=reports.out / "differences",
            switched_off=tuple(config.no_rule),
            queue=config.queue,
            job=config.job,
        )
        if comparison.job:
            for snapshot, folder in zip(kept, comparison.folders, strict=True):
                _print_job(snapshot.name, folder, comparison.queue, comparison.job)
        summary = summarise(comparison, compare_snapshots(comparison, place, shown))
        written = write_diff_reports(reports.local, summary) if out is not None else ()
        print_diff(summary, Console())
        for address in reports.addresses_of(written):
            announce(address)
    return 1 if summary.total else 0


def _print_job(name: str, folder: DigestedFolder, queue: str, job: str) -> None:
    """Print everything that one side stores of a job."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(terminal_text(name), style="bold")
    side = SideRows(folder, NO_FACTS, StoreScope(queue=queue, job=job))
    for _, row in side.of_queues([queue]):
        console.print(terminal_text(f"  {row}"))
