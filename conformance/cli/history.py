"""`history`: check a recorded run job by job, however long it is."""

from __future__ import annotations

from pathlib import Path

import click

from reports.options import insist_on_spark, properties, spark_options


@click.command()
@click.argument("recorded", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--snapshot", type=click.Path(path_type=Path), default=None, help="Folder of the snapshot taken after the run."
)
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder for history.json and junit.xml.")
@spark_options
def history(  # noqa: PLR0917 - click passes options by name
    recorded: Path, snapshot: Path | None, out: Path | None, master: str, memory: str, conf: tuple[str, ...]
) -> int:
    """Check the history.jsonl of a chaos run with all checks that look at one job at a time. Exit code 1: findings."""
    insist_on_spark()
    from reports.verbs import check_recorded  # noqa: PLC0415 - only this verb needs Spark

    return check_recorded(recorded, snapshot, out, spark={"master": master, "memory": memory, "conf": properties(conf)})
