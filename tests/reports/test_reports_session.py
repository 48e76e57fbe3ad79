"""What Spark's libraries say when a verb is interrupted, and what suits queries about few rows."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import cast

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from conformance.problems import EnvironmentProblem, UsageProblem
from reports import session
from reports.session import (
    SparkSettings,
    _end_start,
    _started_by,
    explained_spark,
    says_more_than_an_interruption,
)
from tests.cli.cli_program import ROOT, clean_environment, run_command


def record_of(error: BaseException) -> logging.LogRecord:
    return logging.LogRecord("py4j", logging.ERROR, "", 0, "while sending", None, (type(error), error, None))


def test_the_stack_of_an_interrupted_call_is_not_printed() -> None:
    broken_meanwhile = BrokenPipeError("Broken pipe")
    broken_meanwhile.__context__ = KeyboardInterrupt()
    assert not says_more_than_an_interruption(record_of(KeyboardInterrupt()))
    assert not says_more_than_an_interruption(record_of(broken_meanwhile))
    # In another thread than the one that is interrupted, when the signal has ended the JVM as well.
    assert not says_more_than_an_interruption(record_of(Py4JNetworkError("Error while sending or receiving")))


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("wrong")])
def test_every_other_error_is(error: Exception) -> None:
    assert says_more_than_an_interruption(record_of(error))


def _asked_on_the_way_out() -> None:
    try:
        raise KeyboardInterrupt
    finally:
        raise Py4JError("Answer from Java side is empty")


def test_a_failure_caused_by_an_interruption_is_an_interruption() -> None:
    with pytest.raises(KeyboardInterrupt), explained_spark():
        _asked_on_the_way_out()
    with pytest.raises(EnvironmentProblem, match="the JVM of Spark died"), explained_spark():
        raise Py4JError("Answer from Java side is empty")


def test_a_start_that_ignores_an_interruption_loses_its_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "INTERRUPTED_END_S", 0.1)
    with ThreadPoolExecutor(1) as starter:
        ids: Queue[int] = Queue()

        def start() -> SparkSession:
            ids.put(threading.get_native_id())
            subprocess.run(["sh", "-c", "trap '' TERM; sleep 600; true"], check=False)
            raise Py4JNetworkError("the JVM is gone")

        starting = starter.submit(start)
        thread = ids.get(timeout=10)
        _end_start(starting, lambda: _started_by([thread]))
        assert starting.done()
        assert not list(_started_by([thread]))


def test_a_session_that_has_started_meanwhile_is_stopped() -> None:
    stopped: list[str] = []
    starting: Future[SparkSession] = Future()
    starting.set_result(cast("SparkSession", SimpleNamespace(stop=lambda: stopped.append("stopped"))))
    _end_start(starting, list)
    assert stopped == ["stopped"]


TWO_SESSIONS = """
from reports.session import SparkSettings, spark_session
for number in (1, 2):
    with spark_session(SparkSettings(master="local[1]", memory="500m")) as session:
        print(session.range(number).count(), session.sparkContext._gateway.proc.pid)
        session.sparkContext._gateway.jvm.java.io.File.createTempFile("left", "behind")
"""


@pytest.mark.slow
def test_a_session_takes_its_jvm_and_all_that_is_temporary_with_it(tmp_path: Path) -> None:
    """The name of a folder that Spark would leave is unknown: all temporary folders of a JVM are checked."""
    options = f'"-Djava.io.tmpdir={tmp_path}"'
    environment = clean_environment({"TMPDIR": str(tmp_path), "SPARK_SUBMIT_OPTS": options, "PYTHONPATH": str(ROOT)})
    done = run_command([sys.executable, "-c", TWO_SESSIONS], cwd=ROOT, env=environment)
    assert done.code == 0, done.err
    counts, pids = zip(*(map(int, line.split()) for line in done.out.splitlines()), strict=True)
    assert counts == (1, 2)
    assert pids[0] != pids[1]
    assert not [pid for pid in pids if Path("/proc", str(pid)).exists()]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("master", "properties"),
    [
        ("local", {}),
        ("local[2]", {}),
        ("local[2,3]", {}),
        ("local[4]", {"spark.task.cpus": "2"}),
        ("spark://h:7077", {"spark.cores.max": "2"}),
        ("yarn", {"spark.executor.instances": "2", "spark.executor.cores": "1"}),
        ("yarn", {"spark.executor.instances": "3", "spark.executor.cores": "3", "spark.task.cpus": "4"}),
    ],
)
def test_too_few_slots_for_the_producers_are_refused(master: str, properties: dict[str, str]) -> None:
    with pytest.raises(UsageProblem, match="3 producers need 3 Spark tasks at the same time"):
        SparkSettings(master=master, properties=properties).require_slots(3)


@pytest.mark.parametrize(
    ("master", "properties"),
    [
        ("local[3]", {}),
        ("local[6]", {"spark.task.cpus": "2"}),
        ("spark://h:7077", {}),
        ("spark://h:7077", {"spark.cores.max": "3"}),
        ("yarn", {"spark.executor.instances": "3", "spark.executor.cores": "1"}),
        (
            "yarn",
            {"spark.executor.instances": "1", "spark.executor.cores": "1", "spark.dynamicAllocation.enabled": "true"},
        ),
    ],
)
def test_enough_slots_or_a_cluster_that_grows_are_accepted(master: str, properties: dict[str, str]) -> None:
    SparkSettings(master=master, properties=properties).require_slots(3)


def test_threads_that_are_left_to_spark_are_enough() -> None:
    SparkSettings().with_threads(64).require_slots(64)


@pytest.mark.slow
def test_a_load_with_too_few_slots_is_refused_at_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["load", "--jobs", "20", "--partitions", "3", "--master", "local[2]", "--out", str(out)]
    environment = clean_environment({"PYTHONPATH": str(ROOT)})
    done = run_command([sys.executable, "-m", "conformance", *words], cwd=tmp_path, env=environment)
    assert done.code == 2, done
    assert "use --partitions 2" in done.err
    assert not out.exists()
