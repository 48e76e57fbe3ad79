"""How a snapshot is stored: the columns of its rows, its files, and the manifest that is written last. No Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from conformance.problems import UsageProblem
from reports.snapshot.folders import UNFINISHED, Folder, explained_folder
from reports.snapshot.table_cache import cache_table, cached_table

SCHEMA_VERSION = 3
"""Written into every manifest; a reader refuses what it does not know."""

DDL = (
    "table string, queue string, id string, name string, key string, position bigint, score double, value string, "
    "ttl_ms bigint, expires_ms bigint, fields map<string,string>"
)
"""The wide row, as Spark spells it: one schema for all tables, so that one pass over the store fills them all.

Texts are the bytes that Redis holds, also where these are not UTF-8.
"""

ARROW = pa.schema(
    [
        ("table", pa.string()),
        ("queue", pa.string()),
        ("id", pa.string()),
        ("name", pa.string()),
        ("key", pa.string()),
        ("position", pa.int64()),
        ("score", pa.float64()),
        ("value", pa.string()),
        ("ttl_ms", pa.int64()),
        ("expires_ms", pa.int64()),
        ("fields", pa.map_(pa.string(), pa.string())),
    ]
)
"""The wide row, as Arrow spells it."""

TYPED: Mapping[str, Mapping[str, str]] = {
    "jobs": {"queue": "queue", "id": "id", "fields": "fields"},
    "memberships": {"queue": "queue", "container": "name", "job": "id", "position": "position", "score": "score"},
    "locks": {"queue": "queue", "job": "id", "token": "value", "ttl_ms": "ttl_ms", "expires_ms": "expires_ms"},
    "dependencies": {
        "queue": "queue",
        "parent": "id",
        "kind": "name",
        "child": "key",
        "value": "value",
        "score": "score",
    },
    "logs": {"queue": "queue", "job": "id", "position": "position", "text": "value"},
    "events": {"queue": "queue", "id": "key", "event": "name", "job": "id", "fields": "fields"},
    "schedulers": {"queue": "queue", "id": "id", "next": "score", "fields": "fields"},
    "deduplications": {
        "queue": "queue",
        "id": "id",
        "job": "value",
        "ttl_ms": "ttl_ms",
        "expires_ms": "expires_ms",
        "next": "fields",
    },
    "metas": {"queue": "queue", "fields": "fields"},
    "markers": {"queue": "queue", "member": "name", "score": "score"},
    "limiters": {"queue": "queue", "name": "name", "value": "value", "ttl_ms": "ttl_ms", "expires_ms": "expires_ms"},
    "stalled_checks": {
        "queue": "queue",
        "name": "name",
        "value": "value",
        "ttl_ms": "ttl_ms",
        "expires_ms": "expires_ms",
    },
    "counters": {"queue": "queue", "name": "name", "value": "value"},
    "metrics": {"queue": "queue", "kind": "name", "fields": "fields", "points": "value"},
    "expiries": {"key": "key", "kind": "name", "ttl_ms": "ttl_ms", "expires_ms": "expires_ms"},
    "unknown": {"key": "key", "type": "name", "value": "value", "ttl_ms": "ttl_ms", "expires_ms": "expires_ms"},
}
"""For each table its columns, and where in the wide row each of them stands.

`points` and the value of an unknown key are JSON; everything else is as `conformance.observe.tables` describes it.
"""


UUID_TEXT = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"

GENERATED_ID = rf"^(repeat:.+:\d{{12,14}}|{UUID_TEXT})$"
"""Ids of scheduler iterations, and uuids, as an expression that Arrow and Spark understand alike."""

GENERATED_CHILD = rf":{UUID_TEXT}$"
"""Keys of children whose ids are uuids."""

ROWS = "rows"
"""Folder of the Parquet files inside a snapshot's folder, with a folder for each table below it."""

DIGESTS = "digests"
"""Folder of the digests: to each file of rows that belong to jobs one of the same name, whose rows are in its order."""

MOST_BUCKETS = 512

BUCKETS_OF_A_LOT = 64
"""Buckets of rows that are written together; with more buckets, more rows are collected first (`lots_for`)."""

KEYS_PER_BUCKET = 131_072

BYTES_PER_BUCKET = 512 * 1024 * 1024
"""Of Redis' memory. A column of texts in Arrow must stay below 2 GiB, and a task holds one bucket of both sides."""

