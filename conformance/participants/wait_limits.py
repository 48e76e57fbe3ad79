"""Limits of waits: the deadline, or less if the wait is hopeless.

A client that fails a wait usually fails the same wait in many scenarios, and each would take its whole deadline. So a
wait of the client ends early, with the same finding, if all of this holds:

- the same wait ran out in full before: in this scenario with other parameters, or twice in any scenario and never held;
- the oracle's wait held;
- much more time has passed than the oracle, or the client when its wait held, ever needed.

A client that does nothing fails another wait in every scenario. Once its waits have taken BUDGET_MS in vain, every wait
is hopeless the first time, also if there is no oracle's wait to compare with. On a shared queue the oracle then waits
as little for what the client should do.

The history of waits is kept per process.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from conformance.findings import Timing
from conformance.participants.expect import Mismatch

Waiter = Literal["oracle", "client"]

LEAST_MS = 2000
"""No wait ends before this, however fast the oracle was."""
LEAST_AFTER_BUDGET_MS = 1000
"""The same once the budget is used up, for a wait that never held."""
SLOWER_THAN_ORACLE = 10
SLOWER_THAN_BEFORE = 5
"""Factors for slow clients and busy machines: a wait that could still hold must not be cut short."""
ROUNDING_MS = 2
LEAST_SLACK_MS = 400
"""Less starvation than this excuses no wait, however slow the oracle was."""
TIMES_ANYWHERE = 2
"""A wait that never held is hopeless in every scenario after running out this many times."""
BUDGET_MS = 32_000
"""Time that the client's waits of one process may take in vain before all others are shortened."""
SHARE_OF_DEADLINE = 4
"""Once the budget is used up, a wait without an oracle's wait to compare with gets its deadline divided by this."""


class WaitHistory:
    """The outcomes of the waits of one process, by their sentence. Times are ms."""

    def __init__(self) -> None:
        self._slowest: dict[tuple[Waiter, str], float] = {}
        self._ran_out: Counter[tuple[str, int]] = Counter()
        self._ran_out_in: set[tuple[str, str, int]] = set()
        self._in_vain_ms = 0.0

    def held(self, who: Waiter, sentence: str, after_ms: float) -> None:
        """Record that a wait held."""
        self._slowest[who, sentence] = max(self._slowest.get((who, sentence), 0.0), after_ms)

    def ran_out(self, scenario: str, sentence: str, within_ms: int) -> None:
        """Record that a wait of the client did not hold within its whole deadline."""
        self.spent_in_vain(within_ms)
        self._ran_out[sentence, within_ms] += 1
        self._ran_out_in.add((scenario, sentence, within_ms))

    def spent_in_vain(self, ms: float) -> None:
        """Count time that was waited because of the client."""
        self._in_vain_ms += ms

    def slowest_ms(self, who: Waiter, sentence: str) -> float | None:
        """The longest time until the wait held; None if it never held."""
        return self._slowest.get((who, sentence))

    @property
    def is_budget_used(self) -> bool:
        """Whether the client's waits have taken so much time in vain that further ones get less."""
        return self._in_vain_ms >= BUDGET_MS

    def is_hopeless(self, scenario: str, sentence: str, within_ms: int) -> bool:
        """Whether the client has failed the wait before, so that it will probably fail again."""
        if self.is_budget_used:
            return True
        never_held = self.slowest_ms("client", sentence) is None
        # Twice, because a single failure may come from the scenario; a wait that ever held can hold again.
        anywhere = never_held and self._ran_out[sentence, within_ms] >= TIMES_ANYWHERE
        return anywhere or (scenario, sentence, within_ms) in self._ran_out_in


