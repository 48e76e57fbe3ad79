"""Names that BullMQ's types declare and no scenario uses, but for those of `conformance/scenarios/unused.toml`."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path

from conformance.upstream.declarations import Declarations
from conformance.upstream.package import HARNESS

_SCENARIOS = Path(str(files("conformance.scenarios")))
_LONGEST_WORD = 60
"""Longer texts of a scenario are sentences."""


@cache
def left_out() -> tuple[str, ...]:
    """The patterns of names that are left out for a reason."""
    parts = tomllib.loads((_SCENARIOS / "unused.toml").read_text("utf-8")).values()
    return tuple(pattern for part in parts for pattern in part["names"])


def without_row(declarations: Declarations) -> list[str]:
    """The names that are neither used by a scenario nor left out for a reason."""
    return [name for name in unused_of(declarations) if not any(fnmatchcase(name, like) for like in left_out())]


def unused_of(declarations: Declarations) -> Iterator[str]:
    """Options and events that no scenario names, and methods that the Node driver does not call either."""
    for name in sorted([*declarations.options, *declarations.events]):
        if name.rpartition(".")[2] not in _words_of_scenarios():
            yield name
    for name in sorted(declarations.methods):
        if name.rpartition(".")[2] not in _words_of_scenarios() | _called_by_the_node_driver():
            yield name


@cache
def _words_of_scenarios() -> frozenset[str]:
    """Keywords, attributes and short texts of the scenarios, as they are and in camelCase, and the words of replays."""
    replays = [path.read_text("utf-8") for path in _SCENARIOS.rglob("*.jsonl")]
    found = {word for text in replays for word in re.findall(r"\w+", text)}
    for path in _SCENARIOS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Constant(value=str(text)) if len(text) < _LONGEST_WORD:
                    found.update(re.findall(r"\w+", text))
                case ast.keyword(arg=str(name)) | ast.Attribute(attr=name):
                    found.add(name)
    return frozenset(found | {re.sub(r"_(\w)", lambda match: match[1].upper(), word) for word in found})


@cache
def _called_by_the_node_driver() -> frozenset[str]:
    texts = [path.read_text("utf-8") for path in HARNESS.rglob("*.mjs")]
    return frozenset(name for text in texts for name in re.findall(r"\.(\w+)\(", text))
