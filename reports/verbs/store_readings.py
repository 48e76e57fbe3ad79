"""Stores that a verb reads: each is read once, and kept as a snapshot below the output folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from conformance.problems import Undecidable
from reports.distribution import Distribution
from reports.report_folder import ReportFolder, passing_folder, report_folder
from reports.snapshot.folders import Folder
from reports.snapshot.format import SnapshotFolder, SnapshotManifest, open_snapshot_folder
from reports.store_address import StoreAddress, start_reading


@contextmanager
def store_readings(
    stores: Sequence[StoreAddress], names: Sequence[str], folder: Folder, place: Distribution | None
) -> Iterator[list[SnapshotFolder]]:
    """Read all stores at the same time; each is kept below the folder under its name. Raises Problems."""
    with tempfile.TemporaryDirectory(prefix="bullmq-conformance-", ignore_cleanup_errors=True) as scratch:
        readings = []
        for name, store in zip(names, stores, strict=True):
            (Path(scratch) / name).mkdir()
            readings.append(start_reading(store, folder / name, Path(scratch) / name, place))
        yield [open_snapshot_folder(reading.result()) for reading in readings]


def demand_content(queue: str, *stores: SnapshotManifest) -> None:
    """Raise Undecidable if no store has a key, or if none has the queue: nothing is wrong with what is not there."""
    if queue and not any(queue in store.queues for store in stores):
        raise Undecidable(f"there is no queue {queue!r}, so nothing was checked", hint="check --queue and the prefix")
    if not any(sum(store.rows.values()) for store in stores):
        raise Undecidable("there is no queue in the store, so nothing was checked", hint="check the address and prefix")


def demand_both(*sides: SnapshotFolder) -> None:
    """Raise Undecidable if only one store has keys under its prefix: a wrong prefix is not a difference of jobs."""
    for side in sides:
        if not sum(side.manifest.rows.values()):
            raise Undecidable(
                f"{side.manifest.source} has no key under the prefix {side.manifest.prefix!r}, so nothing was compared",
                hint="put the right prefix after `#`, as in redis://127.0.0.1:6379#bull",
            )


def output_folder(out: Folder | None) -> AbstractContextManager[ReportFolder]:
    """The user's folder, or a temporary one."""
    return passing_folder() if out is None else report_folder(out)
