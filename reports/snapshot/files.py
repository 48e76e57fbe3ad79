"""The files of a stored snapshot: one folder per table, and in it the rows of each bucket of job ids. No Spark.

A bucket holds everything that belongs to some jobs, whatever the table: two snapshots are compared bucket by bucket,
and nothing has to be brought together first. The hash decides only where a row lies, never whether two rows are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from reports.snapshot.schema import ARROW

ROWS = "rows"
"""Folder of the Parquet files inside a snapshot's folder, with a folder for each table below it."""

MOST_BUCKETS = 64
FEWEST_BUCKETS = 2

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


def buckets_for(keys: int, used_bytes: int) -> int:
    """How many buckets so many keys are kept in, which need so many bytes of Redis' memory.

    A power of two, so that fewer buckets are unions of more.
    """
    wanted = max(keys // KEYS_PER_BUCKET, used_bytes // BYTES_PER_BUCKET)
    return min(MOST_BUCKETS, max(FEWEST_BUCKETS, power_of_two(wanted)))


def power_of_two(number: int) -> int:
    """The smallest power of two that is not smaller."""
    return 1 << max(0, number - 1).bit_length()


def bucket_of(job: bytes, buckets: int) -> int:
    """The bucket of everything that has this job id."""
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


def write_file(folder: Path, table: str, name: str, rows: pa.Table) -> str:
    """Write rows of one table; answers the path below the folder of rows. Raises OSError."""
    below = folder / ROWS / f"table={table}"
    below.mkdir(parents=True, exist_ok=True)
    kept = rows.select(_STORED.names)
    pyarrow.parquet.write_table(kept, below / name, compression="zstd", compression_level=1, use_dictionary=_REPEATED)
    return f"{below.name}/{name}"


def drop_unclaimed(folder: Path, claimed: Iterable[str]) -> None:
    """Remove files that no successful attempt has reported. Raises OSError."""
    known = set(claimed)
    for path in (folder / ROWS).glob(f"table=*/*{_SUFFIX}"):
        if f"{path.parent.name}/{path.name}" not in known:
            path.unlink()


def read_bucket(folder: Path, table: str, bucket: int, buckets: int) -> pa.Table:
    """All rows of one table in one of so many buckets, which may be fewer than were written. Raises OSError."""
    found = [
        pyarrow.parquet.ParquetFile(path).read(use_threads=False) for path in _paths(folder, table, bucket, buckets)
    ]
    # Maps are read with the names that Parquet gives to their parts.
    return pa.concat_tables([rows.cast(_STORED) for rows in found]) if found else _STORED.empty_table()


def _paths(folder: Path, table: str, bucket: int, buckets: int) -> Iterator[Path]:
    below = folder / ROWS / f"table={table}"
    for path in sorted(below.iterdir()) if below.is_dir() else ():
        if path.suffix == _SUFFIX and int(path.name[1:4]) % buckets == bucket:
            yield path