_LONGEST_ID_AT_ONCE = 64
_ALL_ONES = np.uint32(0xFFFFFFFF)
_CRC = np.array([crc32(bytes([byte]), 0xFFFFFFFF) ^ 0xFFFFFFFF for byte in range(256)], np.uint32)
"""The table of CRC-32, as zlib has it: what becomes of each byte when nothing was before it."""

_STORED = pa.schema([field for field in ARROW if field.name != "table"])
_REPEATED = ["queue", "name", "fields.key_value.key"]
_SUFFIX = ".parquet"
_HASHES = frozenset({"key", "texts", "opts"})


def buckets_for(keys: int, used_bytes: int) -> int:
    """The number of buckets for a number of keys that use this much memory of Redis (bytes).

    A power of two, so that fewer buckets are unions of more.
    """
    buckets = max(-(-keys // KEYS_PER_BUCKET), used_bytes // BYTES_PER_BUCKET)
    return min(MOST_BUCKETS, power_of_two(buckets))


def lots_for(buckets: int) -> int:
    """How many times as many rows have to be read and written together as in a store with few buckets.

    Each file then still has some thousands of rows, and the number of files per row does not grow.
    """
    return max(1, buckets // BUCKETS_OF_A_LOT)


def power_of_two(number: int) -> int:
    """The smallest power of two that is not smaller."""
    return 1 << max(0, number - 1).bit_length()


def bucket_of(job: bytes, buckets: int) -> int:
    """Return the bucket of all rows with this job id, in every table.

    Two snapshots are compared bucket by bucket, and nothing has to be brought together first. The hash decides only
    where a row lies, never whether two rows are equal.
    """
    return crc32(job) % buckets


def buckets_of(ids: pa.Array, buckets: int) -> Any:
    """`bucket_of` for a column of ids at once, as an array of numbers; null counts as empty."""
    known = ids.fill_null(b"")
    lengths = pc.binary_length(known).to_numpy(zero_copy_only=False)
    longest = int(lengths.max(initial=0))
    if longest > _LONGEST_ID_AT_ONCE:
        return np.array([bucket_of(job, buckets) for job in known.to_pylist()], np.int16)
    first = np.frombuffer(known.buffers()[1], np.int32)[known.offset : known.offset + len(known)]
    data = np.frombuffer(known.buffers()[2] or b"", np.uint8)
    checksums = np.full(len(known), _ALL_ONES, np.uint32)
    for step in range(longest):
        rows = np.flatnonzero(lengths > step)
        before = checksums[rows]
        checksums[rows] = _CRC[(before ^ data[first[rows] + step]) & 0xFF] ^ (before >> np.uint32(8))
    return ((checksums ^ _ALL_ONES) % np.uint32(buckets)).astype(np.int16)


def file_name(bucket: int, part: int, attempt: int, number: int) -> str:
    """The name of a file; no two attempts at a part write the same one."""
    return f"b{bucket:03d}-p{part:05d}-a{attempt}-{number:03d}{_SUFFIX}"


def write_file(folder: Folder, table: str, name: str, rows: pa.Table) -> tuple[str, int]:
    """Write rows of one table; returns the file's path below the snapshot, and its size (bytes). Raises OSError."""
    below = _of_table(folder / ROWS, table)
    stored = rows.select(_STORED.names)
    size = below.write_table(name, stored, compression="zstd", compression_level=1, use_dictionary=_REPEATED)
    cache_table(f"{below}/{name}", stored)
    return f"{ROWS}/{below.name}/{name}", size


def write_digests(folder: Folder, table: str, name: str, digests: pa.Table) -> tuple[str, int]:
    """Write the digests of the rows in the file of this name; returns the same of it. Raises OSError."""
    # Hashes cannot be compressed; all else is nearly the same from row to row.
    compression = {column: "none" if column in _HASHES else "zstd" for column in digests.column_names}
    below = _of_table(folder / DIGESTS, table)
    size = below.write_table(name, digests, compression=compression, use_dictionary=["queue"])
    cache_table(f"{below}/{name}", digests)
    return f"{DIGESTS}/{below.name}/{name}", size


def _of_table(folder: Folder, table: str) -> Folder:
    return folder / f"table={table}"


def drop_unclaimed(folder: Folder, claimed: Iterable[str]) -> None:
    """Remove files that no successful attempt has reported (paths below the folder). Raises OSError."""
    known = set(claimed)
    for tables in (folder / ROWS, folder / DIGESTS):
        for below in map(tables.__truediv__, tables.names()):
            for name in below.names():
                if name.endswith(_SUFFIX) and f"{tables.name}/{below.name}/{name}" not in known:
                    below.remove(name)


def read_bucket(folder: Folder, table: str, bucket: int, buckets: int) -> pa.Table:
    """All rows of one table in one of `buckets` buckets, which may be fewer than were written. Raises OSError."""
    found = [read_rows(folder, table, name) for name in files_of(folder / ROWS, table, bucket, buckets)]
    return pa.concat_tables(found) if found else _STORED.empty_table()


def read_rows(folder: Folder, table: str, name: str) -> pa.Table:
    """The rows in one file. Raises OSError."""
    below = _of_table(folder / ROWS, table)
    if (cached := cached_table(f"{below}/{name}")) is not None:
        return cached
    with below.opened(name) as file:
        rows = pyarrow.parquet.ParquetFile(file).read(use_threads=False)
    # Maps are read with the names that Parquet gives to their parts.
    return rows.cast(_STORED)


def no_rows() -> pa.Table:
    """A table of wide rows that has none."""
    return _STORED.empty_table()


def read_digests(folder: Folder, table: str, name: str) -> pa.Table:
    """The digests of the rows in one file, in the order of the rows. Raises OSError."""
    below = _of_table(folder / DIGESTS, table)
    if (cached := cached_table(f"{below}/{name}")) is not None:
        return cached.set_column(0, "queue", cached.column("queue").dictionary_encode())
    with below.opened(name) as file:
        return pyarrow.parquet.ParquetFile(file, read_dictionary=["queue"]).read(use_threads=False)


def files_of(folder: Folder, table: str, bucket: int, buckets: int) -> list[str]:
    """Names of the files of a table in one of `buckets` buckets, those of one stream in the order of its entries."""
    below = _of_table(folder, table)
    by_bucket = _known_files(below) if below.version else _files_by_bucket(below)
    return sorted((name for each, names in by_bucket.items() if each % buckets == bucket for name in names), key=_place)


def _files_by_bucket(below: Folder) -> Mapping[int, Sequence[str]]:
    """The files of a table, by the bucket in which they were written."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for name in below.names():
        if name.endswith(_SUFFIX):
            found[int(name[1:4])].append(name)
    return found


# A large snapshot has tens of thousands of them, which each of hundreds of buckets would ask for.
_known_files = lru_cache(maxsize=128)(_files_by_bucket)


def _place(name: str) -> tuple[int, ...]:
    """Bucket, part, attempt and number of a file."""
    return tuple(int(part.lstrip("bpa")) for part in name.removesuffix(_SUFFIX).split("-"))


MANIFEST = "manifest.json"


class QueueFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a queue that a diff needs before it starts.

    `rows`: of all tables. `events_complete`: no event has been trimmed yet. `generated_ids`: it has jobs whose ids are
    uuids or times of schedulers, which differ between two stores that are the same.
    """

    rows: int
    events_complete: bool
    generated_ids: bool


class SnapshotManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a snapshot.

    `taken_ms`: the Redis server's clock when reading started, Unix ms; `reading_ms`: how long it took. `rows`: number
    of rows by table. `moving`: queues whose event stream grew while it was read, so that the tables are of different
    instants. `queues`: by name.
    `buckets`: number of buckets that hold the rows (`reports.snapshot.format`).
    `digests`: kind of the digests next to the rows (`reports.snapshot.digests`), empty if there are none.
    `files`: the path below the folder and the size (bytes) of each file of rows or digests.
    `scripts_sha256`: over the SHA-1 of all pinned scripts, in the order of their names. `seed`, `workload`: of the load
    that filled the store, where there was one.
    """

    schema_version: int = SCHEMA_VERSION
    kit: str
    bullmq: str
    scripts_sha256: str
    source: str
    prefix: str
    queue: str
    taken_ms: int
    reading_ms: int = 0
    redis_settings: dict[str, str]
    redis_version: str
    rows: dict[str, int]
    moving: list[str]
    queues: dict[str, QueueFacts]
    buckets: int
    digests: str = ""
    files: dict[str, int] = {}
    seed: int | None = None
    workload: dict[str, Any] | None = None

    @property
    def jobs(self) -> int:
        """Number of job hashes."""
        return self.rows.get("jobs", 0)

    @property
    def until_ms(self) -> int:
        """The Redis server's clock when reading ended, Unix ms: no time in the rows is later, if clocks agree."""
        return self.taken_ms + self.reading_ms


def write_manifest(folder: Folder, manifest: SnapshotManifest) -> None:
    """Write it last: it is there as a whole or not at all. Raises EnvironmentProblem."""
    with explained_folder(folder):
        folder.write(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")


def read_manifest(folder: Folder) -> SnapshotManifest:
    """The manifest of a stored snapshot.

    Raises UsageProblem where there is none, or one of another schema, EnvironmentProblem where it cannot be read.
    """
    with explained_folder(folder):
        is_there = folder.exists()
        content = folder.read(MANIFEST) if is_there else None
    if not is_there:
        raise UsageProblem(
            f"{folder} is not a folder", hint="give the folder of a snapshot, an RDB file, or redis://host:port#prefix"
        )
    if content is None:
        raise UsageProblem(
            f"{folder} holds no {MANIFEST}: it is not a snapshot, or was not finished",
            hint="take it again with `bullmq-conformance snapshot`",
        )
    try:
        manifest = msgspec.json.decode(content, type=SnapshotManifest)
    except msgspec.MsgspecError as error:
        raise UsageProblem(
            f"{folder / MANIFEST} is not a manifest of this kit: {error}", hint="take the snapshot again"
        ) from error
    if manifest.schema_version != SCHEMA_VERSION:
        raise UsageProblem(
            f"{folder} has schema version {manifest.schema_version}, this kit reads {SCHEMA_VERSION}",
            hint="take the snapshot again with this version of the kit",
        )
    return manifest


@dataclass(frozen=True, kw_only=True)
class SnapshotFolder:
    """A stored snapshot: its name, folder and manifest."""

    name: str
    folder: Folder
    manifest: SnapshotManifest


def read_whole_manifest(folder: Folder) -> SnapshotManifest:
    """The manifest of a stored snapshot of which all files are there.

    Rows and digests that are gone would not be missed: the comparison would take them for a store without such rows,
    and rows with equal digests are not even read. Raises UsageProblem for an incomplete snapshot, and as
    `read_manifest`.
    """
    manifest = read_manifest(folder)
    with explained_folder(folder):
        found = {
            f"{tables.name}/{below.name}/{name}": size
            for tables in (folder / ROWS, folder / DIGESTS)
            for below in map(tables.__truediv__, tables.names())
            for name, size in below.sizes().items()
            if name.endswith(_SUFFIX)
        }
    if found != manifest.files:
        path = min(path for path, _ in found.items() ^ manifest.files.items())
        raise UsageProblem(
            f"{folder} is not complete: {_what_is_wrong(path, found, manifest)}", hint="take the snapshot again"
        )
    return manifest


def _what_is_wrong(path: str, found: Mapping[str, int], manifest: SnapshotManifest) -> str:
    if path not in found:
        return f"{path} is missing"
    if path not in manifest.files:
        return f"{path} is not in its manifest"
    return f"{path} has {found[path]} bytes instead of {manifest.files[path]}"


def open_snapshot_folder(folder: Folder) -> SnapshotFolder:
    """Open a stored snapshot. Raises as `read_whole_manifest`."""
    manifest = read_whole_manifest(folder)
    return SnapshotFolder(name=str(folder), folder=versioned_folder(folder, manifest), manifest=manifest)


def versioned_folder(folder: Folder, manifest: SnapshotManifest) -> Folder:
    """The same folder with a version, so that its files may be cached while the manifest stays the same."""
    return replace(folder, version=f"{manifest.taken_ms}+{manifest.reading_ms}")


def claim_folder(folder: Folder) -> None:
    """Prepare a folder for a new snapshot: removes an old snapshot.

    Raises UsageProblem if the folder has other content, EnvironmentProblem if it cannot be made.
    """
    with explained_folder(folder):
        folder.make()
        foreign = sorted(set(folder.names()) - {ROWS, DIGESTS, MANIFEST, f"{MANIFEST}{UNFINISHED}"})
        if not foreign:
            # The manifest first: if this is interrupted, the rest of the old snapshot must not pass for a complete one.
            folder.remove(MANIFEST)
            for name in (ROWS, DIGESTS):
                (folder / name).clear()
    if foreign:
        raise UsageProblem(f"{folder} holds something else: {', '.join(foreign[:3])}", hint="choose an empty folder")
