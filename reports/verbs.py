"""The verbs `snapshot`, `diff` and `history`: from options to Spark, and from Spark to what the user sees."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from rich.console import Console

from conformance.observe.canonical import ALL_RULES, without
from conformance.problems import UsageProblem
from reports.diff.plan import Comparison, differences
from reports.diff.summary import DiffSummary, summarise
from reports.history.plan import check_jobs, header_of
from reports.history.result import print_history, result_of, write_history_reports
from reports.loading import make_folder, settings_of
from reports.options import say
from reports.render.diff_page import print_diff, write_diff_reports
from reports.session import spark_session
from reports.snapshot.manifest import Manifest, read_manifest
from reports.snapshot.plan import Source
from reports.snapshot.rows import narrowed
from reports.snapshot.store import Stored, open_stored, save


def take_snapshot(
    redis: str, prefix: str, queue: str, out: Path, *, master: str, memory: str, conf: Mapping[str, str]
) -> Manifest:
    """Read a store and keep it. Raises Problems."""
    source = Source(redis=redis, prefix=prefix, queue=queue)
    source.address  # noqa: B018 - complain before Spark is started
    with spark_session(settings_of({"master": master, "memory": memory, "conf": conf})) as spark:
        return save(spark, source, out, announce=say).manifest


def compare(
    expected: str,
    actual: str,
    out: Path | None,
    *,
    queue: str,
    job: str,
    switched_off: Sequence[str],
    spark: Mapping[str, Any],
) -> int:
    """Compare two stores, print the outcome, write reports; answers the exit code. Raises Problems."""
    if job and not queue:
        raise UsageProblem("--job needs --queue", hint="a job id means something only within its queue")
    without(ALL_RULES, *switched_off)
    for text in (expected, actual):
        _insist_on_side(text)
    if out is not None:
        make_folder(out)
    with _folder(out) as folder, spark_session(settings_of(spark)) as session:
        summary = _compared(session, (expected, actual), folder, queue=queue, job=job, switched_off=tuple(switched_off))
    print_diff(summary, Console())
    if out is not None:
        for path in write_diff_reports(out, summary):
            say(str(path))
    return 1 if summary.total else 0


def check_recorded(history: Path, snapshot: Path | None, out: Path | None, *, spark: Mapping[str, Any]) -> int:
    """Check a history job by job, print the outcome, write reports; answers the exit code. Raises Problems."""
    header_of(history)
    if snapshot is not None:
        read_manifest(snapshot)
    if out is not None:
        make_folder(out)
    with spark_session(settings_of(spark)) as session:
        stored = None if snapshot is None else open_stored(session, snapshot)
        result = result_of(check_jobs(session, history, stored), str(history), str(snapshot or ""))
    print_history(result, Console())
    for path in write_history_reports(out, result) if out is not None else ():
        say(str(path))
    return 1 if result.total else 0


def _compared(
    session: SparkSession, sides: tuple[str, str], folder: Path, *, queue: str, job: str, switched_off: tuple[str, ...]
) -> DiffSummary:
    stored = [
        _opened(session, text, folder / name, queue) for text, name in zip(sides, ("expected", "actual"), strict=True)
    ]
    wanted = Comparison(
        expected=stored[0],
        actual=stored[1],
        folder=folder / "differences",
        switched_off=switched_off,
        queue=queue,
        job=job,
    )
    if job:
        for side in (wanted.expected, wanted.actual):
            _show_job(side, queue, job)
    return summarise(wanted, differences(session, wanted))


def _show_job(stored: Stored, queue: str, job: str) -> None:
    """Print everything that one side has of a job, as it stands in Redis."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(stored.name, style="bold")
    for row in stored.rows.where((sql.col("queue") == queue) & (sql.col("id") == job)).collect():
        wide = {**row.asDict(), "fields": None if row["fields"] is None else list(row["fields"].items())}
        console.print(f"  {narrowed(wide)}")


def _insist_on_side(text: str) -> None:
    """Complain about a side before Spark is started. Raises UsageProblem."""
    source = _source(text, "")
    if source is None:
        read_manifest(Path(text))
    else:
        source.address  # noqa: B018 - it raises


def _source(text: str, queue: str) -> Source | None:
    """A store by its URL, with the prefix after `#`; None where it is a folder."""
    if "://" not in text:
        return None
    url, _, prefix = text.partition("#")
    return Source(redis=url, prefix=prefix or "bull", queue=queue)


def _opened(session: SparkSession, text: str, folder: Path, queue: str) -> Stored:
    """A side ready to be compared; a live store is read once, and kept as long as the comparison needs it."""
    source = _source(text, queue)
    return open_stored(session, Path(text)) if source is None else save(session, source, folder, announce=say)


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """Where differences are kept: the user's folder, or one for the time being."""
    if out is not None:
        yield out
        return
    folder = Path(tempfile.mkdtemp(prefix="bullmq-conformance-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
