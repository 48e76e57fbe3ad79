"""Unusual data, and very many jobs."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from conformance.reference_impl.scripts.runner import ScriptTexts

from .library_room import Room, Until, play_in

PAYLOADS: list[Any] = [
    "",
    "plain",
    "Grüße, 世界, مرحبا",
    "e\u0301 is not \u00e9",
    "🎉👩\u200d👩\u200d👧 and 🇪🇺",
    "null \x00 byte",
    "".join(map(chr, range(0x20))),
    "\x7f\x80\x9f\ufeff",
    "line\u2028and paragraph\u2029",
    "\ufffe\uffff\U0010ffff",
    'quotes " and \\ and / and \\u0041',
    {"": {"clé": ["🎉", "\x00"]}, "__proto__": 1},
    [[], {}, [[[None]]], True, False],
    [0, -1, 1.5, 1e21, 2**53 - 1, 1e-7],
    None,
    "x" * 100_000,
]

WORKERS = 10
TASKS_AT_REST = WORKERS * 5 + 1
"""Of each worker: its run, the waits for a job and for its marker, renewing locks, the stalled check."""


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: ascii(payload)[:30])
def test_data_and_result_arrive_unchanged(
    payload: Any, connection: dict[str, Any], prefix: str, scripts: ScriptTexts, wait_until: Until
) -> None:
    async def play(room: Room) -> None:
        seen: list[Any] = []

        def process(job: Any, _token: str) -> Any:
            seen.append(job.data)
            return job.data

        room.worker(process)
        await room.queue.add("a", payload)
        await room.hear("completed", "1")
        assert seen == [payload]
        assert (await room.job("1")).returnvalue == payload

    play_in({"connection": connection, "prefix": prefix}, scripts, wait_until, play)


def test_ten_thousand_jobs_leave_nothing_behind(
    connection: dict[str, Any], prefix: str, scripts: ScriptTexts, wait_until: Until
) -> None:
    """Ten workers, each job once; in the end there are neither more tasks nor more objects than after the first."""

    async def play(room: Room) -> None:
        runs: dict[str, int] = {}

        def process(job: Any, _token: str) -> None:
            runs[job.known_id] = runs.get(job.known_id, 0) + 1

        async def work_off(count: int) -> int:
            """Answer how many objects there are, once the workers are at rest."""
            runs.clear()
            for _ in range(count // 1000):
                await room.queue.addBulk([{"name": "n", "data": {}, "opts": options} for _ in range(1000)])
            await room.until(lambda: len(runs) == count, lambda: len(runs), within_s=60)
            await room.until(lambda: len(asyncio.all_tasks()) == TASKS_AT_REST, asyncio.all_tasks)
            assert set(runs.values()) == {1}
            runs.clear()
            room.heard.clear()
            gc.collect()
            return len(gc.get_objects())

        options = {"removeOnComplete": True}
        for _ in range(WORKERS):
            room.worker(process)
        objects_before = await work_off(1000)
        objects_after = await work_off(10_000)
        assert objects_after - objects_before < 1000, "a leak of one object in ten jobs"

    play_in({"connection": connection, "prefix": prefix}, scripts, wait_until, play, within_s=90)
