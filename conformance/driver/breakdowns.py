"""Which operations of a driver hang or end its process, over all the processes in which it was started.

The first time, a call is waited for until its own deadline. The kit then knows that this operation may never come back,
and waits less; after three times in a row it does not try again. Nor does it try again what has ended the process three
times and never done anything else: every time costs a start of the driver.
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
LEAST_MS = 4000
"""What a call has at least, once its operation has hung."""
SLOWER = 10
"""How much slower than ever before an answer may be, once its operation has hung."""


class Breakdowns:
    """Told of every call how it ended; asked before the next. Thread-safe. Times are ms."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._counting = threading.Lock()
        self._hung_in_a_row: Counter[str] = Counter()
        self._has_hung: set[str] = set()
        self._crashed: Counter[str] = Counter()
        self._slowest: dict[str, float] = {}

    def deadline_ms(self, op: str, asked_ms: int) -> int:
        """How long to wait for a call for which `asked_ms` are allowed. Raises OperationGivenUp."""
        with self._counting:
            if self._hung_in_a_row[op] >= MOST_HANGS:
                raise OperationGivenUp(op, f"has hung {MOST_HANGS} times in a row")
            if self._crashed[op] >= MOST_CRASHES and op not in self._slowest:
                raise OperationGivenUp(op, f"has ended the driver {MOST_CRASHES} times, and never was answered")
            if op not in self._has_hung:
                return asked_ms
            return min(asked_ms, max(LEAST_MS, int(SLOWER * self._slowest.get(op, 0.0))))

    def hung(self, op: str) -> None:
        """A call was not answered in time."""
        with self._counting:
            self._hung_in_a_row[op] += 1
            self._has_hung.add(op)

    def crashed(self, op: str) -> None:
        """The driver ended by itself while it had this call alone to answer."""
        with self._counting:
            self._crashed[op] += 1

    @contextmanager
    def answering(self, op: str) -> Iterator[None]:
        """The call is answered at the end of the block, unless that raises."""
        started = self._now()
        yield
        with self._counting:
            del self._hung_in_a_row[op]
            self._slowest[op] = max(self._slowest.get(op, 0.0), (self._now() - started) * 1000)
