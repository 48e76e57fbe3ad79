"""Recipes in docstrings: the indented Python that shows how a fault, a mutant or a proof is written."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?m)(?:^ {4}.*\n?|^\n(?= {4}))+")


@cache
def modules() -> Mapping[str, ast.Module]:
    """The modules of the kit by path."""
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text())
        for room in ("chaos", "conformance", "reports")
        for path in sorted((ROOT / room).rglob("*.py"))
        if not {"templates", "clients"} & set(path.relative_to(ROOT).parts)
    }


def recipes(module: ast.Module) -> Iterator[ast.Module]:
    """The indented blocks of the module's docstring that are Python."""
    for block in BLOCK.findall(ast.get_docstring(module) or ""):
        try:
            yield ast.parse(dedent(block).strip())
        except SyntaxError:
            continue  # a table or a command line


def classes_known_in(path: str) -> set[str]:
    """Classes that the modules of the same folder define or import: those a reader of the recipe can find."""
    nodes = [
        node for other, tree in modules().items() if Path(other).parent == Path(path).parent for node in ast.walk(tree)
    ]
    defined = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    return defined | {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}


def unknown_classes(path: str, recipe: ast.Module) -> set[str]:
    """Class names that the recipe uses and the modules next to it do not know."""
    names = {node.id for node in ast.walk(recipe) if isinstance(node, ast.Name)}
    return {name for name in names if name[0].isupper() and not name.isupper()} - classes_known_in(path)


def test_recipes_name_classes_that_exist() -> None:
    written = [(path, recipe) for path, module in modules().items() for recipe in recipes(module)]
    assert written
    assert {path: unknown for path, recipe in written if (unknown := unknown_classes(path, recipe))} == {}


def test_a_class_that_does_not_exist_is_found() -> None:
    recipe = ast.parse("def kill(system: SystemUnderTest, fault: Fault) -> None: ...")
    assert unknown_classes("chaos/faults/base.py", recipe) == {"SystemUnderTest"}
