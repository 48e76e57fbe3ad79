"""`watch`: deaf workers, growing backlogs and ended schedules of a live store."""

from __future__ import annotations

import click

from conformance.cli.options import configured
from reports.watch.options import WatchConfig


@click.command()
@click.argument("target")
@configured(WatchConfig)
def watch(config: WatchConfig, target: str) -> int:
    """Watch the queues of TARGET: `redis://host:port#prefix`, redis+cluster://…, redis+sentinel://…/MASTER.

    Only reads, in bounded parts. With --for, exit code 1: something was found (of --fail-on, if given); 4: too little
    was seen.
    """
    config.check()
    from reports.verbs.watch import watch_store  # noqa: PLC0415 - loaded only by this verb

    return watch_store(config, target)
