"""Being told to end: Ctrl-C, SIGTERM and SIGHUP are one thing, and the second of them never breaks off the cleaning up.

All three raise KeyboardInterrupt in the main thread, so that every `finally` and every `with` on the way out is carried
out. While one is on its way out, further ones are ignored: what the first has begun to clean up is cleaned up.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODE = 130
"""What shells say of a program that was ended by Ctrl-C; the same for the other two."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def heeded() -> Iterator[None]:
    """In this block each of the signals raises KeyboardInterrupt; afterwards they do what they did before.

    Only in the main thread of the program. What was ignored from the start (`nohup`, `command &`) stays ignored.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignored() -> None:
    """From now on ignore them all: everything is cleaned up, and Python itself is about to end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    if not _is_on_its_way_out():
        raise KeyboardInterrupt


def _is_on_its_way_out() -> bool:
    """Whether what the main thread does now, it does because of an earlier interruption."""
    # Asked of Python and not noted in a variable: an interruption that hits a callback whose errors Python drops is
    # lost, and then the next one must count.
    error = sys.exception()
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False
