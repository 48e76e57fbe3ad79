"""The jobs of a workload, as Spark computes them: each from the seed and its own number, and from nothing else.

Any partition on any machine gives the same job, so that a producer that is started again, or on another executor, adds
what the first one would have added.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from reports.workload.description import Workload

_FILLING = "abcdefghijklmnopqrstuvwxyz0123456789"
_STEPS = 2**53
"""A draw is one of so many equal steps: as many as a double can tell apart."""


def jobs_of(spark: SparkSession, workload: Workload, partitions: int) -> DataFrame:
    """One row per job to add, in the order of the schedule within each partition.

    Columns: `index`; `queue`; `id`; `name`; `data` and `opts`, JSON; `scheduled_ms` since the start of the load; and
    `children`, how many children the job is added with as a flow (0: it is no flow).
    """
    index = sql.col("index")
    draws = _Draws(workload.seed)
    before, after = workload.around_number
    number = sql.pmod(index, sql.lit(workload.queues))
    frame = spark.range(0, workload.jobs, 1, partitions).withColumnRenamed("id", "index")
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
    return ((sql.col("index") + offset) * sql.lit(1000.0 / workload.rate)).cast("bigint")


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
