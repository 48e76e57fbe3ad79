"""Being told to end: Ctrl-C, SIGTERM and SIGHUP are one thing, and the second of them never breaks off the cleaning up.

All three raise KeyboardInterrupt in the main thread, so that every `finally` and every `with` on the way out is carried
out. While one is on its way out, further ones are ignored: what the first has begun to clean up is cleaned up. One that
is lost on its way, because some library drops whatever is raised just there, comes again.
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
"""What shells say of a program that was ended by Ctrl-C; the same for the other two."""

AGAIN_AFTER_S = 0.02
"""When an interruption that was dropped comes again."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Heeding:
    """Whether interruptions are heeded, and whether one has arrived where the program ends because of it.

    `block`: number of the outermost block that heeds them, or did last. An interruption of one is none of the next.
    """

    now = False
    arrived = False
    block = 0


class LastingKeyboardInterrupt(KeyboardInterrupt):
    """Comes again when it is forgotten before it has `arrived`.

    Code in C that asks whether something raises, and `except BaseException` somewhere in a package, forget it silently.
    """

    def __init__(self) -> None:
        super().__init__()
        self._block = _Heeding.block

    def __del__(self) -> None:
        """Python deletes an exception as soon as nobody handles it any more."""
        if _Heeding.now and self._block == _Heeding.block:
            _interrupt_soon(only_if_heeded=True)


def arrived() -> None:
    """Say that the program ends because of an interruption: it need not come again."""
    _Heeding.arrived = True


@contextmanager
def heeded() -> Iterator[None]:
    """In this block each of the signals raises KeyboardInterrupt; afterwards they do what they did before.

    Only in the main thread of the program. What was ignored from the start (`nohup`, `command &`) stays ignored, and so
    does what is `ignored` since.
    """
    before, outer = {number: signal.getsignal(number) for number in SIGNALS}, _Heeding.now
    try:
        _Heeding.now, _Heeding.arrived = True, outer and _Heeding.arrived
        _Heeding.block += not outer
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, _interrupt)
        with never_dropped():
            yield
    finally:
        _Heeding.now = outer
        for number, handler in before.items():
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)


@contextmanager
def never_dropped() -> Iterator[None]:
    """In this block an interruption that Python drops comes again, and is not printed.

    It drops what is raised in a callback of the garbage collector, which a signal may well hit.
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
    """In this block, which has to be short, an interruption waits for the end: what was half begun would complain.

    Or would be nobody's, such as a folder of which nobody has taken note. Only the main thread is ever interrupted.
    """
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
        if came:
            signal.raise_signal(came[0])


@contextmanager
def held_from_children() -> Iterator[None]:
    """In this block, which has to be short, processes begin that none of the signals hits until they `let_through`.

    Ctrl-C goes to the whole group of a terminal. A child that it ends while its parent still writes what it is to do
    would leave the parent writing for ever: nobody else would read, and the parent itself holds the pipe's other end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_through() -> None:
    """Be hit by the signals from now on, and by those that have come meanwhile: the child's part of the above."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _interrupt_soon(*, only_if_heeded: bool = False) -> None:
    # Not at once: what is raised while Python tells of a dropped exception is dropped as well.
    # And not by `threading`, whose threads wait until they have started: for ever, where Python itself is ending.
    if not sys.is_finalizing():
        _thread.start_new_thread(_interrupt_again, (only_if_heeded, _Heeding.block))


def _interrupt_again(only_if_heeded: bool, block: int) -> None:
    time.sleep(AGAIN_AFTER_S)
    if block == _Heeding.block and not _Heeding.arrived and (_Heeding.now or not only_if_heeded):
        heeded_ones = (number for number in SIGNALS if signal.getsignal(number) is _interrupt)
        signal.raise_signal(next(heeded_ones, signal.SIGINT))


def ignored() -> None:
    """From now on ignore them all: everything is cleaned up, and Python itself is about to end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    if not _is_on_its_way_out():
        raise LastingKeyboardInterrupt


def _is_on_its_way_out() -> bool:
    """Whether what the main thread does now, it does because of an earlier interruption."""
    # Asked of Python and not noted in a variable: an interruption that hits a callback whose errors Python drops is
    # lost, and then the next one must count.
    return is_behind(sys.exception())


def is_behind(error: BaseException | None) -> bool:
    """Whether an interruption is this error, or what it followed from: cleaning up may fail because of it."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False
