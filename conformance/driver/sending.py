"""When a call of another thread is on its way to its driver: what is sent later arrives later."""

from __future__ import annotations

import threading


class _OfThread(threading.local):
    sent: threading.Event | None = None


_OF_THREAD = _OfThread()


def tell_when_sent(sent: threading.Event) -> None:
    """Set the event as soon as this thread has sent a call to a driver."""
    _OF_THREAD.sent = sent


def note_sent() -> None:
    """Note that this thread has sent a call to a driver."""
    if _OF_THREAD.sent is not None:
        _OF_THREAD.sent.set()
