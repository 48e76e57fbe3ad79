"""The table of eviction policies: what may be gone is gone, and jobs are counted by what became of them."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from benchmarks import eviction
from benchmarks.eviction import FLOW, HASHES, JOBS, LOCKS, OTHER, THROTTLES, Loss


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("7:lock", LOCKS),
        ("stalled-check", THROTTLES),
        ("limiter", THROTTLES),
        ("de:some", THROTTLES),
        ("7", HASHES),
        ("parent", HASHES),
        ("child-3", HASHES),
        ("parent:dependencies", FLOW),
        ("wait", OTHER),
        ("repeat:tick", OTHER),
        ("metrics:completed", OTHER),
    ],
)
def test_keys_are_classified(name: str, expected: str) -> None:
    assert eviction.kind(name) == expected


def shown(loss: Loss) -> str:
    console = Console(width=200, file=io.StringIO())
    with console.capture() as captured:
        console.print(eviction.table([loss]))
    return captured.get()


@pytest.mark.slow
def test_policies_take_what_their_names_say() -> None:
    with eviction.client_alone("reference") as client:
        volatile = eviction.measure(client, "volatile-lru", 40)
        allkeys = eviction.measure(client, "allkeys-random", 60)
    assert (volatile.keys[LOCKS], volatile.keys[THROTTLES]) == (eviction.EACH, 3)
    assert volatile.keys.total() == eviction.EACH + 3
    assert volatile.fates == {"whole": JOBS}
    assert volatile.junk_taken < 40
    assert allkeys.junk_taken == 60
    assert allkeys.keys[HASHES] > 0
    assert allkeys.fates.total() == JOBS
    assert allkeys.fates["whole"] < JOBS
    assert "volatile-lru" in shown(volatile)