class Wait:
    """One wait in progress."""

    def __init__(
        self,
        within_ms: int,
        enough_ms: Callable[[], float | None],
        oracle_ms: Callable[[], float | None],
        now: Callable[[], float],
    ) -> None:
        self.within_ms = within_ms
        self._enough_ms = enough_ms
        self._oracle_ms = oracle_ms
        self._now = now
        self._started = now()

    @property
    def spent_ms(self) -> float:
        """The time since its start."""
        return (self._now() - self._started) * 1000

    @property
    def left_ms(self) -> float:
        """The time until its limit; negative after it."""
        enough_ms = self._enough_ms()
        return (self.within_ms if enough_ms is None else min(self.within_ms, enough_ms)) - self.spent_ms

    def mismatch(self, what: str, seen: str) -> Mismatch:
        """The failure to raise at the limit. It is the same finding for a shortened wait, with a note of the time."""
        spent_ms = self.spent_ms
        less = f" (gave up after {spent_ms:.0f} ms: the same wait ran out before)" if spent_ms < self.within_ms else ""
        timing = self._timing(round(min(spent_ms, self.within_ms)))
        return Mismatch(what, expected=f"within {self.within_ms} ms", actual=f"{seen}{less}", timing=timing)

    def _timing(self, waited_ms: int) -> Timing:
        """How much of the wait the machine must have taken for the client to have had too little time.

        Enough are ten times what the oracle needed on the same machine, and half of the wait if that is less.
        """
        oracle_ms = self._oracle_ms()
        spare_ms = 0.0 if oracle_ms is None else waited_ms - SLOWER_THAN_ORACLE * oracle_ms
        slack_ms = max(LEAST_SLACK_MS, min(waited_ms / 2, spare_ms))
        return Timing(within_ms=waited_ms, slack_ms=round(slack_ms))


class WaitLimits:
    """The limits of all waits in one scenario.

    `sides`: whether oracle and client take the same steps, so that each wait of the client has a twin on the oracle.
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
        self._started: Counter[tuple[Waiter, str]] = Counter()
        self._twins: dict[tuple[str, int], float] = {}

    @contextmanager
    def wait(self, who: Waiter, sentence: str, within_ms: int) -> Iterator[Wait]:
        """One wait: it holds if the block ends normally, and has run out if the block raises Mismatch."""
        self._started[who, sentence] += 1
        # The n-th wait of the client is compared with the n-th of the oracle: the first often includes a start-up.
        number = self._started[who, sentence]
        wait = Wait(
            within_ms,
            lambda: self._enough_ms(who, sentence, number, within_ms),
            lambda: self._oracle_ms(sentence, number),
            self._now,
        )
        try:
            yield wait
        except Mismatch:
            # Only a full wait counts: a shortened one would confirm itself.
            if wait.spent_ms >= within_ms - ROUNDING_MS:
                if who == "client":
                    self._history.ran_out(self._scenario, sentence, within_ms)
                elif not self._sides:
                    self._history.spent_in_vain(within_ms)
            raise
        self._history.held(who, sentence, wait.spent_ms)
        if who == "oracle":
            self._twins[sentence, number] = wait.spent_ms

    def _enough_ms(self, who: Waiter, sentence: str, number: int, within_ms: int) -> float | None:
        """The time (ms) after which the wait is hopeless; None if it needs its whole deadline."""
        if who == "oracle":
            return None if self._sides else self._enough_of_the_partner_ms(sentence, within_ms)
        if not self._history.is_hopeless(self._scenario, sentence, within_ms):
            return None
        oracle_ms = self._oracle_ms(sentence, number)
        if oracle_ms is None:
            # Without the oracle's time there is no measure of "much longer", so the wait gets its whole deadline while
            # the client has not wasted too many of them. If the oracle's own wait goes on, it may still hold.
            shortened = self._history.is_budget_used and not self._sides
            return max(self._least_ms, within_ms / SHARE_OF_DEADLINE) if shortened else None
        before_ms = self._history.slowest_ms("client", sentence) or 0.0
        # The largest of the three: shortening may save time, but must never change a verdict.
        least_ms = LEAST_MS if before_ms else self._least_ms
        return max(least_ms, SLOWER_THAN_ORACLE * oracle_ms, SLOWER_THAN_BEFORE * before_ms)

    def _enough_of_the_partner_ms(self, sentence: str, within_ms: int) -> float | None:
        if not self._history.is_budget_used:
            return None
        before_ms = self._history.slowest_ms("oracle", sentence)
        enough_ms = within_ms / SHARE_OF_DEADLINE if before_ms is None else SLOWER_THAN_ORACLE * before_ms
        return max(self._least_ms, enough_ms)

    @property
    def _least_ms(self) -> int:
        return LEAST_AFTER_BUDGET_MS if self._history.is_budget_used else LEAST_MS

    def _oracle_ms(self, sentence: str, number: int) -> float | None:
        """The time (ms) until the oracle's wait held; None if it did not."""
        return self._twins.get((sentence, number)) if self._sides else self._history.slowest_ms("oracle", sentence)
