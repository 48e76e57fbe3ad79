"""In a large queue only jobs with generated ids are compared together; all others by their ids."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from conformance.problems import UsageProblem
from conformance.servers import RedisInstance
from reports.diff import generated_ids, snapshot_comparison
from reports.diff.comparison import compare_snapshots
from reports.diff.explanation import GENERATED, compare_group
from reports.diff.snapshot_comparison import SnapshotComparison
from reports.snapshot.folders import folder_at
from reports.snapshot.format import SnapshotFolder
from reports.snapshot.plan import RedisSource
from tests.observe.snapshot_builders import ADDED, Stream, Zset, event, job, snapshot
from tests.reports.reports_builders import kept_here, rows_in, settings_for, write

UUIDS = ("0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7")
JOBS = 60


def store(uuid: str, late_ms: int, prefix: str = "p", **keys: Any) -> dict[str, Any]:
    """Many jobs with ids of their own; a parent with a child that got a uuid; a scheduler with an iteration."""
    due = ADDED + 60_000 + late_ms
    iteration = f"repeat:daily:{due}"
    return {
        **{f"q:{number}": job(data=f'{{"n":{number}}}') for number in range(1, JOBS + 1)},
        "q:mother": job(name="mother"),
        f"q:{uuid}": job(parentKey=f"{prefix}:q:mother", parent=f'{{"id":"mother","queueKey":"{prefix}:q"}}'),
        "q:mother:dependencies": {f"{prefix}:q:{uuid}"},
        "q:wait": [*(str(number) for number in range(1, JOBS + 1)), uuid],
        "q:waiting-children": Zset({"mother": float(ADDED)}),
        "q:repeat": Zset({"daily": float(due)}),
        "q:repeat:daily": {"name": "d", "every": "60000", "ic": "1"},
        f"q:{iteration}": job(rjk="daily", name="d", timestamp=str(ADDED + late_ms), delay="60000"),
        "q:delayed": Zset({iteration: due * 4096.0}),
        "q:de:once": uuid,
        "q:meta": {"opts.maxLenEvents": "10000"},
        "q:marker": Zset({"0": 0.0}),
        "q:id": str(JOBS),
        "q:events": Stream([event("added", jobId=uuid, name="n"), event("waiting", jobId=uuid)]),
        **keys,
    }


def test_events_that_one_side_has_lost_are_not_missed() -> None:
    full = snapshot({f"q:{UUIDS[0]}": job(), "q:events": Stream([event("added", jobId=UUIDS[0], name="n")])})
    trimmed = snapshot({f"q:{UUIDS[1]}": job()})
    groups = [
        [(table, row) for table in ("jobs", "events") for row in getattr(side, table)] for side in (full, trimmed)
    ]

    def classes(**changes: Any) -> set[str]:
        settings = settings_for(full, trimmed, **changes)
        return {row[0] for row in compare_group(("q", GENERATED), (groups[0], groups[1]), settings, Counter())}

    assert "transition-without-event" in classes()
    assert "transition-without-event" not in classes(trimmed=frozenset({"q"}))


def others(seed: int) -> list[str]:
    """Uuids that another seed gives in another order."""
    return [str(UUID(int=(number * 7919 + seed) * 2**64 % 2**128)) for number in range(1, 31)]


def with_many_uuids(keys: dict[str, Any], seed: int) -> dict[str, Any]:
    """The store with jobs of a uuid each, three of them always alike."""
    ids = others(seed)
    late = {"timestamp": str(ADDED + seed * 50)}
    own = {f"q:{each}": job(data=f'{{"uuid":{number // 3}}}', **late) for number, each in enumerate(ids)}
    return {**keys, **own, "q:wait": [*keys["q:wait"], *ids]}


def test_generated_ids_in_a_large_queue_refuse_no_diff(
    server: RedisInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second store has other uuids and times; of it three jobs are changed, one of each kind, and one is gone."""
    stored: list[SnapshotFolder] = []
    for number, uuid in enumerate(UUIDS):
        prefix = server.fresh_prefix()
        keys = with_many_uuids(store(uuid, number * 50, prefix), number)
        if number:
            first, last = others(number)[0], others(number)[-1]
            keys["q:7"]["name"] = keys[f"q:{uuid}"]["name"] = keys[f"q:{first}"]["name"] = "changed"
            del keys[f"q:{last}"]
            keys["q:wait"].remove(last)
        write(server, prefix, keys)
        stored.append(kept_here(RedisSource(redis=server.url, prefix=prefix), folder_at(tmp_path / str(number))))
        server.remove_prefix(prefix)
    wanted = SnapshotComparison(expected=stored[0], actual=stored[1], folder=folder_at(tmp_path / "differences"))
    monkeypatch.setattr(generated_ids, "JOBS_TOGETHER", 2)
    monkeypatch.setattr(generated_ids, "ROWS_PER_SHARE", 100)
    monkeypatch.setattr(snapshot_comparison, "MOST_ROWS_OF_A_WHOLE_QUEUE", 5)
    with pytest.raises(UsageProblem, match="rows of jobs with generated ids"):
        compare_snapshots(wanted)
    monkeypatch.setattr(snapshot_comparison, "MOST_ROWS_OF_A_WHOLE_QUEUE", 50)
    compared = compare_snapshots(wanted)
    found = {(row["class"], row["key"], row["field"]) for row in rows_in(wanted.folder)}
    alike = [{f"q:{each}" for each in others(0)[three : three + 3]} for three in (0, 27)]
    changed = {each for each in found if each[1] in alike[0]}
    gone = {each for each in found if each[1] in alike[1]}
    assert found - changed - gone == {("field", "q:7", "name"), ("field", f"q:{UUIDS[0]}", "name")}
    assert [(name, field) for name, _, field in changed] == [("field", "name")]
    assert [name for name, _, _ in gone] == ["missing"]
    assert compared.hidden["generated-uuids"] > 0
    # Jobs whose times differ still meet: else there would be too many for one piece.
    assert compare_snapshots(replace(wanted, switched_off=("worker-clock",))).total > compared.total
