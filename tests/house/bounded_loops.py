"""Loops in scenarios and participants end; `python -m tests.house.bounded_loops` exits with 1 where one may not.

What a client does must not hold the kit: a loop that asks a client until something holds needs a bound that a reader
can see. So a `while` compares with one, in its condition or in an `if` of its own body that leaves it, and the bound
says in its name that it is one (`deadline`, `left`, `MOST_…`). A `for` over an endless iterator is never allowed.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("conformance/scenarios", "conformance/participants")
BOUND = re.compile(r"(^|_)(deadline|left|most)(_|$)", re.IGNORECASE)
"""Names of what only runs out: an instant, what is left until then, the largest number of times."""
ENDLESS = frozenset({"count", "cycle", "repeat", "iter"})
"""What makes an iterator without end; what `iter` and `repeat` may mean beside that is better said with `range`."""


def unbounded_loops(tree: ast.AST) -> Iterator[int]:
    """The lines of the loops that no visible bound ends."""
    for loop in ast.walk(tree):
        if isinstance(loop, ast.While) and not _has_bound(loop):
            yield loop.lineno
        elif isinstance(loop, ast.For | ast.comprehension) and _is_endless(loop.iter):
            yield loop.iter.lineno


def _has_bound(loop: ast.While) -> bool:
    leaving = [step.test for step in loop.body if isinstance(step, ast.If) and _leaves(step)]
    return any(_compares_with_bound(test) for test in (loop.test, *leaving, *_tests_of_handlers(loop)))


def _tests_of_handlers(loop: ast.While) -> Iterator[ast.expr]:
    """A wait that raises when it was in vain looks at its bound where that is caught."""
    for step in loop.body:
        for handler in step.handlers if isinstance(step, ast.Try) else ():
            yield from (inner.test for inner in handler.body if isinstance(inner, ast.If) and _leaves(inner))


def _leaves(step: ast.If) -> bool:
    return isinstance(step.body[-1], ast.Raise | ast.Return | ast.Break)


def _compares_with_bound(test: ast.expr) -> bool:
    compared = [node for node in ast.walk(test) if isinstance(node, ast.Compare)]
    inside = [inner for node in compared for inner in ast.walk(node)]
    names = [inner.id for inner in inside if isinstance(inner, ast.Name)]
    names += [inner.attr for inner in inside if isinstance(inner, ast.Attribute)]
    return any(BOUND.search(name) for name in names)


def _is_endless(iterated: ast.expr) -> bool:
    if not isinstance(iterated, ast.Call):
        return False
    called = iterated.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in ENDLESS and not (isinstance(called, ast.Attribute) and _is_text_or_list(called))


def _is_text_or_list(called: ast.Attribute) -> bool:
    """Whether `x.count(…)` is the method of a value, and not of the module itertools."""
    return not (isinstance(called.value, ast.Name) and called.value.id == "itertools")


def main() -> int:
    """Print each such loop; the exit code is 1 where there is one."""
    files = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    found = [(path, line) for path in files for line in unbounded_loops(ast.parse(path.read_text("utf-8")))]
    for path, line in found:
        print(f"{path.relative_to(ROOT)}:{line}: nothing ends this loop: compare with a deadline, or use range")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
