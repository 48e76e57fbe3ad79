"""The workload of a load as the user specifies it, and each of its jobs as Spark computes it from the seed."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Literal

import msgspec
import yaml
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from conformance.problems import UsageProblem
from conformance.protocol.keys import is_queue_name

MOST_PAYLOAD = 5 * 1024 * 1024


class WorkloadPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the sections; a misspelt field is refused."""


class PayloadSize(WorkloadPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filling of a job's data, in bytes: between `least` and `most`; `exponential`: mostly near `least`."""

    distribution: Literal["fixed", "uniform", "exponential"] = "fixed"
    least: int = 64
    most: int = 64


class PriorityShare(WorkloadPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A share of the jobs (0 to 1) has a priority from 1 to `levels`."""

    share: float = 0.0
    levels: int = 10


class DelayShare(WorkloadPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A share of the jobs is delayed, between `least` and `most` ms."""

    share: float = 0.0
    least: int = 100
    most: int = 2000


class FailureShares(WorkloadPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs fail: a share `once` fails on the first attempt only, a share `always` on every attempt."""

    once: float = 0.0
    always: float = 0.0


class WorkloadBackoff(WorkloadPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Back-off of jobs that may be tried again; `delay` in ms."""

    type: Literal["fixed", "exponential"] = "fixed"
    delay: int = 20


class FlowShare(WorkloadPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A share of the jobs are parents of `children` children, in the same queue; children are extra jobs."""

    share: float = 0.0
    children: int = 3


class RampUp(WorkloadPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rate grows evenly from `first` jobs per second to the workload's `rate`, within `seconds`."""

    first: float = 0.0
    seconds: float = 0.0


class Retention(WorkloadPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many finished jobs a queue keeps; None keeps all."""

    completed: int | None = None
    failed: int | None = None


class Workload(WorkloadPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A load. Everything about job number i follows from this description, `seed` and i.

    `rate`: jobs per second in an open loop, on a schedule that does not wait for the system; 0: as fast as possible.
    `ramp`: how the rate comes to be what it is.
    `arrival`: `regular`, or `jittered` within each job's own slot. `lifo`: share of jobs added to the other end.
    `attempts`: for all jobs. `queues`: they are called `name-0`, `name-1`, ...; `tagged`: `{name-0}`, `{name-1}`, ...,
    which lets a cluster spread them.
    """

    jobs: int = 10_000
    seed: int = 1
    queues: int = 1
    name: str = "load"
    tagged: bool = False
    rate: float = 0.0
    ramp: RampUp = RampUp()
    arrival: Literal["regular", "jittered"] = "regular"
    payload: PayloadSize = PayloadSize()
    priority: PriorityShare = PriorityShare()
    delay: DelayShare = DelayShare()
    lifo: float = 0.0
    attempts: int = 2
    backoff: WorkloadBackoff = WorkloadBackoff()
    failures: FailureShares = FailureShares()
    flows: FlowShare = FlowShare()
    retention: Retention = Retention()

    @property
    def queue_names(self) -> list[str]:
        """Names of the queues."""
        before, after = self.around_number
        return [f"{before}{number}{after}" for number in range(self.queues)]

    @property
    def around_number(self) -> tuple[str, str]:
        """The text before and after the number in the name of a queue."""
        return (f"{{{self.name}-", "}") if self.tagged else (f"{self.name}-", "")

    @property
    def ramp_jobs(self) -> float:
        """How many jobs are due before the rate is reached."""
        return (self.ramp.first + self.rate) / 2 * self.ramp.seconds

    def due_ms(self, index: int) -> int:
        """When job number `index` is due, ms since the start of the schedule; jitter may add its own slot to it."""
        if not self.rate:
            return 0
        over = index - self.ramp_jobs
        if over >= 0:
            return int((self.ramp.seconds + over / self.rate) * 1000)
        first, growth = self.ramp.first, (self.rate - self.ramp.first) / self.ramp.seconds
        # The number of jobs due is first * t + growth * t² / 2; this is its root, in a form that bears growth 0.
        return int(2 * index / (first + math.sqrt(first * first + 2 * growth * index)) * 1000) if index else 0

    @property
    def digest(self) -> str:
        """The first 12 hex digits of a SHA-256 over the description: two loads differ in it."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:12]


def read_workload(path: Path) -> Workload:
    """A description from a YAML file. Raises UsageProblem that names the field."""
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
        return checked_workload(msgspec.convert(found or {}, Workload))
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror}", hint="give a YAML file") from error
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise UsageProblem(f"{path}: {error}", hint="docs/how-to/load.md has all fields") from error


def checked_workload(workload: Workload) -> Workload:
    """The same description. Raises UsageProblem for numbers that make no sense."""
    _check_counts(workload)
    _check_shares(workload)
    _check_ranges(workload)
    if not is_queue_name(workload.name):
        raise UsageProblem(f"workload: {workload.name!r} cannot be part of a queue's name", hint="leave out the colon")
    return workload


def _check_counts(workload: Workload) -> None:
    positive = {"jobs": workload.jobs, "queues": workload.queues, "attempts": workload.attempts}
    positive |= {"priority.levels": workload.priority.levels, "flows.children": workload.flows.children}
    for name, number in positive.items():
        if number < 1:
            raise UsageProblem(f"workload: {name} is {number}", hint="it must be 1 or more")


def _check_shares(workload: Workload) -> None:
    shares = {
        "priority.share": workload.priority.share,
        "delay.share": workload.delay.share,
        "lifo": workload.lifo,
        "failures.once": workload.failures.once,
        "failures.always": workload.failures.always,
        "flows.share": workload.flows.share,
    }
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise UsageProblem(f"workload: {name} is {share}", hint="a share lies between 0 and 1")
    if workload.failures.once + workload.failures.always > 1:
        raise UsageProblem("workload: failures.once and failures.always are more than 1 together", hint="lower one")
    if workload.failures.once and workload.attempts < 2:
        raise UsageProblem("workload: jobs that fail once need a second attempt", hint="set attempts to 2 or more")


def _check_ranges(workload: Workload) -> None:
    payload, delay = workload.payload, workload.delay
    for name, least, most in (("payload", payload.least, payload.most), ("delay", delay.least, delay.most)):
        if not 0 <= least <= most:
            raise UsageProblem(f"workload: {name} goes from {least} to {most}", hint="0 <= least <= most")
    if workload.payload.most > MOST_PAYLOAD or workload.rate < 0:
        raise UsageProblem("workload: payload.most is too large, or rate is negative", hint=f"most: {MOST_PAYLOAD}")
    if workload.ramp.first < 0 or workload.ramp.seconds < 0:
        raise UsageProblem("workload: ramp.first or ramp.seconds is negative", hint="both are 0 or more")
    if workload.ramp.seconds and not workload.rate:
        raise UsageProblem("workload: a ramp needs a rate to which it leads", hint="set rate, in jobs per second")


_FILLING = "abcdefghijklmnopqrstuvwxyz0123456789"
_STEPS = 2**53
"""A draw is one of this number of equal steps: as many as a double can represent."""


def jobs_of(spark: SparkSession, workload: Workload, partitions: int) -> DataFrame:
    """One row per job to add, in the order of the schedule within each partition.

    The partitions take turns: job number i is the next one of partition i modulo `partitions`. So all producers work at
    any time of the schedule, each at its share of the rate.

    Each follows from the seed and its own number, and from nothing else: any partition on any machine gives the same
    job, so that a producer that is started again, or on another executor, adds what the first one would have added.

    Columns: `index`; `queue`; `id`; `name`; `data` and `opts`, JSON; `scheduled_ms` since the start of the load; and
    `children`, how many children the job is added with as a flow (0: not a flow).
    """
    index = sql.col("index")
    draws = _Draws(workload.seed)
    before, after = workload.around_number
    number = sql.pmod(index, sql.lit(workload.queues))
    frame = _numbers_in_turns(spark, workload.jobs, partitions)
    children = sql.when(draws.chance("flow", workload.flows.share), workload.flows.children).otherwise(0)
    return frame.select(
        index,
        sql.concat(sql.lit(before), number.cast("string"), sql.lit(after)).alias("queue"),
        sql.concat(sql.lit("j"), index.cast("string")).alias("id"),
        sql.lit("load").alias("name"),
        _data(workload, draws).alias("data"),
        _options(workload, draws, is_flow=children > 0).alias("opts"),
        _scheduled(workload, draws).alias("scheduled_ms"),
        children.cast("int").alias("children"),
    )


def _numbers_in_turns(spark: SparkSession, jobs: int, partitions: int) -> DataFrame:
    """The column `index`, from 0. Each partition of a range is one piece of it, all equally long."""
    longest = -(-jobs // partitions)
    position, partition = sql.pmod(sql.col("id"), sql.lit(longest)), sql.floor(sql.col("id") / sql.lit(longest))
    frame = spark.range(0, longest * partitions, 1, partitions)
    return frame.select((position * partitions + partition).cast("bigint").alias("index")).where(
        sql.col("index") < jobs
    )


class _Draws:
    """Random numbers that are functions of the seed, the index and a purpose."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def uniform(self, purpose: str) -> Column:
        """A number in [0, 1)."""
        hashed = sql.xxhash64(sql.lit(self._seed), sql.lit(purpose), sql.col("index"))
        return sql.pmod(hashed, sql.lit(_STEPS)) / sql.lit(float(_STEPS))

    def chance(self, purpose: str, share: float) -> Column:
        """True for about this share of the jobs."""
        return self.uniform(purpose) < sql.lit(share)

    def between(self, purpose: str, least: int, most: int) -> Column:
        """A whole number between two, both included."""
        return (sql.floor(self.uniform(purpose) * sql.lit(most - least + 1)) + sql.lit(least)).cast("int")


def _scheduled(workload: Workload, draws: _Draws) -> Column:
    if not workload.rate:
        return sql.lit(0).cast("bigint")
    offset = draws.uniform("arrival") if workload.arrival == "jittered" else sql.lit(0.0)
    number = (sql.col("index") + offset).cast("double")
    steady = workload.ramp.seconds + (number - workload.ramp_jobs) / workload.rate
    return (_in_ramp(workload, number, steady) * 1000).cast("bigint")


def _in_ramp(workload: Workload, number: Column, steady: Column) -> Column:
    """Seconds at which a job is due; the same as `Workload.due_ms`."""
    ramp = workload.ramp
    if not ramp.seconds:
        return steady
    growth = (workload.rate - ramp.first) / ramp.seconds
    root = sql.sqrt(sql.lit(ramp.first * ramp.first) + 2 * growth * number)
    rising = sql.when(number > 0, 2 * number / (sql.lit(ramp.first) + root)).otherwise(0.0)
    return sql.when(number < workload.ramp_jobs, rising).otherwise(steady)


def _data(workload: Workload, draws: _Draws) -> Column:
    """The data: what the processor `steps` is to do, and the filling."""
    fate = draws.uniform("fate")
    always, once = workload.failures.always, workload.failures.once
    fail = sql.when(fate < sql.lit(always), workload.attempts).when(fate < sql.lit(always + once), 1)
    failing = sql.struct(sql.lit("fail").alias("do"), sql.lit("planned").alias("message"), fail.alias("until_attempt"))
    steps = sql.when(fail.isNotNull(), sql.array(failing)).otherwise(
        sql.array().cast("array<struct<do:string,message:string,until_attempt:int>>")
    )
    return sql.to_json(
        sql.struct(sql.col("index").alias("i"), steps.alias("steps"), _filling(workload, draws).alias("pad"))
    )


def _filling(workload: Workload, draws: _Draws) -> Column:
    size = workload.payload
    if size.distribution == "fixed":
        length = sql.lit(size.most)
    elif size.distribution == "uniform":
        length = draws.between("payload", size.least, size.most)
    else:
        tail = -sql.log1p(-draws.uniform("payload")) * sql.lit((size.most - size.least) / 5)
        length = sql.least(sql.lit(size.most), (sql.lit(size.least) + tail).cast("int"))
    start = draws.between("filling", 1, len(_FILLING))
    rotated = sql.concat(sql.substring(sql.lit(_FILLING), start, sql.lit(len(_FILLING))), sql.lit(_FILLING))
    return sql.substring(sql.repeat(rotated, sql.lit(-(-size.most // len(_FILLING)) or 1)), sql.lit(1), length)


def _options(workload: Workload, draws: _Draws, *, is_flow: Column) -> Column:
    """BullMQ's JobsOptions. A parent of a flow waits for its children, and is therefore neither delayed nor lifo."""
    delay = sql.when(
        draws.chance("delayed", workload.delay.share) & ~is_flow,
        draws.between("delay", workload.delay.least, workload.delay.most),
    )
    priority = sql.when(
        draws.chance("prioritized", workload.priority.share), draws.between("priority", 1, workload.priority.levels)
    )
    lifo = sql.when(draws.chance("lifo", workload.lifo) & ~is_flow & priority.isNull(), sql.lit(True))
    backoff = sql.struct(sql.lit(workload.backoff.type).alias("type"), sql.lit(workload.backoff.delay).alias("delay"))
    return sql.to_json(
        sql.struct(
            sql.concat(sql.lit("j"), sql.col("index").cast("string")).alias("jobId"),
            sql.lit(workload.attempts).alias("attempts"),
            (backoff if workload.attempts > 1 else sql.lit(None).cast("string")).alias("backoff"),
            delay.alias("delay"),
            priority.alias("priority"),
            lifo.alias("lifo"),
            _kept(workload.retention.completed).alias("removeOnComplete"),
            _kept(workload.retention.failed).alias("removeOnFail"),
        )
    )


def _kept(count: int | None) -> Column:
    return sql.lit(None).cast("int") if count is None else sql.lit(count)
