"""A live store is read in this process or in several, without Java, and its progress is shown."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from conformance.observe.reader import read_snapshot
from conformance.problems import EnvironmentProblem
from conformance.servers import RedisInstance
from reports.distribution import (
    Distribution,
    InProcesses,
    InThreads,
    attempt,
    attempt_number,
    kept_processes,
    processors,
)
from reports.progress import LINE_EVERY_S, SILENT_S, Progress
from reports.snapshot import plan as planning
from reports.snapshot.folders import folder_at
from reports.snapshot.plan import RedisSource
from reports.snapshot.store import save
from tests.reports.reports_builders import plain_store, write
from tests.reports.test_reports_snapshot import as_texts, kept


@pytest.mark.slow
@pytest.mark.parametrize("place", [InThreads(), InProcesses()], ids=["threads", "processes"])
def test_a_live_store_is_kept_as_the_gate_reads_it(
    place: Distribution, server: RedisInstance, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "SMALLEST_TO_SHARE", 1)
    write(server, prefix, plain_store(prefix))
    manifest = save(RedisSource(redis=server.url, prefix=prefix), folder_at(tmp_path / "out"), place)
    with server.connect() as client:
        expected = as_texts(read_snapshot(client, prefix))
    assert manifest.jobs == 12
    assert kept(tmp_path / "out", manifest.buckets) == expected


def doubled(number: int) -> int:
    return 2 * number


def dead(number: int) -> int:
    os._exit(number)


@pytest.mark.slow
@pytest.mark.parametrize("place", [InThreads(), InProcesses()], ids=["threads", "processes"])
def test_all_tasks_run_and_the_first_problem_is_raised(place: Distribution) -> None:
    assert sorted(place.run(doubled, range(5))) == [0, 2, 4, 6, 8]
    assert list(place.run(doubled, [])) == []
    with pytest.raises(EnvironmentProblem, match="too much"):
        list(place.run(refused, [1, 2, 3]))


def refused(number: int) -> int:
    raise EnvironmentProblem(f"{number} is too much", hint="take less")


def test_a_process_that_dies_is_reported_in_one_line() -> None:
    with pytest.raises(EnvironmentProblem, match="has died"):
        list(InProcesses().run(dead, [3, 4]))


def process_of(_: int) -> int:
    return os.getpid()


@pytest.mark.slow
def test_processes_are_kept_for_a_block_and_end_with_it() -> None:
    with kept_processes():
        first, second = (set(InProcesses().run(process_of, range(8))) for _ in range(2))
        assert first & second
        assert len(first | second) <= processors()
        assert first & set(InProcesses(last=True).run(process_of, range(8))) == set(), "those that go last are others"
    assert all(not psutil.pid_exists(pid) for pid in first | second)
    assert set(InProcesses().run(process_of, range(8))) & (first | second) == set()


@pytest.mark.slow
def test_a_process_that_dies_spoils_no_later_call_of_its_block() -> None:
    with kept_processes():
        with pytest.raises(EnvironmentProblem, match="has died"):
            list(InProcesses().run(dead, [3, 4]))
        assert sorted(InProcesses().run(doubled, range(3))) == [0, 2, 4]


@pytest.mark.slow
@pytest.mark.parametrize("module", ["reports.index", "reports.verbs.diff", "reports.verbs.checks"])
def test_modules_that_need_neither_spark_nor_pytest_do_not_import_them(module: str) -> None:
    """They take 0.15 s of processor time; the index is written by every verb with `--out`."""
    code = f"import sys, reports.options, {module}; print({{'pyspark', 'pytest'}} & {{*sys.modules}})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"set()\n"


def test_attempts_are_numbered() -> None:
    with attempt(3):
        assert attempt_number() == 3
    assert attempt_number() == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("out", "lines"), [(io.StringIO(), 3), (Terminal(), 12)], ids=["log", "terminal"])
def test_progress_has_parts_jobs_rate_and_time_left(out: Any, lines: int) -> None:
    now = [0.0]
    progress = Progress("reading", 12, out, lambda: now[0])
    for _ in range(12):
        now[0] += 1.0
        progress.advance(jobs=1000)
    assert progress.text(6.0) == "reading: 12 of 12 parts, 12,000 jobs, 2,000 jobs/s"
    said = [line for line in out.getvalue().replace("\r\x1b[K", "\n").splitlines() if line]
    progress.end()
    assert len(said) == (12 - SILENT_S) // (1 if out.isatty() else LINE_EVERY_S) + 1
    assert said[0] == "reading: 2 of 12 parts, 2,000 jobs, 1,000 jobs/s, 10 s left"
    assert len(said) <= lines


def test_a_short_step_shows_nothing() -> None:
    out = io.StringIO()
    progress = Progress("reading", 1, out, lambda: 0.0)
    progress.advance()
    progress.end()
    assert out.getvalue() == ""


def test_small_stores_are_compared_without_java_spark_or_pandas(
    server: RedisInstance, prefix: str, tmp_path: Path
) -> None:
    write(server, prefix, plain_store(prefix))
    out = tmp_path / "out"
    words = ["diff", *[f"{server.url}#{prefix}"] * 2, "--out", str(out)]
    code = f"import sys; from conformance.cli.main import main; sys.argv[1:] = {words!r}\ntry:\n main()\n"
    code += "finally:\n print({'pyspark', 'pandas'} & {*sys.modules})"
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "set()"
    assert {"diff.html", "diff.json", "diff.md", "junit.xml"} <= {file.name for file in out.iterdir()}


def pandas_comes_with_an_array(_: int) -> tuple[bool, int]:
    """Whether Arrow has imported pandas for its first array, and how many rows it converts to pandas later."""
    array = pa.array([1, 2])
    return "pandas" in sys.modules, len(array.to_pandas())


@pytest.mark.slow
def test_arrow_does_without_pandas_in_processes_until_it_is_wanted() -> None:
    # The same process may do both tasks.
    assert {*InProcesses().run(pandas_comes_with_an_array, [1, 2])} - {(True, 2)} == {(False, 2)}
