"""Differences that Spark has found, kept as Parquet: by its JVM on this machine, by executors in any other folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from reports.diff.values import DIFFERENCE_DDL
from reports.snapshot.folders import Folder, explained_folder

_Batches = Iterable[pa.RecordBatch]


def write_differences(spark: SparkSession, found: DataFrame, folder: Folder) -> DataFrame:
    """Write them, in place of what is there, and give what was written: so nothing is computed twice.

    Raises EnvironmentProblem where the folder refuses, Spark's exceptions where an executor fails.
    """
    if folder.is_here:
        found.write.mode("overwrite").parquet(str(folder))
        return spark.read.schema(DIFFERENCE_DDL).parquet(str(folder))
    with explained_folder(folder):
        folder.clear()
    names = [row["name"] for row in found.mapInArrow(_writer(folder), "name string").collect()]
    with explained_folder(folder):
        # An attempt that failed may have left a file.
        for name in set(folder.names()) - set(names):
            folder.remove(name)
    return spark.range(1).mapInArrow(_reader(folder, names), DIFFERENCE_DDL)


def _writer(folder: Folder) -> Callable[[_Batches], Iterator[pa.RecordBatch]]:
    """A function that writes the differences of a partition, and gives the name of the file."""

    def write(batches: _Batches) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "it runs on an executor"
        listed = [batch for batch in batches if len(batch)]
        if listed:
            name = f"part-{context.partitionId():05d}-a{context.attemptNumber()}.zstd.parquet"
            folder.write_table(name, pa.Table.from_batches(listed), compression="zstd")
            yield pa.RecordBatch.from_pydict({"name": [name]})

    return write


def _reader(folder: Folder, names: Sequence[str]) -> Callable[[_Batches], Iterator[pa.RecordBatch]]:
    """A function from anything to the differences in these files."""

    def read(batches: _Batches) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            for name in names:
                with folder.opened(name) as file:
                    yield from pyarrow.parquet.ParquetFile(file).read(use_threads=False).to_batches()

    return read
