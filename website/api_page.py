"""The page of the reference client's interface: every public name, whose docstrings mkdocstrings puts in."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from conformance import reference_impl

INTRODUCTION = """\
# The reference client's interface

Every public name of `conformance.reference_impl`, from its docstrings, under the names of Node's BullMQ. How they go
together: [the reference client](reference/reference-client.md).
"""


def api_page() -> str:
    """The page as Markdown, with one directive of mkdocstrings for each name."""
    names = reference_impl.__all__
    exceptions = [name for name in names if _is_exception(name)]
    classes = [name for name in names if inspect.isclass(getattr(reference_impl, name)) and name not in exceptions]
    others = [name for name in names if name not in {*classes, *exceptions}]
    parts = [("Classes", classes), ("Errors", exceptions), ("Functions and values", others)]
    return "\n".join([INTRODUCTION, *(_part(title, found) for title, found in parts)])


def _is_exception(name: str) -> bool:
    value = getattr(reference_impl, name)
    return inspect.isclass(value) and issubclass(value, BaseException)


def _part(title: str, names: Iterable[str]) -> str:
    return "\n".join([f"## {title}\n", *(f"::: conformance.reference_impl.{name}\n" for name in names)])
