"""Neither the rows that the command takes from Spark nor one task's part of a diff grows with the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.stores import QUEUE, fill
from conformance.servers import RedisInstance
from reports.snapshot import format as stored_format
from reports.snapshot.folders import folder_at
from reports.snapshot.format import read_bucket
from reports.snapshot.plan import RedisSource
from tests.reports.reports_builders import kept_here

pytestmark = pytest.mark.xdist_group("spark")

LARGER = 5_000


@pytest.mark.slow
def test_a_queue_with_nearly_all_jobs_is_spread_over_all_tasks(
    server: RedisInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_format, "KEYS_PER_BUCKET", LARGER // 8)
    monkeypatch.setattr(stored_format, "BYTES_PER_BUCKET", 1 << 40)
    prefix = server.fresh_prefix()
    fill(server, prefix, LARGER)
    left = kept_here(RedisSource(redis=server.url, prefix=prefix), folder_at(tmp_path))
    server.remove_prefix(prefix)
    buckets = left.manifest.buckets
    assert buckets >= 8
    assert left.manifest.queues[QUEUE].rows > 0.9 * sum(queue.rows for queue in left.manifest.queues.values())
    for table in ("jobs", "events"):
        rows = [read_bucket(left.folder, table, bucket, buckets).num_rows for bucket in range(buckets)]
        assert max(rows) < 1.5 * sum(rows) / buckets, (table, rows)
