"""Refusing settings that nobody knows, with a word about the one that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from conformance.reference_impl.errors import InvalidArgument


def refuse_unknown_keys(
    fields: Mapping[Any, Any], known: Collection[str], *, where: str, called_here: Mapping[str, str]
) -> None:
    """Raise InvalidArgument for the first key that is not known.

    A setting that is ignored would be noticed when it is too late: as a password in plain text, for instance. `where`
    names the settings; `called_here` are names of other libraries and what is to be written instead.
    """
    for key in fields:
        if key not in known:
            raise InvalidArgument(f"{where} has no key {key!r}{_hint(str(key), known, called_here)}", field=str(key))


def _hint(key: str, known: Collection[str], called_here: Mapping[str, str]) -> str:
    if key in called_here:
        return f"; here it is {called_here[key]}"
    near = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; it knows {', '.join(sorted(known))}"
