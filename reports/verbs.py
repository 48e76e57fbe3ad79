"""The verbs `load`, `snapshot`, `diff` and `history`: from options to Spark, and from Spark to what the user sees."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from conformance.environment.clients import Launch
from conformance.environment.prepare import Environment, EnvironmentOptions, announce, client_under_test, prepare
from conformance.observe.canonical import ALL_RULES, without
from conformance.problems import UsageProblem
from reports.comparison import Grouping, compare_runs
from reports.diff.asked import SnapshotComparison
from reports.diff.checking import broken_in
from reports.diff.nearby import compare_nearby
from reports.diff.plan import compare_snapshots
from reports.diff.summary import DiffSummary, summarise, summarise_checks, summarise_nearby
from reports.history import check_jobs, header_of, result_of
from reports.load.rate_search import RateTrial, said_of_search, search_rate, trial_of
from reports.load.result import LoadResult
from reports.load.run import SNAPSHOT, LoadPlan, OnProgress, WorkerGroup, run_load
from reports.load.target import KEEP_ALL_EVENTS, LoadTarget, remove_load
from reports.load.thresholds import Judged, Threshold, judge_threshold, parse_threshold, said_of
from reports.load.workload import Workload, checked_workload, read_workload
from reports.named_stores import NamedStore, begin_reading, named_stores, replicated
from reports.rendering import (
    print_checks,
    print_comparison,
    print_diff,
    print_history,
    write_check_reports,
    write_comparison_reports,
    write_diff_reports,
    write_history_reports,
    write_load_reports,
    write_search_reports,
)
from reports.report_folder import ReportFolder, make_folder, passing_folder, report_folder
from reports.session import SparkSettings, size_queries, spark_session
from reports.snapshot.folders import Folder, explained_folder, prove_room
from reports.snapshot.format import KeptSnapshot, SnapshotManifest, open_kept, read_manifest
from reports.snapshot.plan import RedisSource
from reports.snapshot.rdb.saving import RdbSource, save_rdb
from reports.snapshot.rows import narrowed
from reports.snapshot.store import StoredSnapshot, open_stored, save

_Kept = TypeVar("_Kept", bound=KeptSnapshot)

_WORKER_GROUP = re.compile(r"(?P<client>.+?)(?::(?P<processes>\d+))?")


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """What the user wrote. `changes`: fields of the workload given as options.

    `packages`: versions of what the clients stand on, of all that are not the reference. `driver`: the command of a
    client's driver; `producer` empty: that driver, else the reference. `find_rate`: the threshold whose highest rate is
    looked for, in loads of `trial_s`; empty: there is one load.
    """

    workload: Path | None
    changes: Mapping[str, Any]
    producer: str
    workers: tuple[str, ...]
    packages: tuple[str, ...]
    concurrency: int
    partitions: int
    redis: str
    prefix: str
    events: int | None
    resume: bool
    out: Folder
    command: str
    thresholds: tuple[str, ...] = ()
    find_rate: str = ""
    trial_s: float = 10.0
    driver: tuple[str, ...] = ()


FIRST_RATE = 200.0
"""Jobs per second with which a search begins where the workload has no rate."""


def load_queues(options: LoadOptions, spark: Mapping[str, Any]) -> int:
    """Load queues, keep the final state, and write the reports; returns the exit code. Raises Problems."""
    thresholds = [parse_threshold(text) for text in (*options.thresholds, *filter(None, [options.find_rate]))]
    workload = workload_of(options)
    if options.find_rate and options.resume:
        raise UsageProblem("--find-rate cannot be resumed", hint="begin the search anew")
    if options.resume and not (options.prefix and options.redis):
        raise UsageProblem("--resume needs --redis and --prefix", hint="give those of the load that broke off")
    driver = client_under_test("", options.driver) if options.driver else ""
    wanted = EnvironmentOptions(redis=options.redis, client=driver, command=options.driver)
    with prepare(wanted) as environment:
        server = environment.server
        launch = launcher(environment, options.packages)
        names = options.workers or ((driver,) if driver else ())
        workers = [worker_group(text, options.concurrency, launch) for text in names]
        producer_name = options.producer or driver or "reference"
        producer = None if producer_name == "reference" else launch(producer_name)
        if options.packages and not producer and all(group.client.name == "reference" for group in workers):
            raise UsageProblem("--with is for clients other than the reference", hint="--worker python-official")
        prefix = options.prefix or server.fresh_prefix().strip("{}")
        if server.mode == "cluster" and "{" not in prefix:
            workload = msgspec.structs.replace(workload, tagged=True)
        announce(f"queues {', '.join(workload.queue_names[:3])} under prefix {prefix} on {server.text}")
        target = LoadTarget(
            address=server,
            prefix=prefix,
            workload=workload,
            producer=producer,
            event_limit=options.events or KEEP_ALL_EVENTS,
            partitions=min(options.partitions, workload.jobs),
            resume=options.resume,
        )
        settings = settings_of(spark).with_threads(target.partitions)
        # After the names are known to be right: a mistake leaves no folder behind.
        with report_folder(options.out) as reports, spark_session(settings) as session:
            planned = _PlannedLoad(target, workers, options.command)
            if options.find_rate:
                return _find_rate(session, planned, thresholds, options, reports)
            result = _one_load(session, planned, reports)
    return _exit_code([judge_threshold(threshold, result) for threshold in thresholds])


@dataclass(frozen=True)
class _PlannedLoad:
    """What to do, wherever its results go."""

    target: LoadTarget
    workers: Sequence[WorkerGroup]
    command: str

    def into(self, reports: ReportFolder) -> LoadPlan:
        """The same with a folder."""
        return LoadPlan(
            target=self.target,
            workers=self.workers,
            out=reports.local,
            kept=reports.out / SNAPSHOT,
            command=self.command,
        )


def _one_load(session: SparkSession, planned: _PlannedLoad, reports: ReportFolder) -> LoadResult:
    """Carry out a load and write its reports."""
    plan = planned.into(reports)
    with _progress(plan.target.workload) as on_progress:
        result = run_load(session, plan, announce=announce, on_progress=on_progress)
    _say_what_came_of(result)
    for address in reports.addresses_of(write_load_reports(reports.local, result)):
        announce(address)
    return result


def _exit_code(judged: Sequence[Judged]) -> int:
    """Say what became of each threshold. 1: one is missed; 4: one cannot be decided."""
    for each in judged:
        announce(said_of(each))
    outcomes = {each.outcome for each in judged}
    return 1 if "failed" in outcomes else 4 if "undecided" in outcomes else 0


def _find_rate(
    session: SparkSession,
    planned: _PlannedLoad,
    thresholds: Sequence[Threshold],
    options: LoadOptions,
    reports: ReportFolder,
) -> int:
    """Load at one rate after the other, each on queues of its own; returns 1 where no rate keeps the thresholds."""

    def try_rate(rate: float) -> RateTrial:
        run = f"rate-{rate:.0f}"
        target, workload = planned.target, planned.target.workload
        jobs = max(1, round(rate * options.trial_s))
        tried = replace(
            target,
            prefix=f"{target.prefix}-{run}",
            workload=msgspec.structs.replace(workload, rate=rate, jobs=jobs),
            partitions=min(target.partitions, jobs),
        )
        result = _one_load(session, replace(planned, target=tried), reports.below(run))
        remove_load(tried)
        trial = trial_of(rate, run, result, [judge_threshold(threshold, result) for threshold in thresholds])
        announce(f"{trial.outcome} at {trial.rate:.0f} jobs/s offered, {trial.achieved:.0f} achieved")
        return trial

    search = search_rate(try_rate, planned.target.workload.rate or FIRST_RATE)
    workers = ", ".join(group.client.name for group in planned.workers) or "nobody"
    label = f"{planned.target.producer.name if planned.target.producer else 'reference'} → {workers}"
    announce(said_of_search(search))
    for address in reports.addresses_of(write_search_reports(reports.local, search, label, options.command)):
        announce(address)
    return 0 if search.kept else 1


def compare_loads(runs: Sequence[Path], by: Grouping, tolerance: float, out: Path | None) -> int:
    """Compare loads, print the outcome, write reports; returns the exit code. Raises Problems."""
    comparison = compare_runs(runs, by=by, tolerance=tolerance)
    print_comparison(comparison, Console())
    if out is not None:
        make_folder(out)
        for path in write_comparison_reports(out, comparison):
            announce(str(path))
    return 1 if comparison.worse else 4 if comparison.undecided else 0


def _say_what_came_of(result: LoadResult) -> None:
    for did, phase in (("added", result.produced), ("finished", result.finished)):
        announce(f"{did} {phase.jobs} jobs in {phase.seconds:.1f} s ({phase.per_second:.0f} jobs/s)")
    if result.spoilt_by_harness:
        announce(f"warning: {result.spoilt_by_harness}")


def workload_of(options: LoadOptions) -> Workload:
    """The description, with the options in place of its own numbers. Raises UsageProblem."""
    described = read_workload(options.workload) if options.workload else Workload()
    return checked_workload(msgspec.structs.replace(described, **options.changes))


def launcher(environment: Environment, packages: Sequence[str]) -> Callable[[str], Launch]:
    """How a client is started by its name: the reference, which stands on nothing to choose, or one on these."""

    def launch(client: str) -> Launch:
        if client == environment.client.name and environment.client.command:
            return environment.client
        return environment.launch(client, () if client == "reference" else packages)

    return launch


def worker_group(text: str, concurrency: int, launch: Callable[[str], Launch]) -> WorkerGroup:
    """`node:2` as two processes of Node; `launch` knows how a client is started. Raises UsageProblem."""
    found = _WORKER_GROUP.fullmatch(text)
    if found is None or found["processes"] == "0":
        raise UsageProblem(f"--worker {text!r} is not understood", hint="as in --worker node or --worker reference:2")
    client = launch(found["client"])
    return WorkerGroup(client=client, processes=int(found["processes"] or 1), concurrency=concurrency)


def settings_of(spark: Mapping[str, Any], rows: int | None = None) -> SparkSettings:
    """Options about Spark as a value; `rows` as there."""
    return SparkSettings(master=spark["master"], memory=spark["memory"], properties=dict(spark["conf"]), rows=rows)


@contextmanager
def _progress(workload: Workload) -> Iterator[OnProgress]:
    """A bar of finished jobs; only where somebody looks."""
    columns = (TextColumn("finished"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("finished", total=workload.jobs)

        def advance(counts: Mapping[str, int]) -> None:
            progress.update(bar, completed=counts.get("completed", 0) + counts.get("failed", 0))

        yield advance


def take_snapshot(source: RedisSource, out: Folder, *, spark: Mapping[str, Any]) -> SnapshotManifest:
    """Read a store and keep it. Raises Problems."""
    source.address  # noqa: B018 - complain before Spark is started
    prove_room(out)
    with spark_session(settings_of(spark)) as session:
        return save(session, source, out, announce=announce).manifest


def take_snapshot_by_replication(source: RedisSource, out: Folder) -> SnapshotManifest:
    """Have a store hand out its RDB files, and keep what stands in them. Raises Problems."""
    source.address  # noqa: B018 - complain about it first
    prove_room(out)
    with tempfile.TemporaryDirectory(prefix="bullmq-conformance-") as folder:
        return save_rdb(replicated(source, Path(folder)), out)


def snapshot_of_files(source: RdbSource, out: Folder) -> SnapshotManifest:
    """Keep what stands in RDB files. Raises Problems."""
    prove_room(out)
    return save_rdb(source, out)


def compare_stores(
    expected: str,
    actual: str,
    out: Folder | None,
    *,
    queue: str,
    job: str,
    replicate: bool,
    switched_off: Sequence[str],
    spark: Mapping[str, Any],
) -> int:
    """Compare two stores, print the outcome, write reports; returns the exit code. Raises Problems."""
    if job and not queue:
        raise UsageProblem("--job needs --queue", hint="a job id means something only within its queue")
    without(ALL_RULES, *switched_off)
    sides = named_stores(expected, actual, queue=queue, replicate=replicate)
    settings = settings_of(spark, rows=sum(side.rows_about() for side in sides))
    asked = {"switched_off": tuple(switched_off), "queue": queue, "job": job}
    with _folder(out) as reports, _readings(sides, ("expected", "actual"), reports.out) as readings:
        folder, summary = reports.out, None
        if settings.is_here and not any(side.needs_spark for side in sides):
            kept = [open_kept(reading.kept()) for reading in readings]
            summary = _compared_nearby(_comparison(kept, folder, asked))
        if summary is None:
            with spark_session(settings) as session:
                wanted = _comparison([reading.stored(session) for reading in readings], folder, asked)
                summary = _compared_nearby(wanted) if settings.is_here else None
                summary = summary or _compared(session, wanted)
        print_diff(summary, Console())
        if out is not None:
            for address in reports.addresses_of(write_diff_reports(reports.local, summary)):
                announce(address)
    return 1 if summary.total else 0


def check_store(snapshot: str, out: Folder | None, *, queue: str, spark: Mapping[str, Any]) -> int:
    """Check one store by itself, print the outcome, write reports; returns the exit code. Raises Problems."""
    stores = named_stores(snapshot, queue=queue)
    settings = settings_of(spark, rows=stores[0].rows_about())
    with _folder(out) as reports:
        with _readings(stores, ("snapshot",), reports.out) as readings, spark_session(settings) as session:
            stored = readings[0].stored(session)
            found = broken_in(session, stored)
            summary = summarise_checks(stored, found.where(sql.col("queue") == queue) if queue else found)
        print_checks(summary, Console())
        written = write_check_reports(reports.local, summary) if out is not None else ()
        for address in reports.addresses_of(written):
            announce(address)
    return 1 if summary.total else 0


def check_recorded(history: Path, snapshot: Folder | None, out: Folder | None, *, spark: Mapping[str, Any]) -> int:
    """Check a history job by job, print the outcome, write reports; returns the exit code. Raises Problems."""
    header_of(history)
    if snapshot is not None:
        read_manifest(snapshot)
    with _folder(out) as reports:
        with spark_session(settings_of(spark)) as session:
            stored = None if snapshot is None else open_stored(session, snapshot)
            result = result_of(check_jobs(session, history, stored), str(history), str(snapshot or ""))
        print_history(result, Console())
        written = write_history_reports(reports.local, result) if out is not None else ()
        for address in reports.addresses_of(written):
            announce(address)
    return 1 if result.total else 0


def _comparison(sides: Sequence[_Kept], folder: Folder, asked: Mapping[str, Any]) -> SnapshotComparison[_Kept]:
    return SnapshotComparison(expected=sides[0], actual=sides[1], folder=folder / "differences", **asked)


def _compared_nearby(wanted: SnapshotComparison[KeptSnapshot]) -> DiffSummary | None:
    """The outcome where Spark is not needed for it, None where it is. Raises EnvironmentProblem on a full disk."""
    with explained_folder(wanted.folder, *wanted.folders):
        compared = compare_nearby(wanted)
    return None if compared is None else summarise_nearby(wanted, compared)


def _compared(session: SparkSession, wanted: SnapshotComparison[StoredSnapshot]) -> DiffSummary:
    sides = (wanted.expected, wanted.actual)
    size_queries(session, sum(sum(side.manifest.rows.values()) for side in sides))
    if wanted.job:
        for side in sides:
            _show_job(side, wanted.queue, wanted.job)
    return summarise(wanted, compare_snapshots(session, wanted))


def _show_job(stored: StoredSnapshot, queue: str, job: str) -> None:
    """Print everything that one side has of a job, as it stands in Redis."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(stored.name, style="bold")
    for row in stored.rows.where((sql.col("queue") == queue) & (sql.col("id") == job)).collect():
        wide = {**row.asDict(), "fields": None if row["fields"] is None else list(row["fields"].items())}
        console.print(f"  {narrowed(wide)}")


