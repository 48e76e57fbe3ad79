"""Stores that are read while Spark starts: each is read once, and kept as a snapshot below the output folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from conformance.problems import Undecidable
from reports.report_folder import ReportFolder, passing_folder, report_folder
from reports.snapshot.folders import Folder
from reports.snapshot.format import SnapshotManifest
from reports.snapshot.store import StoredSnapshot
from reports.store_address import StoreAddress, start_reading


@dataclass(frozen=True, kw_only=True)
class StoreReading:
    """A store that is being read. `snapshot`: its folder, or None if only Spark can read the store."""

    store: StoreAddress
    folder: Folder
    snapshot: Future[Folder | None]

    def kept(self) -> Folder:
        """The folder of its snapshot; only for a store that needs no Spark. Raises Problems."""
        kept = self.snapshot.result()
        assert kept is not None, "only Spark can read this store"
        return kept

    def stored(self, session: SparkSession) -> StoredSnapshot:
        """The store for Spark, which reads it now if nothing else can. Raises Problems."""
        return self.store.opened(session, self.folder, self.snapshot.result())


@contextmanager
def store_readings(
    stores: Sequence[StoreAddress], names: Sequence[str], folder: Folder
) -> Iterator[list[StoreReading]]:
    """Start to read all stores at the same time; each is kept below the folder under its name."""
    with tempfile.TemporaryDirectory(prefix="bullmq-conformance-", ignore_cleanup_errors=True) as scratch:
        readings = []
        for name, store in zip(names, stores, strict=True):
            (Path(scratch) / name).mkdir()
            snapshot = start_reading(store, folder / name, Path(scratch) / name)
            readings.append(StoreReading(store=store, folder=folder / name, snapshot=snapshot))
        yield readings


def demand_content(queue: str, *stores: SnapshotManifest) -> None:
    """Raise Undecidable if no store has a key, or if none has the queue: nothing is wrong with what is not there."""
    if queue and not any(queue in store.queues for store in stores):
        raise Undecidable(f"there is no queue {queue!r}, so nothing was checked", hint="check --queue and the prefix")
    if not any(sum(store.rows.values()) for store in stores):
        raise Undecidable("there is no queue in the store, so nothing was checked", hint="check the address and prefix")


def output_folder(out: Folder | None) -> AbstractContextManager[ReportFolder]:
    """The user's folder, or a temporary one."""
    return passing_folder() if out is None else report_folder(out)
