"""The Spark session of one command: local by default, on a cluster with `--master`.

All settings of a cluster but its address are made here, so that nothing else depends on the master. Executors run the
same Python interpreter, and import this package from the same path as the driver (`PYTHONPATH`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from conformance import interruption
from conformance.problems import EnvironmentProblem, Problem, UsageProblem
from reports.class_archive import options_to_use_it
from reports.distribution import Result, Task, attempt
from reports.executor_archive import PYTHON
from reports.options import ARCHIVES, UNPACKED, SparkConfig
from reports.spark_problems import ExecutorProblem, explain_spark, require_java

END_S = 120.0
"""The longest that a JVM may take to end: before it does it may have classes to archive."""

INTERRUPTED_END_S = 3.0
"""The longest that a JVM may take to end after an interruption: its files outside of its own folder are then left."""

TEMPORARY = "spark.driver.defaultJavaOptions"
"""For options that stay where a user gives others (`spark.driver.extraJavaOptions`)."""

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, kw_only=True)
class SparkSettings:
    """How to reach Spark. `master`: Spark's own master URL. `memory`: of the driver, as in `2g`.

    `properties`: further Spark properties, which win over those set here.
    """

    master: str = "local[*]"
    memory: str = "2g"
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def is_here(self) -> bool:
        """Whether Spark has no more processors than this process."""
        return self.master.startswith("local")

    @property
    def is_packed(self) -> bool:
        """Whether executors get an environment from an archive (`reports.executor_archive`)."""
        return self.properties.get(ARCHIVES, "").endswith(f"#{UNPACKED}")

    def require_slots(self, least: int) -> None:
        """Raise UsageProblem if fewer than this many tasks can run at the same time, as far as the settings say.

        The others would wait for a place, and those that run for the others.
        """
        slots = self._slots()
        if slots is not None and slots < least:
            raise UsageProblem(
                f"{least} producers need {least} Spark tasks at the same time, and {self.master} runs {slots}",
                hint=f"use --partitions {slots}" if slots else "lower spark.task.cpus",
            )

    def _slots(self) -> int | None:
        """How many tasks run at the same time; None if only the cluster knows."""
        each = int(self.properties.get("spark.task.cpus", "1"))
        if (threads := _LOCAL.fullmatch(self.master)) is not None:
            return (os.cpu_count() or 1 if threads["number"] == "*" else int(threads["number"] or 1)) // each
        if "spark.cores.max" in self.properties:
            return int(self.properties["spark.cores.max"]) // each
        executors = (self.properties.get("spark.executor.instances"), self.properties.get("spark.executor.cores"))
        if None in executors or self.properties.get("spark.dynamicAllocation.enabled") == "true":
            return None
        return int(executors[0] or 0) * (int(executors[1] or 0) // each)

    def with_threads(self, least: int) -> SparkSettings:
        """The same settings, with at least this many parallel tasks if the number is left to Spark (`local[*]`).

        Producers of a load wait for each other: each needs a place, also on a machine with one core.
        """
        if self.master != "local[*]":
            return self
        return replace(self, master=f"local[{max(least, os.cpu_count() or 1)}]")


def settings_of(config: SparkConfig) -> SparkSettings:
    """The settings that the options ask for. Raises UsageProblem for an invalid --conf."""
    return SparkSettings(master=config.master, memory=config.memory, properties=config.properties)


_LOCAL = re.compile(r"local(\[(?P<number>\*|\d+)(,\d+)?\])?")
"""Spark's address of threads of this machine."""


@contextmanager
def spark_session(settings: SparkSettings) -> Iterator[SparkSession]:
    """Run Spark for the duration of the block. Raises EnvironmentProblem without Java, and where Spark fails."""
    require_java()
    with _jvm_of_its_own(settings) as own:
        session = _start(own)
        try:
            with explained_spark():
                yield session
        except KeyboardInterrupt:
            # While tasks wait for places, a JVM that is asked to stop may take minutes.
            if (gateway := SparkContext._gateway) is not None and gateway.proc is not None:  # noqa: SLF001 - see below
                _end_at_once(gateway.proc)
            raise
        finally:
            # A JVM that has died cannot be asked to end.
            with contextlib.suppress(Py4JError, OSError):
                session.stop()


