"""`snapshot`: keep everything under a prefix as Parquet."""

from __future__ import annotations

from pathlib import Path

import click

from reports.options import insist_on_spark, properties, say, spark_options


@click.command()
@click.option("--redis", required=True, help="URL of the Redis, or of a replica.")
@click.option("--prefix", default="bull", show_default=True, help="Key prefix of the queues.")
@click.option("--queue", default="", help="Only this queue; default: all under the prefix.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the Parquet files.")
@spark_options
def snapshot(  # noqa: PLR0917 - click passes options by name
    redis: str, prefix: str, queue: str, out: Path, master: str, memory: str, conf: tuple[str, ...]
) -> None:
    """Read a store once and keep it as typed tables (Parquet) with a manifest."""
    insist_on_spark()
    from reports.verbs import take_snapshot  # noqa: PLC0415 - only this verb needs Spark

    manifest = take_snapshot(redis, prefix, queue, out, master=master, memory=memory, conf=properties(conf))
    say(f"{manifest.jobs} jobs, {sum(manifest.rows.values())} rows in {out}")
