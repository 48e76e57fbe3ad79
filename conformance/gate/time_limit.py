"""Time limit of a scenario: its steps run in threads that can be stopped, so that no client can hang a run.

A side that exceeds its limit is stopped in three ways, one after the other: the scenario is cancelled, which every wait
checks; the drivers are killed, which ends every call; an exception is thrown into the thread, which ends a Python loop
that neither waits nor calls. A thread that survives is abandoned: without a driver it cannot do anything more.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from conformance.participants.marks import Scenario

GRACE_SECONDS = 2.0
"""Time for each way of stopping a side to take effect."""

SLOWER = 5
"""The client may take this many times as long as the oracle, if that is more than its limit."""


class TimeLimitExceeded(Exception):
    """A side exceeded its time limit. `step`: what it was doing. `limit_s`: the time it had, in seconds."""

    def __init__(self, limit_s: float, step: str) -> None:
        super().__init__(f"the scenario did not come to its end within {limit_s:.0f} s; its last step: {step}")
        self.limit_s, self.step = limit_s, step


@dataclass(frozen=True)
class TimeLimit:
    """How long a scenario may take, in s. `client_s`: the client, after the oracle has finished. `all_s`: both."""

    client_s: float = 60.0
    all_s: float = 300.0

    @staticmethod
    def of(scenario: Scenario) -> TimeLimit:
        """Return a generous limit, which only hanging calls exceed; slow scenarios wait on purpose."""
        # Two sides get more than twice the time, because the client may take SLOWER times as long as the oracle.
        client_s = 180.0 if scenario.slow else 60.0
        return TimeLimit(client_s, 5 * client_s if scenario.style == "differential" else 2 * client_s)

    def left_s(self, spent_s: float, oracle_s: float | None) -> float:
        """Return the time left after `spent_s`. `oracle_s`: how long the oracle took; None while it is running."""
        # While the oracle runs, nothing is known about how long these steps take, so only the outer limit counts.
        if oracle_s is None:
            return self.all_s - spent_s
        # A client may be slow if the oracle is slow as well: then both wait for the same condition.
        return min(self.all_s, max(self.client_s, SLOWER * oracle_s)) - spent_s


class Side:
    """The steps of one side, started at once in a separate thread."""

    def __init__(self, steps: Callable[[], None], step: Callable[[], str]) -> None:
        self._steps, self._step = steps, step
        self._started = time.monotonic()
        self._raised: BaseException | None = None
        self._exceeded: TimeLimitExceeded | None = None
        self.took_s: float | None = None
        """How long it took; None while it is running."""
        # A daemon, because a thread that cannot be stopped must not keep the run from ending.
        self._thread = threading.Thread(target=self._run, name="scenario", daemon=True)
        self._thread.start()

    @property
    def goes_on(self) -> bool:
        """Whether it is still running."""
        return self._thread.is_alive()

    # Join instead of polling, so that a side that ends early is noticed at once.
    @property
    def failure(self) -> BaseException | None:
        """Why it failed; None if it finished. After a timeout, exceptions are only a result of stopping it."""
        return self._exceeded or self._raised

    def wait(self, seconds: float) -> bool:
        """Wait until it ends, for at most this many seconds. Returns whether it has ended."""
        self._thread.join(max(0.0, seconds))
        return not self.goes_on

    def interrupt(self) -> None:
        """Throw an exception into the thread, which arrives when Python runs its next line."""
        ident = self._thread.ident
        if ident is not None and self.goes_on:
            # The only way to stop a Python loop from outside: a thread cannot be killed.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(_Interrupted))

    def exceeds(self, limit_s: float) -> None:
        """Record that it exceeded its limit."""
        self._exceeded = TimeLimitExceeded(limit_s, self._step())

    def _run(self) -> None:
        try:
            self._steps()
        # BaseException, because the exception thrown by `interrupt` must also end up here.
        except BaseException as failure:  # noqa: BLE001  (any exception is evidence)
            self._raised = failure
        finally:
            # Also after a failure: the client's limit depends on how long the oracle took.
            self.took_s = time.monotonic() - self._started


class _Interrupted(BaseException):
    """Thrown into a side to stop it; not an Exception, so that scenarios do not catch it by mistake."""


# Short, because the client's limit changes as soon as the oracle ends.
LOOK_EVERY_S = 0.05


def wait_for(
    oracle: Side | None,
    client: Side,
    limit: TimeLimit,
    *,
    cancel: Callable[[str], None],
    kill: Callable[[], None],
    look: Callable[[], None] = lambda: None,
) -> None:
    """Wait for the sides, and stop those that exceed the limit.

    `oracle`: None if one side runs both participants. `cancel`: called with the reason. `kill`: kills the drivers.
    `look`: called again and again meanwhile.
    """
    sides = [client] if oracle is None else [oracle, client]
    started = time.monotonic()
    left_s = limit.all_s
    # One look per turn, because a side may end between two. Only the first running side is waited for; the short wait
    # lets the loop notice the other one.
    while left_s > 0 and (running := next((side for side in sides if side.goes_on), None)) is not None:
        running.wait(min(left_s, LOOK_EVERY_S))
        look()
        spent_s = time.monotonic() - started
        left_s = limit.left_s(spent_s, oracle.took_s if oracle else None)
    late = [side for side in sides if side.goes_on]
    for side in late:
        # Noted before anything is stopped: afterwards the step would be the one that was interrupted.
        side.exceeds(time.monotonic() - started)
    _end(late, cancel, kill)


def _end(late: Sequence[Side], cancel: Callable[[str], None], kill: Callable[[], None]) -> None:
    """Stop these sides, one way after the other until they have ended."""
    if not late:
        return
    interrupts = [side.interrupt for side in late]
    # From harmless to drastic: a cancelled scenario leaves usable drivers, a killed one does not.
    for way in (lambda: cancel("the time limit is exceeded"), kill, *interrupts):
        way()
        # One deadline for all sides, so that two hanging sides do not double the wait.
        ends = time.monotonic() + GRACE_SECONDS
        if all(side.wait(ends - time.monotonic()) for side in late):
            break
    # Kill even if cancelling was enough: a driver that was interrupted within a call is in an unknown state.
    kill()
