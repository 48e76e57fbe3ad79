"""The address of a store for `diff` and `check`: the folder of a snapshot, a live Redis, or an RDB file."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from conformance.environment.prepare import announce
from conformance.problems import UsageProblem
from reports.snapshot.folders import Folder, folder_at, is_elsewhere
from reports.snapshot.format import read_whole_manifest
from reports.snapshot.plan import RedisSource, keys_of
from reports.snapshot.rdb.replication import fetch_rdb
from reports.snapshot.rdb.saving import RdbSource, save_rdb
from reports.snapshot.store import StoredSnapshot, open_stored, save

ROWS_OF_A_KEY = 6
"""Typical rows of a job: its hash, its place in a container, and four events."""

BYTES_OF_A_ROW = 54
"""In a compressed RDB file, in which four rows of six are events."""


@dataclass(frozen=True, kw_only=True)
class StoreAddress:
    """One side of a comparison. `queue` empty: every queue. `replicate`: fetch the RDB file of a live Redis."""

    text: str
    queue: str = ""
    replicate: bool = False

    @property
    def source(self) -> RedisSource | RdbSource | None:
        """A store by its URL, or an RDB file, with the prefix after `#`; None for a folder."""
        place, _, prefix = self.text.partition("#")
        if is_elsewhere(self.text):
            return None
        if "://" in self.text:
            return RedisSource(redis=place, prefix=prefix or "bull", queue=self.queue)
        if Path(place).is_file():
            return RdbSource(files=[Path(place)], prefix=prefix or "bull", queue=self.queue)
        return None

    @property
    def needs_spark(self) -> bool:
        """Whether Spark reads it."""
        return isinstance(self.source, RedisSource) and not self.replicate

    def rows_about(self) -> int:
        """The number of rows, an estimate unless it is a snapshot; known before anything slow starts.

        Raises UsageProblem for an invalid address or an incomplete snapshot, EnvironmentProblem for a Redis that cannot
        be reached.
        """
        source = self.source
        if source is None:
            return sum(read_whole_manifest(folder_at(self.text)).rows.values())
        if isinstance(source, RedisSource):
            return ROWS_OF_A_KEY * keys_of(source.address)
        return sum(file.stat().st_size for file in source.files) // BYTES_OF_A_ROW

    def read(self, folder: Folder, scratch: Path) -> Folder | None:
        """Read it if that needs no Spark; returns the folder of the snapshot, or None if Spark has to read it.

        `folder`: for the snapshot, unless it is one already. `scratch`: an empty folder for an RDB file.
        Raises Problems.
        """
        source = self.source
        if isinstance(source, RedisSource):
            if not self.replicate:
                return None
            source = replicated(source, scratch)
        if source is None:
            return folder_at(self.text)
        save_rdb(source, folder)
        return folder

    def opened(self, session: SparkSession, folder: Folder, read: Folder | None) -> StoredSnapshot:
        """Open the store for a comparison; `read`: the result of `read`. Raises Problems."""
        if read is not None:
            return open_stored(session, read)
        source = self.source
        assert isinstance(source, RedisSource)
        return save(session, source, folder, announce=announce)


def replicated(source: RedisSource, folder: Path) -> RdbSource:
    """Fetch the RDB files of a store into this folder. Raises Problems."""
    address = source.address
    files = fetch_rdb(address, folder)
    return RdbSource(files=files, prefix=source.prefix, queue=source.queue, database=address.db, name=address.text)


def store_addresses(*texts: str, queue: str = "", replicate: bool = False) -> tuple[StoreAddress, ...]:
    """Parse addresses. Raises UsageProblem for --replicate without a live Redis."""
    stores = tuple(StoreAddress(text=text, queue=queue, replicate=replicate) for text in texts)
    if replicate and not any(isinstance(store.source, RedisSource) for store in stores):
        raise UsageProblem("--replicate needs a live Redis", hint="leave it out, or give redis://host:port")
    return stores


def start_reading(store: StoreAddress, folder: Folder, scratch: Path) -> Future[Folder | None]:
    """Start `store.read` in a thread: Spark takes as long to start as a server to send its file.

    The thread is a daemon, so an interrupted command does not wait for it.
    """
    reading: Future[Folder | None] = Future()

    def read() -> None:
        try:
            reading.set_result(store.read(folder, scratch))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is wanted
            reading.set_exception(error)

    threading.Thread(target=read, name=f"reading {store.text}", daemon=True).start()
    return reading
