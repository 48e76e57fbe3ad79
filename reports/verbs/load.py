"""`load`: run one load, or search for the highest rate that keeps a threshold."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from conformance.environment.prepare import announce, prepare
from reports.load.rate_search import RateTrial, search_rate, search_sentence, trial_of
from reports.load.result import LoadResult
from reports.load.run import OnProgress, run_load
from reports.load.target import LoadTarget, remove_load
from reports.load.thresholds import JudgedThreshold, Threshold, judge_threshold, parse_threshold, threshold_sentence
from reports.load.workload import Workload
from reports.options import LoadConfig
from reports.rendering import write_load_reports, write_search_reports
from reports.report_folder import ReportFolder, report_folder
from reports.session import settings_of, spark_session
from reports.snapshot.folders import folder_at
from reports.verbs.load_plan import PlannedLoad, check_resume, planned_load, workload_of

FIRST_RATE = 200.0
"""Jobs per second at which a search starts if the workload has no rate."""


def load_queues(config: LoadConfig) -> int:
    """Load queues, keep the final state, and write the reports; returns the exit code. Raises Problems."""
    thresholds = [parse_threshold(text) for text in (*config.thresholds, *filter(None, [config.find_rate]))]
    workload = workload_of(config)
    check_resume(config)
    settings = settings_of(config)
    with prepare(config.environment) as environment:
        planned = planned_load(config, workload, environment)
        _announce_target(planned.target)
        # Producers wait for each other, so each needs a Spark task of its own at the same time.
        settings = settings.with_threads(planned.target.partitions)
        settings.require_slots(planned.target.partitions)
        # The folder is made only after all names have been checked: a mistake leaves none behind.
        with (
            report_folder(folder_at(config.out)) as reports,
            spark_session(settings) as session,
        ):
            if config.find_rate:
                return _find_rate(session, planned, thresholds, reports, trial_s=config.trial_ms / 1000)
            result = _one_load(session, planned, reports)
    return _exit_code([judge_threshold(threshold, result) for threshold in thresholds])


def _announce_target(target: LoadTarget) -> None:
    queues = ", ".join(target.workload.queue_names[:3])
    announce(f"queues {queues} under prefix {target.prefix} on {target.address.text}")


def _one_load(session: SparkSession, planned: PlannedLoad, reports: ReportFolder) -> LoadResult:
    """Run a load and write its reports."""
    with _progress(planned.target.workload) as on_progress:
        result = run_load(session, planned.into(reports), announce=announce, on_progress=on_progress)
    for action, phase in (("added", result.produced), ("finished", result.finished)):
        announce(f"{action} {phase.jobs} jobs in {phase.seconds:.1f} s ({phase.per_second:.0f} jobs/s)")
    if result.spoilt_by_harness:
        announce(f"warning: {result.spoilt_by_harness}")
    for address in reports.addresses_of(write_load_reports(reports.local, result)):
        announce(address)
    return result


def _exit_code(judged: Sequence[JudgedThreshold]) -> int:
    """Print the outcome of each threshold. 1: one is missed; 4: one cannot be decided."""
    for threshold in judged:
        announce(threshold_sentence(threshold))
    outcomes = {threshold.outcome for threshold in judged}
    return 1 if "failed" in outcomes else 4 if "undecided" in outcomes else 0


def _find_rate(
    session: SparkSession,
    planned: PlannedLoad,
    thresholds: Sequence[Threshold],
    reports: ReportFolder,
    *,
    trial_s: float,
) -> int:
    """Run one load after the other, each at another rate; returns 1 if no rate keeps the thresholds."""

    def try_rate(rate: float) -> RateTrial:
        run = f"rate-{rate:.0f}"
        load = planned.at_rate(rate, run, seconds=trial_s)
        result = _one_load(session, load, reports.below(run))
        # A search runs up to MOST_TRIALS loads: without this Redis would have to hold the jobs of all of them.
        remove_load(load.target)
        trial = trial_of(rate, run, result, [judge_threshold(threshold, result) for threshold in thresholds])
        announce(f"{trial.outcome} at {trial.rate:.0f} jobs/s offered, {trial.achieved:.0f} achieved")
        return trial

    search = search_rate(try_rate, planned.target.workload.rate or FIRST_RATE)
    announce(search_sentence(search))
    written = write_search_reports(reports.local, search, planned.label, planned.command)
    for address in reports.addresses_of(written):
        announce(address)
    return 0 if search.kept else 1


@contextmanager
def _progress(workload: Workload) -> Iterator[OnProgress]:
    """A bar of finished jobs, shown only if stderr is a terminal."""
    columns = (TextColumn("finished"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("finished", total=workload.jobs)

        def advance(counts: Mapping[str, int]) -> None:
            progress.update(bar, completed=counts.get("completed", 0) + counts.get("failed", 0))

        yield advance
