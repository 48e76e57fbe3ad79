"""The place where a verb works: this process, or Spark where the options name a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from reports.distribution import Distribution, kept_processes
from reports.lazy_pandas import import_pandas_lazily
from reports.options import SparkConfig
from reports.snapshot.table_cache import table_cache


@contextmanager
def place_of(config: SparkConfig) -> Iterator[Distribution | None]:
    """The executors of Spark if the options ask for them; None: this machine. Raises Problems.

    Processes of this machine end with the block, and tables in memory are given up.
    """
    if not config.wants_spark:
        import_pandas_lazily()
        with kept_processes(), table_cache():
            yield None
        return
    from reports.session import OnSpark, settings_of, spark_session  # noqa: PLC0415 - it takes half a second

    with spark_session(settings_of(config)) as session:
        yield OnSpark(session)
