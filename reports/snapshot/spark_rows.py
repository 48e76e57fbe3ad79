"""A stored snapshot as a DataFrame: Spark's JVM reads the folders of this machine, executors all others, through Arrow.

The JVM reads only the columns that a query asks for, but knows S3 only with classes that do not come with pyspark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, In, InputPartition

from reports.snapshot.folders import Folder
from reports.snapshot.format import ARROW, DDL, ROWS, TYPED, SnapshotFolder, open_snapshot_folder, read_bucket


@dataclass(frozen=True, kw_only=True)
class StoredSnapshot(SnapshotFolder):
    """A snapshot that Spark can query. `rows` are wide rows."""

    rows: DataFrame

    def table(self, name: str) -> DataFrame:
        """One table with its own columns, for example `table("jobs").select("fields.data")`."""
        columns = [sql.col(place).alias(column) for column, place in TYPED[name].items()]
        return self.rows.where(sql.col("table") == name).select(*columns)


def open_stored(spark: SparkSession, folder: Folder) -> StoredSnapshot:
    """A snapshot that was saved. Raises as `open_snapshot_folder`."""
    found = open_snapshot_folder(folder)
    rows = rows_for_spark(spark, found.folder, found.manifest.buckets)
    return StoredSnapshot(name=found.name, folder=found.folder, manifest=found.manifest, rows=rows)


def rows_for_spark(spark: SparkSession, folder: Folder, buckets: int) -> DataFrame:
    """All wide rows of a snapshot in `buckets` buckets. A store without keys, as under a wrong prefix, has no files."""
    if folder.is_here:
        if not (folder / ROWS).exists():
            return spark.createDataFrame([], DDL)
        return spark.read.schema(DDL).parquet(str(folder / ROWS)).select(*ARROW.names)
    spark.dataSource.register(RemoteRows)
    return spark.read.format(RemoteRows.name()).options(**asdict(folder), buckets=str(buckets)).load()


@dataclass
class BucketPartition(InputPartition):
    """A bucket on its way to an executor."""

    bucket: int


class RemoteRows(DataSource):
    """`spark.read.format("bullmq-kept-rows")`: wide rows of the snapshot in a folder."""

    @classmethod
    def name(cls) -> str:
        """The argument of `format`."""
        return "bullmq-kept-rows"

    def schema(self) -> str:
        """Wide rows."""
        return DDL

    def reader(self, schema: Any) -> DataSourceReader:
        """A reader of this folder."""
        del schema
        folder = Folder(**{each.name: self.options[each.name] for each in fields(Folder)})
        return RemoteRowsReader(folder, int(self.options["buckets"]))


class RemoteRowsReader(DataSourceReader):
    """Reads a snapshot bucket by bucket, and only the tables that are asked for."""

    def __init__(self, folder: Folder, buckets: int) -> None:
        self._folder = folder
        self._buckets = buckets
        self._tables = list(TYPED)

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
        """Take those that say which tables are wanted; Spark applies the others."""
        for wanted in filters:
            if isinstance(wanted, EqualTo | In) and wanted.attribute == ("table",):
                named = {wanted.value} if isinstance(wanted, EqualTo) else set(wanted.value)
                self._tables = [table for table in self._tables if table in named]
            else:
                yield wanted

    def partitions(self) -> list[InputPartition]:
        """A task for each bucket."""
        return [BucketPartition(bucket) for bucket in range(self._buckets)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one bucket."""
        assert isinstance(partition, BucketPartition)
        for table in self._tables:
            for batch in read_bucket(self._folder, table, partition.bucket, self._buckets).to_batches():
                named = pa.array([table] * len(batch), pa.string())
                yield pa.RecordBatch.from_arrays([named, *batch.columns], schema=ARROW)
