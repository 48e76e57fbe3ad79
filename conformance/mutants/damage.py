"""The tools with which a mutant breaks the reference client, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from fnmatch import fnmatchcase
from inspect import iscoroutinefunction, signature
from typing import Any, Self

from conformance.mutants.lua_filter import filtered
from conformance.reference_impl.scripts.runner import ScriptCall, ScriptRunner, ScriptText, ScriptTexts

Function = Callable[..., Any]
Around = Callable[[Function], Function]
"""Takes the healthy function and answers the broken one."""

_ABSENT = object()


class Damage:
    """What is broken about one client. As a context manager, it heals everything at the end.

    Python code is broken for the whole process; Lua only for who uses `scripts`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._filters: list[tuple[str, str]] = []
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()

    def heal(self) -> None:
        """Put back every Python function that was replaced."""
        self._undo.close()

    # Lua.

    def commands(self, scripts: str, body: str) -> None:
        """Filter the Redis commands inside the scripts whose name matches a glob; `lua_filter.filtered` tells how."""
        self._filters.append((scripts, body))

    def scripts(self, healthy: ScriptTexts) -> ScriptTexts:
        """The scripts with all filters. Raises LookupError, naming the mutant, for a filter that matches no script."""
        broken: dict[str, ScriptText] = dict(healthy)
        for pattern, body in self._filters:
            matching = [name for name in healthy if fnmatchcase(name, pattern)]
            if not matching:
                raise LookupError(f"mutant {self.name}: no script is called {pattern}")
            for name in matching:
                broken[name] = filtered(broken[name], body)
        return broken

    # Python.

    def replace(self, owner: Any, name: str, replacement: Any) -> None:
        """Replace an attribute of a class or module.

        Raises LookupError, naming the mutant, where there is none, and where it is called in another way than its
        replacement: such a client would be noticed because it crashes, and not because of its defect.
        """
        if not hasattr(owner, name):
            raise LookupError(f"mutant {self.name}: {owner.__name__} has no {name}")
        if not _is_called_like(getattr(owner, name), replacement):
            raise LookupError(f"mutant {self.name}: {owner.__name__}.{name} is not called like its replacement")
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, replacement)
        self._undo.callback(_restore, owner, name, before)

    def around(self, owner: Any, name: str, wrap: Around) -> None:
        """Put a broken function around a healthy one."""
        healthy = getattr(owner, name, None)
        self.replace(owner, name, wrap(healthy) if callable(healthy) else None)

    def calls(self, script: str, edit: Callable[[ScriptCall], ScriptCall]) -> None:
        """Change the keys and arguments with which the client calls one script."""

        def edited(call: ScriptCall) -> ScriptCall:
            return edit(call) if call.name == script else call

        def one(healthy: Function) -> Function:
            async def run(runner: ScriptRunner, call: ScriptCall) -> Any:
                return await healthy(runner, edited(call))

            return run

        self.around(ScriptRunner, "run", one)

    def argument(self, script: str, index: int, change: Callable[[Any], Any]) -> None:
        """Change one argument (counted from 0, after the keys) of one script."""

        def edit(call: ScriptCall) -> ScriptCall:
            arguments = list(call.arguments)
            arguments[index] = change(arguments[index])
            return ScriptCall(call.name, call.keys, arguments)

        self.calls(script, edit)


def _is_called_like(healthy: Any, replacement: Any) -> bool:
    """Whether the replacement can be called, and awaited, wherever the healthy function is."""
    function = getattr(replacement, "__func__", replacement)
    if not (callable(healthy) and callable(function)):
        return True
    return _fits(healthy, function) and iscoroutinefunction(healthy) == iscoroutinefunction(function)


def _fits(healthy: Function, function: Function) -> bool:
    """Whether a call with nothing but what the healthy function needs is a call of the other as well."""
    needed = [each for each in signature(healthy).parameters.values() if each.default is each.empty]
    positional = [each.name for each in needed if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    named = {each.name: None for each in needed if each.kind is each.KEYWORD_ONLY}
    try:
        signature(function).bind(*positional, **named)
    except TypeError:
        return False
    except ValueError:  # a builtin, which does not tell its parameters
        return True
    return True


def _restore(owner: Any, name: str, before: Any) -> None:
    if before is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, before)
