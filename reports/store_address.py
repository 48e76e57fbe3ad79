"""The address of a store for `diff` and `check`: the folder of a snapshot, a live Redis, or an RDB file."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from conformance.environment.prepare import announce
from conformance.problems import UsageProblem
from conformance.servers.sentinel import sentinel_url
from conformance.servers.setting import from_environment
from reports.distribution import Distribution
from reports.progress import shown
from reports.snapshot.folders import Folder, folder_at, is_elsewhere
from reports.snapshot.format import read_whole_manifest
from reports.snapshot.plan import RedisSource, keys_of
from reports.snapshot.rdb.replication import fetch_rdb
from reports.snapshot.rdb.saving import RdbSource, save_rdb
from reports.snapshot.store import save


@dataclass(frozen=True, kw_only=True)
class StoreAddress:
    """One side of a comparison. `queue` empty: every queue. `replicate`: fetch the RDB file of a live Redis.

    `keys_per_s`: how fast a live Redis may be read, as `RedisSource.keys_per_s`.
    """

    text: str
    queue: str = ""
    replicate: bool = False
    keys_per_s: float | None = 0

    @cached_property
    def source(self) -> RedisSource | RdbSource | None:
        """A store by its URL, or an RDB file, with the prefix after `#`; None for a folder.

        Sentinels are asked once, for a replica: all reads go to the same server. Raises Problems.
        """
        place, _, prefix = self.text.partition("#")
        if is_elsewhere(self.text):
            return None
        if "://" in self.text or place.startswith("env:"):
            sentinels = sentinel_url(from_environment(place))
            redis = place if sentinels is None else sentinels.replica().url
            return RedisSource(redis=redis, prefix=prefix or "bull", queue=self.queue, keys_per_s=self.keys_per_s)
        if Path(place).is_file():
            return RdbSource(files=[Path(place)], prefix=prefix or "bull", queue=self.queue)
        return None

    def prove(self) -> None:
        """Raise a Problem that is known before anything slow starts.

        UsageProblem for an invalid address or an incomplete snapshot, EnvironmentProblem for a Redis that cannot be
        reached.
        """
        source = self.source
        if source is None:
            read_whole_manifest(folder_at(self.text))
        elif isinstance(source, RedisSource):
            keys_of(source.address)

    def read(self, folder: Folder, scratch: Path, place: Distribution | None = None) -> Folder:
        """Read it; returns the folder of its snapshot.

        `folder`: for the snapshot, unless it is one already. `scratch`: an empty folder for an RDB file. `place`: where
        the parts of a live store are read; None: on this machine. Raises Problems.
        """
        source = self.source
        if source is None:
            return folder_at(self.text)
        if isinstance(source, RedisSource):
            if not self.replicate:
                save(source, folder, place, announce=announce, watch=shown)
                return folder
            source = replicated(source, scratch)
        save_rdb(source, folder)
        return folder


def replicated(source: RedisSource, folder: Path) -> RdbSource:
    """Fetch the RDB files of a store into this folder. Raises Problems."""
    address = source.address
    files = fetch_rdb(address, folder)
    return RdbSource(files=files, prefix=source.prefix, queue=source.queue, database=address.db, name=address.text)


def store_addresses(
    *texts: str, queue: str = "", replicate: bool = False, keys_per_s: float | None = 0
) -> tuple[StoreAddress, ...]:
    """Parse addresses. Raises UsageProblem for --replicate without a live Redis."""
    stores = tuple(StoreAddress(text=text, queue=queue, replicate=replicate, keys_per_s=keys_per_s) for text in texts)
    if replicate and not any(isinstance(store.source, RedisSource) for store in stores):
        raise UsageProblem("--replicate needs a live Redis", hint="leave it out, or give redis://host:port")
    return stores


def start_reading(
    store: StoreAddress, folder: Folder, scratch: Path, place: Distribution | None = None
) -> Future[Folder]:
    """Start `store.read` in a thread, so that both stores of a comparison are read at the same time.

    The thread is a daemon, so an interrupted command does not wait for it.
    """
    reading: Future[Folder] = Future()

    def read() -> None:
        try:
            reading.set_result(store.read(folder, scratch, place))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is wanted
            reading.set_exception(error)

    threading.Thread(target=read, name=f"reading {store.text}", daemon=True).start()
    return reading
