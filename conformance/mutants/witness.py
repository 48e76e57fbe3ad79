"""Whether a damage had an effect: the broken code ran, and did something that the healthy code would not do.

A mutant whose damage has no effect is a healthy client: if it survives, that says nothing about the gate; if it is
noticed, the damage was not the cause.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field, is_dataclass
from functools import wraps
from inspect import iscoroutinefunction, isfunction
from typing import Any, Self

_Function = Callable[..., Any]
_Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass
class _BrokenCall:
    """One call of a broken function, and what it has handed on to the healthy one, with the answers (or errors)."""

    arguments: _Arguments
    handed_on: list[_Arguments] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)

    def is_as_healthy(self, answer: Any) -> bool:
        """Whether the call was handed on once, as it came, and answered as the healthy function has answered."""
        return self.handed_on == [self.arguments] and self.answers == [answer] and type(self.answers[0]) is type(answer)


def _as_it_is(value: Any) -> Any:
    """A copy of a plain value, so that later changes do not affect it."""
    # Only plain values are copied: a copy of a client object would behave differently.
    is_plain = isinstance(value, (dict, list)) or (is_dataclass(value) and type(value).__eq__ is not object.__eq__)
    return copy(value) if is_plain else value


def _arguments(args: tuple[Any, ...], named: dict[str, Any]) -> _Arguments:
    return tuple(map(_as_it_is, args)), {name: _as_it_is(value) for name, value in named.items()}


class Witness:
    """Watches broken functions. `inflicted`: whether one of them did something that the healthy one would not.

    Seen are arguments, answers and errors. A damage of another kind (it waits, or forgets) calls `note`.
    """

    def __init__(self) -> None:
        self.inflicted = False

    def note(self) -> None:
        """The damage came about."""
        self.inflicted = True

    def around(self, healthy: _Function, wrap: Callable[[_Function], _Function]) -> _Function:
        """The broken function that `wrap` puts around the healthy one, with each of its calls compared."""
        # A ContextVar, because calls of several tasks overlap in one driver.
        current: ContextVar[_BrokenCall | None] = ContextVar("current", default=None)
        broken = wrap(_remembered(healthy, current))
        return self._compared(broken, current) if isfunction(broken) else self.replacement(broken)

    def replacement(self, replacement: Any) -> Any:
        """The replacement of something healthy: a function has an effect as soon as it is called.

        Anything else counts as having one at once.
        """
        match replacement:
            case staticmethod():
                return staticmethod(self.replacement(replacement.__func__))
            case property():
                return property(*(each and self.replacement(each) for each in (replacement.fget, replacement.fset)))
        if not isfunction(replacement):
            self.note()
            return replacement
        return self._noted(replacement)

    def _noted(self, function: _Function) -> _Function:
        if iscoroutinefunction(function):

            @wraps(function)
            async def noted_later(*args: Any, **named: Any) -> Any:
                self.note()
                return await function(*args, **named)

            return noted_later

        @wraps(function)
        def noted(*args: Any, **named: Any) -> Any:
            self.note()
            return function(*args, **named)

        return noted

    def _compared(self, broken: _Function, current: ContextVar[_BrokenCall | None]) -> _Function:
        if iscoroutinefunction(broken):

            @wraps(broken)
            async def compared_later(*args: Any, **named: Any) -> Any:
                with _Comparison(self, current, _BrokenCall(_arguments(args, named))) as comparison:
                    comparison.answer = await broken(*args, **named)
                return comparison.answer

            return compared_later

        @wraps(broken)
        def compared(*args: Any, **named: Any) -> Any:
            with _Comparison(self, current, _BrokenCall(_arguments(args, named))) as comparison:
                comparison.answer = broken(*args, **named)
            return comparison.answer

        return compared


class _Comparison:
    """One call of a broken function; at its end the witness learns whether it differed from the healthy one."""

    def __init__(self, witness: Witness, current: ContextVar[_BrokenCall | None], call: _BrokenCall) -> None:
        self._witness, self._current, self._call = witness, current, call
        self.answer: Any = None

    def __enter__(self) -> Self:
        self._before = self._current.get()
        self._current.set(self._call)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        # Restored first: a broken function may be called from within another one.
        self._current.set(self._before)
        if not self._call.is_as_healthy(self.answer if error is None else error):
            self._witness.note()


def _remembered(healthy: _Function, current: ContextVar[_BrokenCall | None]) -> _Function:
    """The healthy function, which records its arguments and answers in the call of the broken one."""
    # A class is called to make an object, and is not compared.
    if isinstance(healthy, type):
        return healthy

    def recorded(args: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        call = current.get()
        if call is None:
            return []
        call.handed_on.append(_arguments(args, named))
        return call.answers

    if iscoroutinefunction(healthy):

        @wraps(healthy)
        async def remembered_later(*args: Any, **named: Any) -> Any:
            answers = recorded(args, named)
            try:
                answer = await healthy(*args, **named)
            except BaseException as error:
                # An error is an answer as well: a mutant that swallows it has had an effect.
                answers.append(error)
                raise
            answers.append(_as_it_is(answer))
            return answer

        return remembered_later

    @wraps(healthy)
    def remembered(*args: Any, **named: Any) -> Any:
        answers = recorded(args, named)
        try:
            answer = healthy(*args, **named)
        except BaseException as error:
            answers.append(error)
            raise
        # Before it is returned, because the broken function may change it afterwards.
        answers.append(_as_it_is(answer))
        return answer

    return remembered
