"""`load`, `snapshot`, `diff`, `check` and `history`: the verbs of the pipeline for stores.

The work is done in `reports.verbs`, which is imported only when one of them runs: it needs the extra `spark`.
"""

from __future__ import annotations

from pathlib import Path

import click

from conformance.cli.options import configured
from conformance.environment.prepare import announce
from reports.options import CheckConfig, DiffConfig, HistoryConfig, LoadConfig, SnapshotConfig, require_spark


@click.command()
@configured(LoadConfig)
def load(config: LoadConfig) -> int:
    """Load queues, and leave the final state, the measurements and their reports in --out.

    The driver started by COMMAND (after `--`) adds the jobs and works them off, unless --producer or --worker names
    another client. Exit code 1: a threshold is missed; 4: one cannot be decided.
    """
    require_spark()
    from reports.verbs.load import load_queues  # noqa: PLC0415

    return load_queues(config)


@click.command()
@configured(SnapshotConfig)
def snapshot(config: SnapshotConfig) -> None:
    """Read a store once and keep it as typed tables (Parquet) with a manifest."""
    config.check()
    require_spark()
    from reports.verbs.snapshot import take_snapshot  # noqa: PLC0415

    manifest = take_snapshot(config)
    announce(f"{manifest.jobs} jobs, {sum(manifest.rows.values())} rows in {config.out}")


@click.command()
@click.argument("expected")
@click.argument("actual")
@configured(DiffConfig)
def diff(config: DiffConfig, expected: str, actual: str) -> int:
    """Compare EXPECTED with ACTUAL: folders of snapshots, `redis://host:port#prefix`, or RDB files.

    Exit code 1: they differ.
    """
    require_spark()
    from reports.verbs.diff import compare_stores  # noqa: PLC0415

    return compare_stores(config, expected, actual)


@click.command()
@click.argument("store", metavar="TARGET")
@configured(CheckConfig)
def check(config: CheckConfig, store: str) -> int:
    """Check TARGET: a live store (`redis://host:port#prefix`), an RDB file, or the folder of a snapshot.

    A live store is only read, slowly; suspicious places are read again and count only if they stay. Exit code 1:
    something is damaged.
    """
    require_spark()
    from reports.verbs.checks import check_store  # noqa: PLC0415

    return check_store(config, store)


@click.command()
@click.argument("recorded", metavar="FILE", type=click.Path(path_type=Path))
@configured(HistoryConfig)
def history(config: HistoryConfig, recorded: Path) -> int:
    """Check the history.jsonl of a chaos run with all checks of single jobs. Exit code 1: findings."""
    require_spark()
    from reports.verbs.checks import check_history  # noqa: PLC0415

    return check_history(config, recorded)
