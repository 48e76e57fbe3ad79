"""The tools with which a mutant breaks the reference client, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from fnmatch import fnmatchcase
from typing import Any, Self

from conformance.mutants.lua_filter import filtered
from conformance.reference_impl.script_runner import ScriptCall, ScriptRunner, ScriptText, ScriptTexts

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
        """Replace an attribute of a class or module. Raises LookupError, naming the mutant, where there is none."""
        if not hasattr(owner, name):
            raise LookupError(f"mutant {self.name}: {owner.__name__} has no {name}")
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


def _restore(owner: Any, name: str, before: Any) -> None:
    if before is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, before)
