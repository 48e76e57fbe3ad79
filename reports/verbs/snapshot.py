"""`snapshot`: read a store once and keep it, by scanning it, by replication, or from RDB files."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conformance.environment.prepare import announce
from reports.named_stores import replicated
from reports.session import settings_of, spark_session
from reports.snapshot.folders import Folder, prove_room
from reports.snapshot.format import SnapshotManifest
from reports.snapshot.plan import RedisSource
from reports.snapshot.rdb.saving import RdbSource, save_rdb
from reports.snapshot.store import save


def take_snapshot(source: RedisSource, out: Folder, *, spark: Mapping[str, Any]) -> SnapshotManifest:
    """Scan a store and keep it. Raises Problems."""
    source.address  # noqa: B018 - a mistake in the URL is reported before Spark starts, which takes seconds
    prove_room(out)
    with spark_session(settings_of(spark)) as session:
        return save(session, source, out, announce=announce).manifest


def take_snapshot_by_replication(source: RedisSource, out: Folder) -> SnapshotManifest:
    """Request the RDB files of a store as a replica does, and keep their content. Raises Problems."""
    source.address  # noqa: B018 - as above
    prove_room(out)
    with tempfile.TemporaryDirectory(prefix="bullmq-conformance-") as folder:
        return save_rdb(replicated(source, Path(folder)), out)


def snapshot_of_files(source: RdbSource, out: Folder) -> SnapshotManifest:
    """Keep the content of RDB files. Raises Problems."""
    prove_room(out)
    return save_rdb(source, out)
