"""Each job of a workload, as Spark computes it from the seed."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from reports.load.workload import Workload

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