@contextmanager
def _jvm_of_its_own(settings: SparkSettings) -> Iterator[SparkSettings]:
    """The same settings, for a JVM that ends with the block, and whose temporary files lie in a folder that goes then.

    A JVM ignores TMPDIR. Spark leaves folders behind, and a killed JVM leaves everything.
    """
    with interruption.postponed():
        room = tempfile.TemporaryDirectory(prefix="bullmq-conformance-", ignore_cleanup_errors=True)
    with room as folder:
        try:
            yield replace(settings, properties={TEMPORARY: f'"-Djava.io.tmpdir={folder}"', **settings.properties})
        finally:
            _end_the_jvm()


def class_path_of(session: SparkSession) -> str:
    """From where its JVM has its classes."""
    jvm = session.sparkContext._jvm  # noqa: SLF001 - pyspark has no other way to what its JVM says of itself
    assert jvm is not None
    path: str = jvm.java.lang.System.getProperty("java.class.path")
    return path


def _end_the_jvm() -> None:
    """Have the JVM of this process end, if there is one: pyspark would leave it to itself."""
    gateway = SparkContext._gateway  # noqa: SLF001 - pyspark has no other way to the process that it has started
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - the next session starts another
    process: subprocess.Popen[bytes] | None = gateway.proc
    with contextlib.suppress(Py4JError, OSError):
        gateway.shutdown()
    if process is None:
        return
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(END_S)
    except BaseException as error:
        process.kill()
        process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise


