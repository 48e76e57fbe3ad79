"""Signals of the system that end workers, shared by all workers of an event loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakKeyDictionary

_Listening = dict[signal.Signals, list[asyncio.Event]]

# An event loop keeps one handler per signal, so a second worker would take the signal away from the first.
_LISTENING: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Listening]] = WeakKeyDictionary()


@contextmanager
def event_of_signals(signals: Iterable[signal.Signals]) -> Iterator[asyncio.Event]:
    """Give an event that is set by each of these signals, also if other blocks of this event loop wait for them.

    Raises RuntimeError outside the main thread.
    """
    loop = asyncio.get_running_loop()
    listening = _LISTENING.setdefault(loop, {})
    event = asyncio.Event()
    chosen = set(signals)
    try:
        for number in chosen:
            events = listening.setdefault(number, [])
            if not events:
                # On the loop, because an asyncio.Event must not be set inside a handler of signal.signal.
                loop.add_signal_handler(number, _set_all, events)
            events.append(event)
        yield event
    finally:
        for number in chosen:
            events = listening.get(number, [])
            if event in events:
                events.remove(event)
                if not events:
                    loop.remove_signal_handler(number)


def _set_all(events: list[asyncio.Event]) -> None:
    for event in events:
        event.set()
