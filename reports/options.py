"""The options of the verbs `load`, `snapshot`, `diff`, `check` and `history`.

Does not import Spark, which may not be installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from conformance.environment.prepare import EnvironmentOptions, client_under_test
from conformance.gate.options import AnyRedis, Packages
from conformance.gate.records import redacted
from conformance.options import DurationMs, Option, command_line, option_words
from conformance.problems import EnvironmentProblem, UsageProblem

_NEEDED = ("pyspark", "pyarrow", "pandas", "hdrh", "matplotlib")

ARCHIVES = "spark.archives"
"""Spark's property for files that executors unpack."""

EVERY_PROCESSOR = "local[*]"
"""The default master. Only `load` starts Spark for it."""

UNPACKED = "environment"
"""The folder into which executors unpack the archive of `reports.executor_archive`."""

OnlyQueue = Annotated[str, Option("Only this queue; default: all.")]


class SparkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The options about Spark itself. `memory`: of the driver, as in `2g`; `conf`: Spark properties, NAME=VALUE."""

    master: Annotated[str, Option("Spark master: local[N], spark://…, yarn.")] = EVERY_PROCESSOR
    memory: Annotated[str, Option("Memory of Spark's driver.")] = "2g"
    conf: Annotated[Sequence[str], Option("Further Spark property; repeatable.", metavar="NAME=VALUE")] = ()
    archives: Annotated[
        Path | None,
        Option(
            "Archive made by `python -m reports.executor_archive`, for executors without the kit.", existing_file=True
        ),
    ] = None

    @property
    def wants_spark(self) -> bool:
        """Whether the work is for Spark; else it is done in this process, or in several of this machine."""
        return bool(self.master != EVERY_PROCESSOR or self.conf or self.archives)

    @property
    def properties(self) -> dict[str, str]:
        """The Spark properties, and the archive as one of them. Raises UsageProblem for a text without `=`."""
        for setting in self.conf:
            if "=" not in setting:
                raise UsageProblem(
                    f"invalid --conf {setting!r}: no `=`", hint="example: --conf spark.executor.memory=4g"
                )
        packed = {} if self.archives is None else {ARCHIVES: f"{self.archives.absolute()}#{UNPACKED}"}
        return {**packed, **dict(setting.split("=", 1) for setting in self.conf)}


class LoadConfig(SparkConfig, frozen=True, kw_only=True):
    """All options of `load`.

    `jobs`, `seed`, `queues`, `rate`: replace the values of the workload file. `producer` empty: the driver given as a
    command, else the reference. `find_rate`: the threshold to search the highest rate for; empty for a single load.
    """

    workload: Annotated[Path | None, Option("YAML description of the workload; options override it.")] = None
    jobs: Annotated[int | None, Option("Number of jobs.", at_least=1)] = None
    seed: Annotated[int | None, Option("Seed of everything random.")] = None
    queues: Annotated[int | None, Option("Number of queues.", at_least=1)] = None
    rate: Annotated[float | None, Option("Jobs per second, on a fixed schedule; 0: as fast as possible.")] = None
    producer: Annotated[str, Option("Client that adds the jobs; default: reference, or the driver given.")] = ""
    workers: Annotated[
        Sequence[str], Option("Workers; repeatable for a mix.", "--worker", metavar="CLIENT[:PROCESSES]")
    ] = ()
    packages: Packages = ()
    concurrency: Annotated[int, Option("Concurrency of each worker.", at_least=1)] = 100
    partitions: Annotated[int, Option("Producers at the same time.", at_least=1)] = 2
    redis: AnyRedis = ""
    prefix: Annotated[str, Option("Key prefix; default: a new one.")] = ""
    events: Annotated[int | None, Option("Events that a queue keeps; default: all.", at_least=1)] = None
    resume: Annotated[bool, Option("Continue an interrupted load.")] = False
    thresholds: Annotated[
        Sequence[str],
        Option(
            "Required result, as in 'p99<50ms', 'scheduled-to-added:p99.9<1s' or 'rate>=1000'; repeatable.",
            "--threshold",
            metavar="BOUND",
        ),
    ] = ()
    find_rate: Annotated[str, Option("Find the highest rate that keeps this threshold.", metavar="BOUND")] = ""
    trial_ms: Annotated[DurationMs, Option("Length of each load of --find-rate.", "--trial", positive=True)] = (
        DurationMs(10_000)
    )
    out: Annotated[str, Option("Folder for the snapshot and the reports: a path, s3://…, hdfs://….")]
    command: Sequence[str] = ()

    @property
    def driver_name(self) -> str:
        """The name of the client whose driver was given as a command, empty if none was."""
        return client_under_test("", self.command) if self.command else ""

    @property
    def environment(self) -> EnvironmentOptions:
        """The Redis and the driver that the load needs."""
        return EnvironmentOptions(redis=self.redis, client=self.driver_name, command=self.command)

    @property
    def reproduce(self) -> str:
        """The command line that runs this load again; passwords are left out."""
        return command_line("load", redacted([*option_words(self), *(["--", *self.command] if self.command else [])]))


class SnapshotConfig(SparkConfig, frozen=True, kw_only=True):
    """All options of `snapshot`. Exactly one of `redis` and `rdb` names the store."""

    redis: Annotated[str, Option("URL of the Redis, or of a replica; env:VARIABLE takes it from the environment.")] = ""
    replicate: Annotated[bool, Option("Take the RDB file that --redis gives to a new replica: one instant.")] = False
    rdb: Annotated[
        Sequence[Path], Option("An RDB file instead of --redis; one for each node of a cluster.", metavar="FILE")
    ] = ()
    database: Annotated[int, Option("Number of the database in --rdb.", at_least=0)] = 0
    prefix: Annotated[str, Option("Key prefix of the queues.")] = "bull"
    queue: Annotated[str, Option("Only this queue; default: all under the prefix.")] = ""
    out: Annotated[str, Option("Folder for the Parquet files: a path, s3://…, hdfs://….")]

    def check(self) -> None:
        """Raise UsageProblem for options that contradict each other."""
        if bool(self.redis) == bool(self.rdb):
            raise UsageProblem("specify exactly one of --redis or --rdb", hint="a snapshot contains one store")
        if self.rdb and self.replicate:
            raise UsageProblem("--replicate does not apply to --rdb", hint="use it with --redis")
        if self.database and not self.rdb:
            raise UsageProblem("--database applies only to --rdb", hint="put it into the URL: redis://127.0.0.1:6379/2")


class DiffConfig(SparkConfig, frozen=True, kw_only=True):
    """All options of `diff`. `out` None: reports are not kept."""

    queue: OnlyQueue = ""
    replicate: Annotated[bool, Option("Take the RDB file that a Redis gives to a new replica: one instant.")] = False
    job: Annotated[str, Option("Only this job: shows everything that both sides store of it; needs --queue.")] = ""
    no_rule: Annotated[
        Sequence[str], Option("Canonical rule to switch off (`list --rules` names them); repeatable.")
    ] = ()
    out: Annotated[str | None, Option("Folder for differences and reports: a path, s3://…, hdfs://….")] = None


class CheckConfig(SparkConfig, frozen=True, kw_only=True):
    """All options of `check`. `out` None: reports are not kept."""

    queue: OnlyQueue = ""
    settle_ms: Annotated[
        DurationMs, Option("Time in which what looks wrong in a live store is read again.", "--settle")
    ] = DurationMs(10_000)
    max_rate: Annotated[
        float | None,
        Option(
            "Keys that are read from a live store per second; 0: no limit; default: spare other clients.", at_least=0
        ),
    ] = None
    out: Annotated[str | None, Option("Folder for check.json and junit.xml: a path, s3://…, hdfs://….")] = None


class HistoryConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All options of `history`. `out` None: reports are not kept."""

    snapshot: Annotated[str | None, Option("Folder of the snapshot taken after the run.")] = None
    out: Annotated[str | None, Option("Folder for history.json and junit.xml: a path, s3://…, hdfs://….")] = None


def require_spark() -> None:
    """Raise EnvironmentProblem if the extra `spark` is not installed."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise EnvironmentProblem(
            f"this verb needs the extra `spark`, which is not installed (missing: {', '.join(missing)})",
            hint="pip install 'WHERE[spark]', where WHERE is the kit's checkout or wheel",
        )
