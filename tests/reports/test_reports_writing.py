"""What executors write and read again, without Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from conformance.observe.tables import TABLES
from conformance.servers import RedisInstance
from reports.snapshot import writing
from reports.snapshot.files import drop_unclaimed, read_bucket
from reports.snapshot.plan import Source, plan
from reports.snapshot.rows import narrowed, rows_of
from reports.snapshot.writing import Keeping, write_part
from tests.observe.snapshot_builders import Zset, job
from tests.reports.reports_builders import plain_store, write
from tests.reports.test_reports_reading import read_all

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def keep(server: RedisInstance, prefix: str, folder: Path, buckets: int) -> list[writing.WrittenPart]:
    parts = plan(Source(redis=server.url, prefix=prefix)).parts
    keeping = Keeping(source=Source(redis=server.url, prefix=prefix), parts=parts, folder=folder, buckets=buckets)
    return [write_part(keeping, number, 0) for number in range(len(parts))]


def kept(folder: Path, buckets: int) -> dict[str, list[str]]:
    """All rows of all buckets, by table, as sorted texts."""
    found: dict[str, list[str]] = {table: [] for table in TABLES}
    for table in TABLES:
        for bucket in range(buckets):
            rows = read_bucket(folder, table, bucket, buckets)
            named = rows.add_column(0, "table", pa.array([table] * len(rows), pa.string()))
            found[table] += [repr(narrowed(wide)) for batch in named.to_batches() for wide in rows_of(batch)]
    return {table: sorted(rows) for table, rows in found.items()}


def store(prefix: str) -> dict[str, Any]:
    numbers = [str(number) for number in range(100, 400)]
    return {
        **plain_store(prefix),
        **{f"many:{number}": job() for number in numbers},
        "many:completed": Zset({number: float(number) for number in numbers}),
        f"many:{UUID}": job(),
        "many:meta": {"opts.maxLenEvents": "77"},
    }


def test_what_is_kept_is_what_was_read_in_as_many_buckets_or_fewer(
    server: RedisInstance, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "ROWS_AT_A_TIME", 50)
    write(server, prefix, store(prefix))
    with server.connect() as client:
        client.hset(f"{prefix}:many:bytes", mapping={"name": b"\xff\xfe", "data": "{}"})
    written = keep(server, prefix, tmp_path, 8)
    read = read_all(Source(redis=server.url, prefix=prefix))
    assert kept(tmp_path, 8) == kept(tmp_path, 2) == read
    counted: Counter[str] = Counter()
    for each in (each for part in written for each in part.counts):
        counted[each.table] += each.rows
    assert dict(counted) == {table: len(rows) for table, rows in read.items() if rows}
    assert {each.queue for part in written for each in part.counts if each.generated} == {"many"}
    assert {each.event_limit for part in written for each in part.counts if each.queue == "many"} == {None, 77.0}


def test_a_job_and_all_that_belongs_to_it_lie_in_one_bucket(server: RedisInstance, prefix: str, tmp_path: Path) -> None:
    write(server, prefix, plain_store(prefix))
    keep(server, prefix, tmp_path, 8)
    for bucket in range(8):
        ids = [set(read_bucket(tmp_path, table, bucket, 8).column("id").to_pylist()) for table in ("jobs", "locks")]
        assert ids[1] <= ids[0]


def test_files_of_an_attempt_that_failed_are_removed(server: RedisInstance, prefix: str, tmp_path: Path) -> None:
    write(server, prefix, plain_store(prefix))
    written = keep(server, prefix, tmp_path, 2)
    before = kept(tmp_path, 2)
    left_over = next((tmp_path / "rows" / "table=jobs").glob("b*"))
    (left_over.parent / left_over.name.replace("-a0-", "-a1-")).write_bytes(left_over.read_bytes())
    assert kept(tmp_path, 2) != before
    drop_unclaimed(tmp_path, [name for part in written for name in part.files])
    assert kept(tmp_path, 2) == before
