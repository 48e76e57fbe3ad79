"""Limits of waits: the deadline, or less if the wait is hopeless.

A failing wait costs its whole time, and a young client fails hundreds of them. A wait of the client is hopeless, and
ends early with the same finding, if all of this holds:

- the oracle's wait held;
- since the client's last progress, much more time has passed than the oracle needed for the whole, and more than the
  client was ever later than the oracle;
- the client is awake: it has sent commands since the start of the wait without being asked to, and none of them blocks.

A client that sleeps may still wake up (some look every 5 s), so its waits get their whole deadline, until they have
taken BUDGET_MS in vain in this process: then they count as those of a client that does nothing, unless it has been late
before or the kit has disturbed it (SLEEP_MS). On a shared queue the oracle then waits as little for what the client
should do.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from conformance.findings import Timing
from conformance.participants.expect import Mismatch

Waiter = Literal["oracle", "client"]

LEAST_MS = 1000
"""No wait ends before this, however fast the oracle was."""
SLOWER_THAN_ORACLE = 5
LATER_THAN_BEFORE = 2
"""Factors for slow clients and busy machines: a wait that could still hold must not be cut short."""
SLEEP_MS = 6000
"""Clients that we know look for work, or for Redis, every 5 s at the latest."""
ROUNDING_MS = 2
LEAST_SLACK_MS = 400
"""Less starvation than this excuses no wait, however slow the oracle was."""
BUDGET_MS = 20_000
"""Time that the waits for a client that sleeps may take in vain in one process, before all others are shortened."""
RESTS_OF_A_POLLER = 3
SHARE_OF_DEADLINE = 4
"""Once the budget is used up, a wait without an oracle's wait to compare with gets its deadline divided by this."""


class WaitHistory:
    """The outcomes of the waits of one process, by their sentence. Times are ms."""

    def __init__(self) -> None:
        self._slowest_of_oracle: dict[str, float] = {}
        self._in_vain_ms = 0.0
        self._rests: Counter[tuple[Waiter, bool]] = Counter()
        self._latest: dict[str, float] = {}

    def held(self, who: Waiter, sentence: str, after_ms: float, oracle_ms: float | None) -> None:
        """Record that a wait held. `oracle_ms`: the time that the oracle needed, if it is known."""
        if who == "oracle":
            self._slowest_of_oracle[sentence] = max(self._slowest_of_oracle.get(sentence, 0.0), after_ms)
        elif oracle_ms is not None:
            self._latest[sentence] = max(self.latest_ms(sentence), after_ms - oracle_ms)

    def latest_ms(self, sentence: str) -> float:
        """How much later than the oracle's such a wait of the client held at most; 0 if never later."""
        return self._latest.get(sentence, 0.0)

    def spent_in_vain(self, ms: float) -> None:
        """Count time that was waited because of the client."""
        self._in_vain_ms += ms

    def slowest_of_oracle_ms(self, sentence: str) -> float | None:
        """The longest time until the oracle's wait held; None if it never held."""
        return self._slowest_of_oracle.get(sentence)

    def rested(self, who: Waiter, *, blocked: bool) -> None:
        """Record whether an idle worker was blocked in Redis after a while."""
        self._rests[who, blocked] += 1

    def never_blocks(self, who: Waiter) -> bool:
        """Whether idle workers of this client seem to poll, so that none is worth waiting for until it is blocked."""
        return self._rests[who, False] >= RESTS_OF_A_POLLER and not self._rests[who, True]

    @property
    def was_late(self) -> bool:
        """Whether any wait of the client held much later than the oracle's."""
        return max(self._latest.values(), default=0.0) >= LEAST_MS

    @property
    def is_budget_used(self) -> bool:
        """Whether the client's waits have taken so much time in vain that further ones get less."""
        return self._in_vain_ms >= BUDGET_MS