def _end_at_once(process: subprocess.Popen[bytes]) -> None:
    """Let the JVM remove its files, but not for long."""
    process.terminate()
    try:
        process.wait(INTERRUPTED_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class OnSpark:
    """Runs tasks on executors, one after the other in each of their processors (`reports.distribution`)."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """As `Distribution.run`."""
        if not tasks:
            return
        places = self._session.sparkContext.parallelize(list(tasks), len(tasks))
        yield from places.map(partial(_on_executor, work)).collect()


def _on_executor(work: Callable[[Task], Result], task: Task) -> Result:
    """Run a task; a Problem reaches the driver inside the exception of Spark."""
    context = TaskContext.get()
    try:
        with attempt(context.attemptNumber() if context else 0):
            return work(task)
    except Problem as problem:
        raise ExecutorProblem(problem) from problem


@contextmanager
def explained_spark() -> Iterator[None]:
    """Raise the Problem behind an exception of Spark or, for failures of workers, of py4j."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        # What Spark asks the JVM for on its way out fails over the connection that was interrupted.
        if interruption.is_behind(error):
            raise KeyboardInterrupt from error
        raise explain_spark(error) from error


CALL_LOGGERS = ("", "py4j.clientserver", "py4j.java_gateway")
"""Loggers (the root's name is empty) to which py4j writes the stack of a call that was interrupted."""


def says_more_than_an_interruption(record: logging.LogRecord) -> bool:
    """Whether a log record is about anything but the end that the user, or a signal, has asked for.

    A signal to the whole group ends the JVM as well. The caller of a method gets an error if the JVM is gone.
    """
    error = record.exc_info[1] if record.exc_info else None
    return not (interruption.is_behind(error) or isinstance(error, Py4JNetworkError))


def _start(settings: SparkSettings) -> SparkSession:
    for name in CALL_LOGGERS:
        logging.getLogger(name).addFilter(says_more_than_an_interruption)
    if settings.is_packed and settings.is_here:
        raise UsageProblem("--archives is for executors of a cluster", hint="give it with --master")
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = PYTHON if settings.is_packed else sys.executable
    _advertise_address()
    conf = SparkConf(loadDefaults=False).setMaster(settings.master).setAppName("bullmq-conformance")
    conf.setAll(list({**_properties(settings), **settings.properties}.items()))
    try:
        session = _started(conf)
    except Exception as error:
        raise EnvironmentProblem(
            f"Spark did not start on {settings.master}: {str(error).strip().splitlines()[0]}",
            hint="is the master's address right, and is there memory for a JVM of " + settings.memory + "?",
        ) from error
    session.sparkContext.setLogLevel("OFF")
    # The JVM ends with the terminal that is closed, and Spark's server of accumulators would print that as an error.
    if (accumulators := vars(session.sparkContext).get("_accumulatorServer")) is not None:
        accumulators.handle_error = _forget
    return session


def _forget(_request: object, _client_address: object) -> None:
    """Print nothing: the next call of a JVM that has died reports it."""


def _get_or_create(conf: SparkConf) -> SparkSession:
    """Start a JVM of which nothing is printed that only people who run Spark understand."""
    if SparkContext._gateway is None:  # noqa: SLF001 - pyspark has no other way to give its JVM another stderr
        reading, writing = os.pipe()
        threading.Thread(target=_pass_on, args=(reading,), name="stderr of the JVM", daemon=True).start()
        try:
            gateway = launch_gateway(conf=conf, popen_kwargs={"stderr": writing})  # type: ignore[no-untyped-call]
        finally:
            os.close(writing)
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001 - as above
    return SparkSession.builder.config(conf=conf).getOrCreate()


_START_LINES = ("WARNING: Using incubator modules:", "Setting default log level to", "To adjust logging level use")
"""The beginnings of lines that every JVM of Spark prints."""


def _pass_on(reading: int) -> None:
    """Print what the JVM does, without the lines that every start has."""
    with open(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.startswith(_START_LINES):
                sys.stderr.write(line)
                sys.stderr.flush()


def _started(conf: SparkConf) -> SparkSession:
    """Start it in a thread of its own: there it leaves Ctrl-C to the main thread.

    Its own way with Ctrl-C makes a call over the connection on which the main thread may wait for a reply.
    """
    threads: list[int] = []

    def start() -> SparkSession:
        threads.append(threading.get_native_id())
        return _get_or_create(conf)

    with ThreadPoolExecutor(1, thread_name_prefix="spark-starts") as starter:
        starting = starter.submit(start)
        try:
            return starting.result()
        except KeyboardInterrupt:
            _end_start(starting, lambda: _started_by(threads))
            raise


def _end_start(starting: Future[SparkSession], processes: Callable[[], Iterable[int]]) -> None:
    """End the processes of a start. On a busy machine it takes minutes, and the user should not wait for it."""
    deadline = time.monotonic() + INTERRUPTED_END_S
    while not starting.done():
        for pid in processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL)
        wait([starting], timeout=0.2)
    # It had just started.
    with contextlib.suppress(Exception):
        starting.result().stop()


def _started_by(threads: Iterable[int]) -> Iterator[int]:
    """The processes that threads of this process have started, and those that these have started.

    pyspark names its process only when it has answered.
    """
    for thread in threads:
        yield from _children_of(Path("/proc/self/task", str(thread)))


def _children_of(task: Path) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for pid in map(int, (task / "children").read_text().split()):
            yield pid
            for thread in Path("/proc", str(pid), "task").iterdir():
                yield from _children_of(thread)


def _properties(settings: SparkSettings) -> dict[str, str]:
    return {
        "spark.driver.memory": settings.memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **_nearby(settings.master),
        **({} if settings.is_packed else {"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"]}),
        "spark.sql.session.timeZone": "UTC",
        # The tables of one snapshot are written in one pass, without a sort by table.
        "spark.sql.maxConcurrentOutputFileWriters": "24",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        # Executors then read only the tables of a snapshot that a query needs (`reports.snapshot.spark_rows`).
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.parquet.compression.codec": "zstd",
        **_FOR_MANY_ROWS,
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "bullmq-conformance-warehouse"),
        "spark.driver.extraJavaOptions": jvm_options(
            [
                *options_to_use_it(),
            ]
        ),
    }


_FOR_MANY_ROWS = {"spark.sql.shuffle.partitions": "32"}


def _nearby(master: str) -> dict[str, str]:
    """Use loopback if Spark runs on this machine: its host name may resolve to an unreachable address."""
    is_here = master.startswith("local") or "//127.0.0.1:" in master
    return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} if is_here else {}


def jvm_options(others: Sequence[str]) -> str:
    """Options of the driver's JVM in one line, and others.

    Spark's start-up lines are for people who run Spark, not for people who compare two queues.
    """
    return " ".join([f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}", *others])


def _advertise_address() -> None:
    """Python workers unpickle functions by module name, so they need this package on their path."""
    parts = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(ROOT) not in parts:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, parts)])
