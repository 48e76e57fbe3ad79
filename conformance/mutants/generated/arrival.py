"""Whether a mutant's process has reached its changed code: the first time, it creates a file as a mark.

The baseline says which cases pass a place on the healthy client. A mutant that none of them led there broke nothing.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.mutants.generated.python_operators import Module

if TYPE_CHECKING:  # nothing of the reference may be imported before it is changed
    from conformance.reference_impl.scripts.runner import ScriptText

REPORT = "BULLMQ_CONFORMANCE_MUTANT_ARRIVED"
"""The variable with the path of the file."""
ARRIVED = "__arrived__"
"""The name under which a changed module finds the function that creates the file."""


class Arrival:
    """Called wherever the change is; only the first call makes the file, and none does without a path."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    @staticmethod
    def from_environment() -> Arrival:
        """The arrival that the parent process waits for, if it does."""
        path = os.environ.get(REPORT)
        return Arrival(Path(path) if path else None)

    def __call__(self) -> None:
        """Report that the change was reached."""
        file, self._file = self._file, None
        if file is not None:
            file.touch()


class ArrivingScripts(Mapping[str, "ScriptText"]):
    """The scripts of a client, of which one is changed: it is reached when the client wants it."""

    def __init__(self, scripts: Mapping[str, ScriptText], changed: str, arrival: Callable[[], None]) -> None:
        self._scripts, self._changed, self._arrival = scripts, changed, arrival

    def __getitem__(self, name: str) -> ScriptText:
        if name == self._changed:
            self._arrival()
        return self._scripts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._scripts)

    def __len__(self) -> int:
        return len(self._scripts)


def with_arrival(text: bytes, position: int) -> ast.Module:
    """The tree of a changed module, with a call of `ARRIVED` before the statement in which the change is.

    Outside of functions the change is reached when the module is loaded; the call is then the module's last statement.
    Raises SyntaxError if the text is not Python.
    """
    module = Module.of("", text)
    call = ast.parse(f"{ARRIVED}()").body[0]
    block, index = place_of(module, position)
    block.insert(index, call)
    return module.tree


def place_of(module: Module, position: int) -> tuple[list[ast.stmt], int]:
    """The block, and the place in it, of the innermost statement of a function at this byte."""
    functions = [
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _covers(module, node, position)
    ]
    if not functions:
        return module.tree.body, len(module.tree.body)
    function = functions[-1]  # `ast.walk` comes to what is inside later
    found = [
        (block, index)
        for block in _blocks(function)
        for index, statement in enumerate(block)
        if _covers(module, statement, position)
    ]
    # Else it is a default of the function, which only its calls can show.
    return found[-1] if found else (function.body, min(1, len(function.body) - 1))


def _blocks(function: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(function):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def _covers(module: Module, node: ast.stmt, position: int) -> bool:
    return module.start(node) <= position < max(module.end(node), module.start(node) + 1)
