"""Listeners by event name, as in Node's EventEmitter."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.known_names import refuse_misspelt
from conformance.reference_impl.option_types import NODE_EVENTS

logger = logging.getLogger("bullmq")

Listener = Callable[..., Any]
"""Called with the arguments of the event, or the first ones if it takes fewer; a returned coroutine is awaited."""

AnyListener = TypeVar("AnyListener", bound=Listener)
EventName = TypeVar("EventName", bound=str)


@dataclass(frozen=True)
class _Registered:
    """A listener, and how many arguments of an event it takes; None for all of them."""

    listener: Listener
    takes: int | None
    is_once: bool = False

    def call(self, args: tuple[Any, ...]) -> Any:
        return self.listener(*(args if self.takes is None else args[: self.takes]))


class EventEmitter(Generic[EventName]):
    """Calls listeners in the order in which they were added. A listener that raises becomes an `error` event.

    `EventName` has the names that type checkers accept; at run time any name passes that is not misspelt.

    `EVENTS` has the number of arguments of each event. A listener may take fewer, and gets the first ones.
    """

    EVENTS: ClassVar[Mapping[str, int]] = {"error": 1}

    def __init__(self) -> None:
        self._listeners: defaultdict[str, list[_Registered]] = defaultdict(list)
        self._running: set[asyncio.Future[None]] = set()

    def on(self, event: EventName, listener: AnyListener) -> AnyListener:
        """Call the listener at every such event; a coroutine function runs as a task of its own. Returns the listener.

        Raises InvalidArgument for a listener that needs more arguments than the event has, and for an event that
        nearly has the name of one, such as `complete`.
        """
        self._listeners[event].append(self._registered(event, listener, is_once=False))
        return listener

    def once(self, event: EventName, listener: AnyListener) -> AnyListener:
        """Call the listener at the next such event only. Returns the listener. Raises as `on` does."""
        self._listeners[event].append(self._registered(event, listener, is_once=True))
        return listener

    def off(self, event: str, listener: Listener) -> None:
        """Forget one listener."""
        registered = self._listeners[event]
        for place, candidate in enumerate(registered):
            if candidate.listener == listener:
                del registered[place]
                return

    def hears(self, event: str) -> bool:
        """Whether this event has a listener."""
        return bool(self._listeners.get(event))

    def emit(self, event: str, *args: Any) -> None:
        """Call the listeners of an event. An `error` without a listener is logged."""
        # A copy: a listener may add or remove listeners, which counts from the next event on, as in Node.js.
        listeners = list(self._listeners.get(event, ()))
        if event == "error" and not listeners:
            self.unheard(args[0] if args else "error")
        for registered in listeners:
            if registered.is_once:
                # Before the call: a listener that emits the same event must not be called twice.
                self._listeners[event].remove(registered)
            self._call(event, registered, args)

    def unheard(self, error: Any) -> None:
        """Log an `error` without a listener."""
        logger.error("%s", error, exc_info=error if isinstance(error, BaseException) else None)

    def _registered(self, event: str, listener: Listener, *, is_once: bool) -> _Registered:
        refuse_misspelt([event.partition(":")[0]], self._known_events(), what="event")
        takes = accepted_arguments(f"the listener of {event!r}", listener, self.EVENTS.get(event.partition(":")[0]))
        return _Registered(listener, takes, is_once)

    def _known_events(self) -> frozenset[str]:
        return NODE_EVENTS.union(self.EVENTS)

    def _call(self, event: str, registered: _Registered, args: tuple[Any, ...]) -> None:
        try:
            outcome = registered.call(args)
        except Exception as error:  # noqa: BLE001 - a listener's failure must not stop the client
            # A failing error listener is only logged: another `error` event would call it again without end.
            if event == "error":
                self.unheard(error)
            else:
                self.emit("error", error)
            return
        if inspect.isawaitable(outcome):
            task = asyncio.ensure_future(outcome)
            # Kept, because the event loop holds only weak references to tasks.
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[None]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.emit("error", error)


def accepted_arguments(what: str, function: Any, given: int | None) -> int | None:
    """Return how many arguments a function takes at most; None for any number.

    `what` names the function in errors; `given` is the number of arguments that it will get, None if unknown. Raises
    InvalidArgument for an object that cannot be called, and for a function that needs more arguments or keyword-only
    ones.
    """
    if not callable(function):
        raise InvalidArgument(f"{what} cannot be called: {function!r}")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions written in C have no signature
        return None
    needed = [parameter for parameter in parameters if parameter.default is parameter.empty]
    named = [parameter.name for parameter in needed if parameter.kind is parameter.KEYWORD_ONLY]
    if named:
        raise InvalidArgument(f"{what} needs {named[0]!r} by name, which it does not get")
    positional = sum(parameter.kind in _POSITIONAL for parameter in needed)
    if given is not None and positional > given:
        raise InvalidArgument(f"{what} needs {positional} arguments, and gets {given}")
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return sum(parameter.kind in _POSITIONAL for parameter in parameters)


_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
