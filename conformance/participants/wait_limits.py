"""How long a wait goes on: to its deadline, or less where it is known that nothing comes of it.

A client that fails a wait mostly fails it in many scenarios, and each would take its whole deadline. So a wait of the
client ends early, with the same finding, where three things come together: the same wait has run out in full before (in
this scenario with other parameters, or twice anywhere and it never held); the oracle's own has held; and much more time
has passed than the oracle, or the client when it did hold, has ever needed. All of it is known per process.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from conformance.participants.expect import Mismatch

Waiter = Literal["oracle", "client"]

LEAST_MS = 2000
"""What a wait has at least."""
SLOWER_THAN_ORACLE = 10
SLOWER_THAN_BEFORE = 5
ROUNDING_MS = 2
TIMES_ANYWHERE = 2
"""How often a wait that never holds has to run out before it counts as hopeless in every scenario."""


class WaitHistory:
    """What became of the waits of one process, by their sentence. Times are ms."""

    def __init__(self) -> None:
        self._slowest: dict[tuple[Waiter, str], float] = {}
        self._ran_out: Counter[tuple[str, int]] = Counter()
        self._ran_out_in: set[tuple[str, str, int]] = set()

    def held(self, who: Waiter, sentence: str, after_ms: float) -> None:
        """It came true."""
        self._slowest[who, sentence] = max(self._slowest.get((who, sentence), 0.0), after_ms)

    def ran_out(self, scenario: str, sentence: str, within_ms: int) -> None:
        """The client's did not, and its whole deadline was waited for."""
        self._ran_out[sentence, within_ms] += 1
        self._ran_out_in.add((scenario, sentence, within_ms))

    def slowest_ms(self, who: Waiter, sentence: str) -> float | None:
        """The longest that it took to come true; None where it never did."""
        return self._slowest.get((who, sentence))

    def is_hopeless(self, scenario: str, sentence: str, within_ms: int) -> bool:
        """Whether the client has failed it before, so that it will fail it again."""
        never_held = self.slowest_ms("client", sentence) is None
        anywhere = never_held and self._ran_out[sentence, within_ms] >= TIMES_ANYWHERE
        return anywhere or (scenario, sentence, within_ms) in self._ran_out_in


class Wait:
    """One wait that goes on."""

    def __init__(self, within_ms: int, enough_ms: Callable[[], float | None], now: Callable[[], float]) -> None:
        self.within_ms = within_ms
        self._enough_ms = enough_ms
        self._now = now
        self._started = now()

    @property
    def spent_ms(self) -> float:
        """How long it has lasted."""
        return (self._now() - self._started) * 1000

    @property
    def left_ms(self) -> float:
        """How much longer it may last."""
        enough_ms = self._enough_ms()
        return (self.within_ms if enough_ms is None else min(self.within_ms, enough_ms)) - self.spent_ms

    def mismatch(self, what: str, seen: str) -> Mismatch:
        """What to raise when nothing is left: the same finding, and how long was waited for where that is less."""
        spent_ms = self.spent_ms
        less = f" (given up after {spent_ms:.0f} ms: it has run out before)" if spent_ms < self.within_ms else ""
        return Mismatch(what, expected=f"within {self.within_ms} ms", actual=f"{seen}{less}")


class WaitLimits:
    """The waits of one scenario, of all its participants.

    `sides`: whether oracle and client go through the same steps, so that each wait of the one has its twin.
    """

    def __init__(
        self,
        history: WaitHistory | None = None,
        scenario: str = "",
        *,
        sides: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._history = history or WaitHistory()
        self._scenario = scenario
        self._sides = sides
        self._now = now
        self._begun: Counter[tuple[Waiter, str]] = Counter()
        self._twins: dict[tuple[str, int], float] = {}

    @contextmanager
    def wait(self, who: Waiter, sentence: str, within_ms: int) -> Iterator[Wait]:
        """One wait: it holds if the block comes to its end, and has run out if that raises Mismatch."""
        self._begun[who, sentence] += 1
        number = self._begun[who, sentence]
        wait = Wait(within_ms, lambda: self._enough_ms(who, sentence, number, within_ms), self._now)
        try:
            yield wait
        except Mismatch:
            if who == "client" and wait.spent_ms >= within_ms - ROUNDING_MS:
                self._history.ran_out(self._scenario, sentence, within_ms)
            raise
        self._history.held(who, sentence, wait.spent_ms)
        if who == "oracle":
            self._twins[sentence, number] = wait.spent_ms

    def _enough_ms(self, who: Waiter, sentence: str, number: int, within_ms: int) -> float | None:
        """After how long nothing will come; None where the whole deadline has to be waited for."""
        if who == "oracle" or not self._history.is_hopeless(self._scenario, sentence, within_ms):
            return None
        oracle_ms = self._twins.get((sentence, number)) if self._sides else self._history.slowest_ms("oracle", sentence)
        if oracle_ms is None:
            return None
        before_ms = self._history.slowest_ms("client", sentence) or 0.0
        return max(LEAST_MS, SLOWER_THAN_ORACLE * oracle_ms, SLOWER_THAN_BEFORE * before_ms)
