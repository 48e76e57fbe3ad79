"""Operations of a driver that hang, end its process or never work, remembered across restarts of the driver.

The first hanging call gets its full deadline. Later calls of the operation get less, and after three hangs in a row the
kit does not call it again. It also stops calling an operation that has ended the process three times and was never
answered: every crash costs a restart of the driver. Once hanging calls have used up BUDGET_MS, one hang is enough, and
an operation that was never answered gets no more than LEAST_MS.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from conformance.driver.errors import OperationGivenUp

MOST_HANGS = 3
MOST_CRASHES = 3
MOST_FLOODS = 2
"""After this many floods that only the end of the process has stopped, nothing is opened any more."""
LEAST_MS = 4000
"""The shortest deadline of an operation that has hung."""
BUDGET_MS = 30_000
"""Time that hanging calls may take in the drivers of one client in one process."""
SLOWER = 10
"""An operation that has hung gets this many times its slowest answer so far."""


class Breakdowns:
    """Collects how calls end, and sets the deadline of the next call. Thread-safe. Times are ms."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._counting = threading.Lock()
        self._hung_in_a_row: Counter[str] = Counter()
        self._has_hung: set[str] = set()
        self._hung_ms = 0.0
        self._crashed: Counter[str] = Counter()
        self._slowest: dict[str, float] = {}
        self._floods = 0
        self._worked: set[str] = set()
        self._failed: Counter[str] = Counter()

    def deadline_ms(self, op: str, asked_ms: int) -> int:
        """The deadline of the next call, at most `asked_ms`. Raises OperationGivenUp."""
        with self._counting:
            if self._floods >= MOST_FLOODS and op == "open":
                raise OperationGivenUp(op, f"was followed {MOST_FLOODS} times by commands without end")
            in_a_row, wasteful = self._hung_in_a_row[op], self._hung_ms >= BUDGET_MS
            if in_a_row >= MOST_HANGS:
                raise OperationGivenUp(op, f"has hung {MOST_HANGS} times in a row")
            if in_a_row and wasteful:
                raise OperationGivenUp(
                    op, f"has hung, and calls that hang have taken {self._hung_ms / 1000:.0f} s so far"
                )
            if self._crashed[op] >= MOST_CRASHES and op not in self._slowest:
                raise OperationGivenUp(op, f"has ended the driver {MOST_CRASHES} times, and was never answered")
            # A first hang gets the full deadline, because it is a finding and must not be a false one.
            if op not in self._has_hung and not (wasteful and op not in self._slowest):
                return asked_ms
            return min(asked_ms, max(LEAST_MS, int(SLOWER * self._slowest.get(op, 0.0))))

    def hung(self, op: str, after_ms: float = 0.0) -> None:
        """Record a call without an answer within `after_ms`."""
        with self._counting:
            self._hung_ms += after_ms
            self._hung_in_a_row[op] += 1
            self._has_hung.add(op)

    def flooded(self) -> None:
        """Record that the client went on sending commands after everything was closed."""
        with self._counting:
            self._floods += 1

    def crashed(self, op: str) -> None:
        """Record that the driver ended by itself while this was its only call."""
        with self._counting:
            self._crashed[op] += 1

    def worked(self, op: str) -> None:
        """Record a call that was answered with `ok`."""
        self._worked.add(op)

    def failed(self, op: str) -> None:
        """Record a call that was answered with an error."""
        with self._counting:
            self._failed[op] += 1

    def always_failed(self, op: str, *, least: int) -> bool:
        """Whether at least this many calls of the operation were answered, all of them with an error."""
        return op not in self._worked and self._failed[op] >= least

    @contextmanager
    def answering(self, op: str) -> Iterator[None]:
        """The block of a call, which is answered if the block does not raise."""
        started = self._now()
        yield
        with self._counting:
            # One answer ends the row: an operation that works sometimes is still worth testing.
            del self._hung_in_a_row[op]
            # Only answered calls: a hang would raise its own deadline.
            self._slowest[op] = max(self._slowest.get(op, 0.0), (self._now() - started) * 1000)
