"""Listeners by event name, as in Node's EventEmitter."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

logger = logging.getLogger("bullmq")

Listener = Callable[..., Awaitable[None] | None]


class EventEmitter:
    """Calls listeners in the order in which they were added. A listener that raises becomes an `error` event."""

    def __init__(self) -> None:
        self._listeners: defaultdict[str, list[Listener]] = defaultdict(list)
        self._running: set[asyncio.Future[None]] = set()

    def on(self, event: str, listener: Listener) -> None:
        """Call the listener at every such event; a coroutine function runs as a task of its own."""
        self._listeners[event].append(listener)

    def off(self, event: str, listener: Listener) -> None:
        """Forget one listener."""
        if listener in self._listeners[event]:
            self._listeners[event].remove(listener)

    def emit(self, event: str, *args: Any) -> None:
        """Call the listeners of an event. An `error` that nobody listens to is logged."""
        listeners = list(self._listeners.get(event, ()))
        if event == "error" and not listeners:
            self.unheard(args[0] if args else "error")
        for listener in listeners:
            self._call(event, listener, args)

    def unheard(self, error: Any) -> None:
        """Log an `error` that nobody listens to."""
        logger.error("%s", error, exc_info=error if isinstance(error, BaseException) else None)

    def _call(self, event: str, listener: Listener, args: tuple[Any, ...]) -> None:
        try:
            outcome = listener(*args)
        except Exception as error:  # noqa: BLE001 - a listener's failure must not stop the client
            if event == "error":
                self.unheard(error)
            else:
                self.emit("error", error)
            return
        if inspect.isawaitable(outcome):
            task = asyncio.ensure_future(outcome)
            self._running.add(task)
            task.add_done_callback(self._running.discard)
