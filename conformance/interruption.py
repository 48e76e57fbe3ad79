"""Interruptions: Ctrl-C, SIGTERM and SIGHUP have the same effect, and a second one never stops the clean-up.

All three raise KeyboardInterrupt in the main thread, so that every `finally` and `with` runs. While an interruption
propagates, further ones are ignored, so that the clean-up finishes. If a library swallows the exception, it is raised
again.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODE = 130
"""The exit code that shells use after Ctrl-C; also used for the other two signals."""

# Long enough for the code that dropped the exception to end.
AGAIN_AFTER_S = 0.02
"""Delay before a swallowed interruption is raised again."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Handling:
    """Whether interruptions are handled, and whether one has reached the code that ends the program.

    `block`: number of the current or last outermost block that handles them. An interruption belongs to one block: it
    is not raised again in the next.
    """

    now = False
    arrived = False
    block = 0


class LastingKeyboardInterrupt(KeyboardInterrupt):
    """Is raised again if it is dropped before it has `arrived`.

    C code that clears errors, and `except BaseException` in a package, drop it silently.
    """

    def __init__(self) -> None:
        super().__init__()
        self._block = _Handling.block

    def __del__(self) -> None:
        """Python deletes an exception as soon as no code handles it any more."""
        # Only in its own block: an exception of an earlier block may be deleted much later.
        if _Handling.now and self._block == _Handling.block:
            _interrupt_soon(only_if_handled=True)


def arrived() -> None:
    """Note that the program ends because of an interruption, so that it is not raised again."""
    _Handling.arrived = True


@contextmanager
def handled() -> Iterator[None]:
    """In this block each of the signals raises KeyboardInterrupt; afterwards they do what they did before.

    Only for the main thread. Signals that were ignored from the start (`nohup`, `command &`) stay ignored, and so do
    those that `ignored` has switched off.
    """
    # Handlers are remembered, because a caller may have its own.
    before, outer = {number: signal.getsignal(number) for number in SIGNALS}, _Handling.now
    try:
        _Handling.now, _Handling.arrived = True, outer and _Handling.arrived
        _Handling.block += not outer
        for number, handler in before.items():
            # `nohup` relies on ignored signals staying ignored.
            if handler is not signal.SIG_IGN:
                signal.signal(number, _interrupt)
        with never_dropped():
            yield
    finally:
        _Handling.now = outer
        for number, handler in before.items():
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)


@contextmanager
def never_dropped() -> Iterator[None]:
    """In this block an interruption that Python drops is raised again, and is not printed.

    Python drops exceptions in callbacks of the garbage collector, and a signal may arrive during one.
    """
    before = sys.unraisablehook

    def again(dropped: sys.UnraisableHookArgs) -> None:
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            _interrupt_soon()
        else:
            before(dropped)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextmanager
def postponed() -> Iterator[None]:
    """Delay interruptions until the end of this block, which must be short.

    It protects a step that must not stop halfway, such as making a folder and noting that it must be removed. Only the
    main thread is ever interrupted.
    """
    # Python runs signal handlers in the main thread only.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, lambda got, _frame: came.append(got))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        # After the handlers are restored, so that the signal has its normal effect.
        if came:
            # The first one only: one interruption is enough to end the program.
            signal.raise_signal(came[0])


@contextmanager
def held_from_children() -> Iterator[None]:
    """Processes started in this block, which must be short, get none of the signals until they call `let_through`.

    Ctrl-C goes to the whole process group of a terminal. If it ended a child while the parent still writes the child's
    task to a pipe, the parent would block forever: no process reads the pipe, and it stays open because the parent
    holds its other end.
    """
    # Blocked and not ignored: a blocked signal is delivered later, and the mask is inherited by children.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_through() -> None:
    """Receive the signals from now on, including pending ones; called by the child of `held_from_children`."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _interrupt_soon(*, only_if_handled: bool = False) -> None:
    # Not at once: an exception that is raised while Python reports a dropped one is dropped as well.
    # And not with `threading`: it waits until the thread has started, which blocks forever while Python shuts down.
    if not sys.is_finalizing():
        _thread.start_new_thread(_interrupt_again, (only_if_handled, _Handling.block))


def _interrupt_again(only_if_handled: bool, block: int) -> None:
    time.sleep(AGAIN_AFTER_S)
    if block == _Handling.block and not _Handling.arrived and (_Handling.now or not only_if_handled):
        handled_ones = (number for number in SIGNALS if signal.getsignal(number) is _interrupt)
        signal.raise_signal(next(handled_ones, signal.SIGINT))


def ignored() -> None:
    """Ignore all signals from now on: everything is cleaned up, and Python is about to exit."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    if not _is_on_its_way_out():
        raise LastingKeyboardInterrupt


def _is_on_its_way_out() -> bool:
    """Whether the main thread is already handling an earlier interruption."""
    # Python's state is used rather than a variable of our own: an interruption in a callback whose errors Python drops
    # is lost, and then the next one must count.
    return is_behind(sys.exception())


def is_behind(error: BaseException | None) -> bool:
    """Whether this error is an interruption, or was raised while one was handled."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False
