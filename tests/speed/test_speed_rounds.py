"""Which rounds there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from conformance.driver.messages import ClientInfo, Ready
from conformance.speed import session
from conformance.speed.measures import SpeedMeasure
from conformance.speed.peers import SpeedPeer, Unmeasurable
from conformance.speed.session import SpeedOptions

READY = Ready(protocol=1, client=ClientInfo(name="c", language="python", version="1"), ops=[], capabilities=[])


class NoProcess:
    def pid(self) -> None:
        return None


@dataclass
class StillPeer:
    """A peer of which nothing is asked."""

    name: str
    ready: Ready = READY
    driver: NoProcess = field(default_factory=NoProcess)


def rounds_with(take: Callable[[], float], rounds: int, announced: list[str]) -> list[tuple[float, float]]:
    measures = [
        SpeedMeasure(name=name, meaning="", unit="ms", needs=frozenset(), take=measured)
        for name, measured in (("log", lambda *_: take()), ("add", lambda *_: 1.0))
    ]
    options = SpeedOptions(measures=measures, rounds=rounds)
    client, oracle = (cast("SpeedPeer", StillPeer(name)) for name in ("client", "oracle"))
    taken = session._all_rounds(client, oracle, options, announced.append)
    assert len(taken["add"].pairs) == rounds
    return taken["log"].pairs


@pytest.mark.parametrize(("noisy", "pairs"), [(0, 3), (2, 3), (9, 0)])
def test_a_round_that_came_to_no_number_is_run_again(noisy: int, pairs: int) -> None:
    announced: list[str] = []
    left = iter([True] * (1 + noisy))

    def take() -> float:
        # The warming up needs no number. One peer that has none is enough for a round to have none.
        if next(left, False):
            raise Unmeasurable("it drowns in noise")
        return 1.0

    assert len(rounds_with(take, 3, announced)) == pairs
    again = min(noisy, 3)
    assert announced[:4] == ["warming up", *(f"round {number} of 3" for number in (1, 2, 3))]
    assert announced[4:] == [f"round {number} of 3, once more: log" for number in range(4, 4 + again)]
