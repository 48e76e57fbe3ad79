"""Text gets to a terminal through `conformance.pages.terminal`; `python -m tests.house.foreign_output` finds bypasses.

A driver, a job or Redis may have chosen any text that is not a constant. So the words of `print`, `console.print`,
`add_row` and the like are constants, calls that escape, or values that are declared as blocks of rich; and only the
door itself makes a `Text` of anything but a constant. Templates of HTML mark nothing as safe but the kit's own parts.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("conformance/cli", "conformance/report", "conformance/fuzz", "conformance/environment", "chaos", "reports")
TOOLS = tuple(f"reports/{name}.py" for name in ("executor_archive", "standalone", "prepare_spark"))
ELSEWHERE = ("chaos/mutants", "chaos/test_", *TOOLS)
"""Broken clients, tests, and tools that print their own paths and addresses."""
SHOWING = frozenset({"print", "add_row", "echo", "secho"})
"""Calls, of a function or a method, whose positional arguments are shown."""
MAKING = frozenset({"Text", "Text.assemble", "Text.from_markup", "Markdown"})
"""Calls that make a block of a text, which may then be shown."""
DOORS = frozenset({"terminal_text", "terminal_line", "terminal_block", "terminal_parts", "printable"})
"""Calls that escape."""
RENDERED = frozenset(
    {"render", "compact_json", "requirements_page", "render_version_page", "render_mixed_page", "Table"}
)
"""Calls that make a whole report, which the tests of hostile texts check, or that show nothing themselves."""
BLOCKS = re.compile(r"\b(Text|Table|RenderableType|RenderableTable|Panel|Group)\b")
"""Annotations of values whose makers have been checked."""
NUMBERS = re.compile(r"[,.\d]*[dfge%]|,")
"""Formats that only numbers have."""
NUMBERS_OF = frozenset({"count", "duration", "len", "total", *DOORS})
"""Calls whose result is a number in words, or is escaped."""
SAFE_PARTS = frozenset({"style", "script", "program", 'lanes.get(key(run), "")', "plots[key(run)]"})
"""What a template may leave unescaped: style, scripts and drawings, which the kit makes and escapes itself."""
_SAFE = re.compile(r"([^\s{][^{}|]*?)\s*\|\s*safe\b")


@dataclass(frozen=True)
class Bypass:
    """A place where foreign text may get out, and why."""

    line: int
    why: str


def bypasses(tree: ast.Module, returns: Mapping[str, str]) -> Iterator[Bypass]:
    """Find calls that show a text which was not escaped. `returns`: the annotations of all functions, by name."""
    scopes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inner = {id(node) for scope in scopes for node in ast.walk(scope) if node is not scope}
    for scope in [tree, *scopes]:
        known = _blocks_in(scope, returns)
        for node in ast.walk(scope):
            if isinstance(node, ast.Call) and (scope is not tree or id(node) not in inner):
                yield from _bypasses_of(node, known, returns)


def _bypasses_of(call: ast.Call, blocks: set[str], returns: Mapping[str, str]) -> Iterator[Bypass]:
    name = _name(call.func)
    made = ast.unparse(call.func)
    if name in SHOWING:
        for argument in call.args:
            if not _harmless(argument, blocks, returns):
                yield Bypass(argument.lineno, f"`{name}` shows {ast.unparse(argument)[:60]!r}: use terminal_text")
    elif made in MAKING:
        for argument in call.args:
            if not _constant(argument) and not _is_rendered(argument):
                yield Bypass(argument.lineno, f"`{made}` of {ast.unparse(argument)[:60]!r}: use terminal_text")


def _harmless(node: ast.expr, blocks: set[str], returns: Mapping[str, str]) -> bool:
    if isinstance(node, ast.Starred):
        return _harmless(node.value, blocks, returns)
    if isinstance(node, ast.IfExp):
        return all(_harmless(part, blocks, returns) for part in (node.body, node.orelse))
    if isinstance(node, ast.Name):
        return node.id in blocks
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        return _harmless(node.elt, blocks, returns)
    if not isinstance(node, ast.Call):
        return _constant(node)
    name = _name(node.func)
    if name == "map":
        return _name(node.args[0]) in DOORS
    return name in DOORS | RENDERED or ast.unparse(node.func) in MAKING or bool(BLOCKS.search(returns.get(name, "")))


def _is_rendered(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _name(node.func) in RENDERED


def _constant(node: ast.expr) -> bool:
    """Whether a text is the kit's own: constants, constants in order, and numbers in a format of numbers."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Tuple):
        return all(map(_constant, node.elts))
    if isinstance(node, ast.JoinedStr):
        return all(isinstance(part, ast.Constant) or _number(part) for part in node.values)
    return isinstance(node, ast.Call) and (
        _name(node.func) in NUMBERS_OF or (_name(node.func) == "str" and all(map(_constant, node.args)))
    )


def _number(part: ast.expr) -> bool:
    if not isinstance(part, ast.FormattedValue):
        return False
    if isinstance(part.format_spec, ast.JoinedStr) and NUMBERS.fullmatch(ast.unparse(part.format_spec)[2:-1]):
        return True
    return _constant(part.value)


def _blocks_in(scope: ast.AST, returns: Mapping[str, str]) -> set[str]:
    """The names in a function that are blocks: by annotation, or because a checked call has made them."""
    found = set[str]()
    for node in ast.walk(scope):
        if isinstance(node, ast.arg) and node.annotation and BLOCKS.search(ast.unparse(node.annotation)):
            found.add(node.arg)
        elif isinstance(node, ast.AnnAssign) and node.value is not None and _harmless(node.value, set(), returns):
            found.add(ast.unparse(node.target))
        elif isinstance(node, ast.Assign) and _harmless(node.value, set(), returns):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name) and _yields_blocks(node.iter, returns):
            found.add(node.target.id)
    return found


def _yields_blocks(node: ast.expr, returns: Mapping[str, str]) -> bool:
    return isinstance(node, ast.Call) and bool(BLOCKS.search(returns.get(_name(node.func), "")))


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def unsafe_parts(template: str) -> Iterator[Bypass]:
    """Find what a template of HTML leaves unescaped."""
    for number, line in enumerate(template.splitlines(), 1):
        for part in _SAFE.findall(line):
            text = part.strip().removeprefix("{{").strip()
            if text not in SAFE_PARTS and not re.fullmatch(r'.*"[^"{}]*"', text):
                yield Bypass(number, f"{text!r} is marked as safe: remove the filter")


def returned(trees: Iterable[ast.Module]) -> dict[str, str]:
    """The annotations of the results of functions; a name that has several gets none."""
    found: dict[str, str] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                annotation = ast.unparse(node.returns) if node.returns else ""
                found[node.name] = annotation if found.get(node.name, annotation) == annotation else ""
    return found


def main() -> int:
    """Print each bypass; the exit code is 1 where there is one."""
    files = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    trees = {
        path: ast.parse(path.read_text("utf-8"))
        for path in files
        if not str(path.relative_to(ROOT)).startswith(ELSEWHERE)
    }
    annotations = returned(trees.values())
    found = [
        (path, bypass) for path, tree in trees.items() for bypass in bypasses(tree, {**annotations, **returned([tree])})
    ]
    for room in (*ROOMS, "conformance/pages"):
        for path in sorted((ROOT / room).rglob("templates/*.html")):
            found += [(path, bypass) for bypass in unsafe_parts(path.read_text("utf-8"))]
    for path, bypass in found:
        print(f"{path.relative_to(ROOT)}:{bypass.line}: {bypass.why}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
