"""`snapshot`: read a store once and keep it, by scanning it, by replication, or from RDB files."""

from __future__ import annotations

import tempfile
from pathlib import Path

from conformance.environment.prepare import announce
from reports.options import SnapshotConfig
from reports.progress import shown
from reports.snapshot.folders import folder_at, prove_room
from reports.snapshot.format import SnapshotManifest
from reports.snapshot.plan import RedisSource
from reports.snapshot.rdb.saving import RdbSource, save_rdb
from reports.snapshot.store import save
from reports.store_address import replicated
from reports.verbs.places import place_of


def take_snapshot(config: SnapshotConfig) -> SnapshotManifest:
    """Read the store that the options name, and keep it. Raises Problems."""
    out = folder_at(config.out)
    if config.rdb:
        prove_room(out)
        files = RdbSource(files=config.rdb, prefix=config.prefix, queue=config.queue, database=config.database)
        return save_rdb(files, out)
    source = RedisSource(redis=config.redis, prefix=config.prefix, queue=config.queue)
    source.address  # noqa: B018 - a mistake in the URL is reported before anything slow starts
    prove_room(out)
    if config.replicate:
        with tempfile.TemporaryDirectory(prefix="bullmq-conformance-") as folder:
            return save_rdb(replicated(source, Path(folder)), out)
    with place_of(config) as place:
        return save(source, out, place, announce=announce, watch=shown)
