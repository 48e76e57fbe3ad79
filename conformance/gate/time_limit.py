"""Steps of a scenario in threads that can be ended from outside: whatever a client does, the run goes on.

A side that does not come back is ended in three ways, one after the other: the scenario is cancelled, which everything
that waits looks at; the drivers are killed, which ends every call; and an exception is thrown into a loop of Python
that neither waits nor calls. What survives even that is left behind: its driver is gone, and it can do nothing more.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from conformance.participants.marks import Scenario

GRACE_SECONDS = 2.0
"""How long each way of ending a side may take."""

SLOWER = 5
"""How much longer than the oracle the client may take, if that is longer than its limit."""


class TimeLimitExceeded(Exception):
    """A side did not come to its end. `step` is what it was doing, `limit_s` how long it had."""

    def __init__(self, limit_s: float, step: str) -> None:
        super().__init__(f"the scenario did not come to its end within {limit_s:.0f} s; its last step: {step}")
        self.limit_s, self.step = limit_s, step


@dataclass(frozen=True)
class TimeLimit:
    """How long a scenario may take. `client_s` is for the client once the oracle is through, `all_s` for everybody."""

    client_s: float = 60.0
    all_s: float = 300.0

    @staticmethod
    def of(scenario: Scenario) -> TimeLimit:
        """Generous: what takes so long does not come back. Slow scenarios are those that wait on purpose."""
        client_s = 180.0 if scenario.slow else 60.0
        return TimeLimit(client_s, 5 * client_s if scenario.style == "differential" else 2 * client_s)

    def left_s(self, spent_s: float, oracle_s: float | None) -> float:
        """What is left after `spent_s`. `oracle_s`: how long the oracle took; None while it still goes on."""
        if oracle_s is None:
            return self.all_s - spent_s
        return min(self.all_s, max(self.client_s, SLOWER * oracle_s)) - spent_s


class Side:
    """The steps of one side, begun at once, in a thread of its own."""

    def __init__(self, steps: Callable[[], None], step: Callable[[], str]) -> None:
        self._steps, self._step = steps, step
        self._started = time.monotonic()
        self._raised: BaseException | None = None
        self._exceeded: TimeLimitExceeded | None = None
        self.took_s: float | None = None
        """How long it took; None while it goes on."""
        # A daemon: what cannot be ended must not keep the whole run from ending.
        self._thread = threading.Thread(target=self._run, name="scenario", daemon=True)
        self._thread.start()

    @property
    def goes_on(self) -> bool:
        """Whether it has not come to its end."""
        return self._thread.is_alive()

    @property
    def failure(self) -> BaseException | None:
        """What ended it, if that was not its end. What it raises once its time is up is only how it was ended."""
        return self._exceeded or self._raised

    def wait(self, seconds: float) -> bool:
        """Wait for its end, at most so long. Returns whether it has come."""
        self._thread.join(max(0.0, seconds))
        return not self.goes_on

    def interrupt(self) -> None:
        """Throw an exception into it; it comes as soon as Python runs a line of it."""
        ident = self._thread.ident
        if ident is not None and self.goes_on:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(_Interrupted))

    def exceeds(self, limit_s: float) -> None:
        """Its time is up."""
        self._exceeded = TimeLimitExceeded(limit_s, self._step())

    def _run(self) -> None:
        try:
            self._steps()
        except BaseException as failure:  # noqa: BLE001  (whatever it is, it is evidence)
            self._raised = failure
        finally:
            self.took_s = time.monotonic() - self._started


class _Interrupted(BaseException):
    """Thrown into a side from outside; not an Exception, so that no scenario takes it for one of its own."""


LOOK_EVERY_S = 0.05


def play(
    oracle: Side | None, client: Side, limit: TimeLimit, *, cancel: Callable[[str], None], kill: Callable[[], None]
) -> None:
    """Wait for the sides, and end those that exceed the limit.

    `oracle`: None where one side plays both. `cancel` is given the reason, `kill` ends the drivers.
    """
    sides = [client] if oracle is None else [oracle, client]
    started = time.monotonic()
    left_s = limit.all_s
    while left_s > 0 and any(side.goes_on for side in sides):
        next(side for side in sides if side.goes_on).wait(min(left_s, LOOK_EVERY_S))
        spent_s = time.monotonic() - started
        left_s = limit.left_s(spent_s, oracle.took_s if oracle else None)
    late = [side for side in sides if side.goes_on]
    for side in late:
        side.exceeds(time.monotonic() - started)
    _end(late, cancel, kill)


def _end(late: Sequence[Side], cancel: Callable[[str], None], kill: Callable[[], None]) -> None:
    """Try every way of ending these sides, until they have ended."""
    if not late:
        return
    interrupts = [side.interrupt for side in late]
    for way in (lambda: cancel("the time limit is exceeded"), kill, *interrupts):
        way()
        ends = time.monotonic() + GRACE_SECONDS
        if all(side.wait(ends - time.monotonic()) for side in late):
            break
    # Also after a side that has heard of its end: a driver that was in the midst of it is not one to go on with.
    kill()
