"""`diff`: compare two stores, live or stored."""

from __future__ import annotations

from pathlib import Path

import click

from reports.options import insist_on_spark, properties, spark_options


@click.command()
@click.argument("expected")
@click.argument("actual")
@click.option("--queue", default="", help="Only this queue.")
@click.option("--job", default="", help="Only this job: shows all that both sides have of it.")
@click.option("--no-rule", multiple=True, help="Canonical rule to switch off (`list --rules` names them); repeatable.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder for differences and reports.")
@spark_options
def diff(  # noqa: PLR0917 - click passes options by name
    expected: str,
    actual: str,
    queue: str,
    job: str,
    no_rule: tuple[str, ...],
    out: Path | None,
    master: str,
    memory: str,
    conf: tuple[str, ...],
) -> int:
    """Compare EXPECTED with ACTUAL: folders of snapshots, or `redis://host:port#prefix`. Exit code 1: they differ."""
    insist_on_spark()
    from reports.verbs import compare  # noqa: PLC0415 - only this verb needs Spark

    spark = {"master": master, "memory": memory, "conf": properties(conf)}
    return compare(expected, actual, out, queue=queue, job=job, switched_off=no_rule, spark=spark)