@dataclass
class Wait:
    """One wait in progress: the `number`-th of a participant for this sentence."""

    limits: WaitLimits
    who: Waiter
    sentence: str
    number: int
    within_ms: int
    is_awake: Callable[[], bool]

    def __post_init__(self) -> None:
        self._started = self.limits.now()
        self.progress_ms = 0.0
        """When the condition last came nearer: a slow client may need long for many jobs."""

    def progressed(self, at_s: float | None = None) -> bool:
        """Record that something has changed at a time (monotonic s; default: now). Whether it was not known before."""
        at_ms = self.spent_ms if at_s is None else (at_s - self._started) * 1000
        is_new, self.progress_ms = at_ms > self.progress_ms, max(at_ms, self.progress_ms)
        return is_new

    @property
    def spent_ms(self) -> float:
        """The time since its start."""
        return (self.limits.now() - self._started) * 1000

    @property
    def left_ms(self) -> float:
        """The time until its limit; negative after it."""
        enough_ms = self.limits.enough_ms(self)
        return (self.within_ms if enough_ms is None else min(self.within_ms, enough_ms)) - self.spent_ms

    @property
    def is_long(self) -> bool:
        """Whether it has lasted much longer than the oracle's."""
        return self.spent_ms >= max(LEAST_MS, SLOWER_THAN_ORACLE * (self.limits.oracle_ms(self) or 0.0))

    def mismatch(self, what: str, seen: str, *, where: str = "") -> Mismatch:
        """The failure to raise at the limit. It is the same finding for a shortened wait, with a note of the time."""
        spent_ms = self.spent_ms
        less = f" (gave up after {spent_ms:.0f} ms)" if spent_ms < self.within_ms else ""
        timing = self._timing(round(min(spent_ms, self.within_ms)))
        expected = f"within {self.within_ms} ms"
        return Mismatch(what, expected=expected, actual=f"{seen}{less}", where=where, timing=timing)

    def _timing(self, waited_ms: int) -> Timing:
        """How much of the wait the machine must have taken for the client to have had too little time.

        Enough are five times what the oracle needed on the same machine, and half of the wait if that is less.
        """
        oracle_ms = self.limits.oracle_ms(self)
        spare_ms = 0.0 if oracle_ms is None else waited_ms - SLOWER_THAN_ORACLE * oracle_ms
        slack_ms = max(LEAST_SLACK_MS, min(waited_ms / 2, spare_ms))
        return Timing(within_ms=waited_ms, slack_ms=round(slack_ms))


class WaitLimits:
    """The limits of all waits in one scenario.

    `sides`: whether oracle and client take the same steps, so that each wait of the client has a twin on the oracle.
    `is_disturbed`: whether the kit has disturbed a connection in this scenario.
    """

    def __init__(
        self,
        history: WaitHistory | None = None,
        *,
        sides: bool = False,
        is_disturbed: Callable[[], bool] = lambda: False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.history = history or WaitHistory()
        self.sides = sides
        self._is_disturbed = is_disturbed
        self.now = now
        self._started: Counter[tuple[Waiter, str]] = Counter()
        self._twins: dict[tuple[str, int], float] = {}

    @contextmanager
    def wait(
        self,
        who: Waiter,
        sentence: str,
        within_ms: int,
        *,
        is_awake: Callable[[], bool] = lambda: False,
    ) -> Iterator[Wait]:
        """One wait: it holds if the block ends normally, and has run out if the block raises Mismatch.

        `is_awake`: whether the client has sent commands since the start of the wait by itself, and waits for none.
        """
        self._started[who, sentence] += 1
        wait = Wait(self, who, sentence, self._started[who, sentence], within_ms, is_awake)
        try:
            yield wait
        except Mismatch:
            # Only a full wait counts: a shortened one would confirm itself.
            if wait.spent_ms >= within_ms - ROUNDING_MS and (who == "client" or not self.sides):
                self.history.spent_in_vain(within_ms)
            raise
        self.history.held(who, sentence, wait.spent_ms, self.oracle_ms(wait))
        if who == "oracle":
            self._twins[sentence, wait.number] = wait.spent_ms

    def enough_ms(self, wait: Wait) -> float | None:
        """The time (ms) after which the wait is hopeless; None if it needs its whole deadline."""
        if wait.who == "oracle":
            return None if self.sides else self._enough_of_the_partner_ms(wait)
        oracle_ms = self.oracle_ms(wait)
        if oracle_ms is None:
            # Without the oracle's time there is no measure of "much longer", so the wait gets its whole deadline while
            # the client has not wasted too many of them. If the oracle's own wait goes on, it may still hold.
            shortened = self.history.is_budget_used and not self.sides
            enough_ms = wait.progress_ms + max(LEAST_MS, wait.within_ms / SHARE_OF_DEADLINE)
            return enough_ms if shortened else None
        # The largest of the three: shortening may save time, but must never change a verdict.
        later_ms = oracle_ms + min(SLEEP_MS, LATER_THAN_BEFORE * self.history.latest_ms(wait.sentence))
        enough_ms = wait.progress_ms + max(LEAST_MS, SLOWER_THAN_ORACLE * oracle_ms, later_ms)
        # Asked last, and only once the time is up: it reads the recorded traffic.
        if wait.spent_ms < enough_ms or wait.is_awake():
            return enough_ms
        if not self.history.is_budget_used:
            return None
        return max(enough_ms, SLEEP_MS) if self._is_disturbed() or self.history.was_late else enough_ms

    def _enough_of_the_partner_ms(self, wait: Wait) -> float | None:
        if not self.history.is_budget_used:
            return None
        before_ms = self.history.slowest_of_oracle_ms(wait.sentence)
        enough_ms = wait.within_ms / SHARE_OF_DEADLINE if before_ms is None else SLOWER_THAN_ORACLE * before_ms
        return max(SLEEP_MS if self._is_disturbed() else LEAST_MS, enough_ms)

    def oracle_ms(self, wait: Wait) -> float | None:
        """The time (ms) until the oracle's wait held; None if it did not."""
        if not self.sides:
            return self.history.slowest_of_oracle_ms(wait.sentence)
        # The n-th wait of the client is compared with the n-th of the oracle: the first often includes a start-up.
        return self._twins.get((wait.sentence, wait.number))
