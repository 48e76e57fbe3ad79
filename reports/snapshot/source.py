"""The Spark data source `bullmq`: a store as typed tables.

    register(spark)
    spark.read.format("bullmq").option("redis", "redis://127.0.0.1:6379").option("queue", "mail").load()

Options: `redis` (a URL; of a replica too), `prefix` (`bull`), `queue` (default: all), `table` (a table of
`conformance.observe.tables`; default: wide rows of all of them, in one pass over the store).

A query reads what it asks for: a condition `queue = 'mail'` is as good as the option, the jobs of other tables are not
read, of `memberships` only the containers that `container` names, and of `jobs` in one queue only the ids named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, In, InputPartition

from conformance.problems import Problem, UsageProblem
from conformance.servers.connection import explained
from reports.snapshot.format import ARROW, DDL, TYPED
from reports.snapshot.plan import EVERYTHING, KeyspacePart, RedisSource, Wanted, plan_reading
from reports.snapshot.reading import read_part
from reports.spark_problems import ExecutorProblem

_SQL_NAMES = {pa.string(): "string", pa.int64(): "bigint", pa.float64(): "double"}


def register(spark: SparkSession) -> None:
    """Let this session read the format `bullmq`, and let conditions of its queries decide what is read."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(BullmqSource)


@dataclass
class PartToRead(InputPartition):
    """A part of the store on its way to an executor."""

    part: KeyspacePart


class BullmqSource(DataSource):
    """`spark.read.format("bullmq")`."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "bullmq"

    def schema(self) -> str:
        """Wide rows, or the columns of the table asked for."""
        table = self.options.get("table", "")
        return typed_ddl(table) if table else DDL

    def reader(self, schema: Any) -> DataSourceReader:
        """A reader of this store."""
        del schema
        return StoreReader(source_of(self.options), self.options.get("table", ""))


class StoreReader(DataSourceReader):
    """Reads the parts of a store that a query asks for."""

    def __init__(self, source: RedisSource, table: str) -> None:
        self._source = source
        self._table = table
        self._wanted = Wanted(tables=frozenset({table})) if table else EVERYTHING

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
        """Use the conditions of a query to read less. Spark applies all of them again."""
        named = {place: values for each in filters for place, values in self._names(each)}
        queues = named.get("queue", frozenset())
        if len(queues) == 1 and not self._source.queue:
            self._source = replace(self._source, queue=next(iter(queues)))
        tables = named.get("table", self._wanted.tables)
        is_one_table = tables is not None and len(tables) == 1
        self._wanted = Wanted(
            tables=tables,
            containers=named.get("name") if is_one_table else None,
            ids=named.get("id") if is_one_table else None,
        )
        yield from filters

    def _names(self, condition: Filter) -> Iterator[tuple[str, frozenset[str]]]:
        """The column of the wide row that must have one of these values, if the condition says that."""
        if isinstance(condition, EqualTo | In):
            values = [condition.value] if isinstance(condition, EqualTo) else condition.value
            column = ".".join(condition.attribute)
            place = TYPED[self._table].get(column) if self._table else column
            if place and all(isinstance(value, str) for value in values):
                yield place, frozenset(values)

    def partitions(self) -> list[InputPartition]:
        """Cut the store."""
        with explained(self._source.address):
            return [PartToRead(part) for part in plan_reading(self._source, self._wanted).parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        assert isinstance(partition, PartToRead)
        try:
            for batch in read_part(self._source, partition.part):
                yield only_table(batch, self._table) if self._table else batch
        except Problem as problem:
            raise ExecutorProblem(problem) from problem


def source_of(options: Any) -> RedisSource:
    """The options as a value. Raises UsageProblem where `redis` is missing."""
    if not options.get("redis"):
        raise UsageProblem("the option redis is missing", hint="as in .option('redis', 'redis://127.0.0.1:6379')")
    return RedisSource(redis=options["redis"], prefix=options.get("prefix", "bull"), queue=options.get("queue", ""))


def typed_ddl(table: str) -> str:
    """The columns of one table, as Spark spells them. Raises UsageProblem for an unknown table."""
    if table not in TYPED:
        raise UsageProblem(f"there is no table {table!r}", hint=f"the tables are: {', '.join(TYPED)}")
    kinds = {name: _SQL_NAMES.get(ARROW.field(name).type, "map<string,string>") for name in ARROW.names}
    return ", ".join(f"{column} {kinds[place]}" for column, place in TYPED[table].items())


def only_table(batch: pa.RecordBatch, table: str) -> pa.RecordBatch:
    """The rows of one table with its own columns."""
    rows = batch.filter(pa.compute.equal(batch.column("table"), table))
    places = TYPED[table]
    return pa.RecordBatch.from_arrays([rows.column(place) for place in places.values()], names=list(places))


__all__ = ["BullmqSource", "register"]
