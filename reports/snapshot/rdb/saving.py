"""A snapshot from RDB files: the store at one instant, without a command to it. Spark is not needed for it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa

from conformance.gate.records import KIT_VERSION
from reports.snapshot.folders import Folder, explained_folder
from reports.snapshot.format import SnapshotManifest, buckets_for, claim_folder, write_manifest
from reports.snapshot.rdb.library import RdbPage, RdbReader, open_rdb
from reports.snapshot.rdb.meaning import RowsOfKeys
from reports.snapshot.rows import as_bytes
from reports.snapshot.store import (
    RowPlace,
    WrittenPart,
    collected_by_table,
    digests_in,
    files_in,
    script_facts,
    summed,
    write_rows,
)

WRITERS = 2
"""Threads that write files, in addition to the one that reads; each collects its own rows."""


@dataclass(frozen=True, kw_only=True)
class RdbSource:
    """RDB files to read: the files of one store, one from each node of a cluster. `queue` empty: all under the prefix.

    `name` is what the manifest calls the store; empty: the files.
    """

    files: Sequence[Path]
    prefix: str
    queue: str = ""
    database: int = 0
    name: str = ""

    @property
    def beginning(self) -> bytes:
        """The prefix of all keys to read."""
        return as_bytes(f"{self.prefix}:{self.queue}:" if self.queue else f"{self.prefix}:")


@dataclass(frozen=True)
class _OpenFile:
    path: Path
    facts: Mapping[str, str]
    pages: Iterator[RdbPage]

    @property
    def taken_ms(self) -> int:
        """When the server wrote it, Unix ms; RDB files say it in whole seconds."""
        return int(self.facts["ctime"]) * 1000 if "ctime" in self.facts else int(self.path.stat().st_mtime * 1000)


def save_rdb(source: RdbSource, folder: Folder) -> SnapshotManifest:
    """Keep the keys in the files as a snapshot.

    Raises UsageProblem for a file that cannot be read, EnvironmentProblem where the folder or the disk is at fault.
    """
    with ExitStack() as opened:
        files = [
            _opened_file(path, opened.enter_context(open_rdb(path, source.beginning, source.database)))
            for path in source.files
        ]
        claim_folder(folder)
        began = time.monotonic()
        taken_ms = max(file.taken_ms for file in files)
        keys, used_bytes = (sum(int(file.facts.get(fact, 0)) for file in files) for fact in ("keys", "used-mem"))
        buckets = buckets_for(keys, used_bytes)
        with explained_folder(folder):
            place = RowPlace(folder=folder, buckets=buckets, prefix=source.prefix)
            rows = RowsOfKeys(source.prefix, taken_ms)
            written = _write(_rows(rows, files), place)
    bullmq, digest = script_facts()
    tables, queues = summed(written, rows.trimmed)
    manifest = SnapshotManifest(
        kit=KIT_VERSION,
        bullmq=bullmq,
        scripts_sha256=digest,
        source=source.name or ", ".join(map(str, source.files)),
        prefix=source.prefix,
        queue=source.queue,
        taken_ms=taken_ms,
        reading_ms=int((time.monotonic() - began) * 1000),
        redis_settings={},
        redis_version=files[0].facts.get("redis-ver", "unknown"),
        rows=tables,
        moving=[],
        queues=queues,
        buckets=buckets,
        digests=digests_in(written),
        files=files_in(written),
    )
    write_manifest(folder, manifest)
    return manifest


def _opened_file(path: Path, reader: RdbReader) -> _OpenFile:
    """A file with its first page read: what it says of itself stands before the keys."""
    pages = reader.pages()
    first = next(pages)
    return _OpenFile(path, reader.facts(), chain([first], pages))


def _rows(rows: RowsOfKeys, files: Sequence[_OpenFile]) -> Iterator[pa.RecordBatch]:
    for file in files:
        for page in file.pages:
            yield from rows.batches(page)
    yield rows.rest()


def _write(batches: Iterator[pa.RecordBatch], place: RowPlace) -> list[WrittenPart]:
    """Write as many lots of rows at a time as there are threads, while the next one is read."""
    written: list[WrittenPart] = []
    waiting: deque[Future[WrittenPart]] = deque()
    with ThreadPoolExecutor(WRITERS) as pool:
        for number, (table, rows) in enumerate(collected_by_table(batches, place.buckets)):
            if len(waiting) >= WRITERS:
                written.append(waiting.popleft().result())
            waiting.append(pool.submit(write_rows, place, table, rows, part=0, attempt=0, number=number))
        written += [future.result() for future in waiting]
    return written