@contextmanager
def _readings(stores: Sequence[NamedStore], names: Sequence[str], folder: Folder) -> Iterator[list[_Reading]]:
    """The stores, each of which is read once and kept below the folder under its name."""
    with tempfile.TemporaryDirectory(prefix="bullmq-conformance-", ignore_cleanup_errors=True) as scratch:
        readings = []
        for name, store in zip(names, stores, strict=True):
            (Path(scratch) / name).mkdir()
            begun = begin_reading(store, folder / name, Path(scratch) / name)
            readings.append(_Reading(store=store, folder=folder / name, begun=begun))
        yield readings


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """A store that is being read, as far as that needs no Spark (`begun`)."""

    store: NamedStore
    folder: Folder
    begun: Future[Folder | None]

    def kept(self) -> Folder:
        """Where it lies as a snapshot. Raises Problems."""
        kept = self.begun.result()
        assert kept is not None, "Spark has to read it"
        return kept

    def stored(self, session: SparkSession) -> StoredSnapshot:
        """The store for Spark, which may have to read it first. Raises Problems."""
        return self.store.opened(session, self.folder, self.begun.result())


def _folder(out: Folder | None) -> AbstractContextManager[ReportFolder]:
    """Where differences and reports are kept: the user's folder, or one for the time being."""
    return passing_folder() if out is None else report_folder(out)
