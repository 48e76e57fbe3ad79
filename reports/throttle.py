"""Let this process work for a small share of the time, so that others on its machine do not notice it."""

from __future__ import annotations

import atexit
import signal
import time
from collections.abc import Callable

SHARE = 0.05
SLICE_S = 0.001
"""The time of work between two pauses. With 10 ms, or twice the share, the p99 of concurrent commands grew by a quarter
(two cores for it, Redis and a load of 500 jobs/s)."""


def _interrupt_after(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, seconds)


class Throttle:
    """Pauses the main thread after each slice of work, so that it works for `SHARE` of the time.

    A timer interrupts the work wherever it is (SIGALRM): a call of Arrow that takes longer than a slice is paid for
    after it. `clock`: the processor time of all threads of this process (s).
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.process_time,
        sleep: Callable[[float], None] = time.sleep,
        set_timer: Callable[[float], None] = _interrupt_after,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._set_timer = set_timer
        self._is_on = False
        self._paid_s = 0.0

    def install(self) -> None:
        """Answer to the timer from now on. Only the main thread of a process may do that."""
        signal.signal(signal.SIGALRM, lambda *_: self.pause())
        signal.siginterrupt(signal.SIGALRM, False)  # calls in C code do not expect to be interrupted
        atexit.register(self.turn, on=False)  # at its end Python gives the signal up, which would kill the process

    def turn(self, on: bool) -> None:
        """Work like this from now on, or as fast as possible."""
        if on != self._is_on:
            self._is_on = on
            self._paid_s = self._clock()
            self._set_timer(SLICE_S if on else 0)

    def pause(self) -> None:
        """Pay for the work since the last pause."""
        if not self._is_on:  # the timer was faster than `turn`
            return
        self._sleep((self._clock() - self._paid_s) * (1 / SHARE - 1))
        self._paid_s = self._clock()
        self._set_timer(SLICE_S)


_INSTALLED: list[Throttle] = []


def install_throttle(*, on: bool) -> None:
    """Let this process be throttled; `on`: from now on. Only its main thread may call this."""
    throttle = Throttle()
    throttle.install()
    _INSTALLED[:] = [throttle]
    throttle.turn(on)


def installed_throttle() -> Throttle | None:
    """The throttle of this process."""
    return _INSTALLED[0] if _INSTALLED else None
