"""Refusal of unknown settings, with a suggestion for the one that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from conformance.reference_impl.errors import InvalidArgument


def refuse_unknown_keys(
    fields: Mapping[Any, Any], known: Collection[str], *, where: str, called_here: Mapping[str, str]
) -> None:
    """Raise InvalidArgument for the first key that is not known.

    Ignoring a setting could do harm before anyone notices, for example a password sent in plain text. `where` names the
    group of settings in the message; `called_here` maps names of other libraries to the names used here.
    """
    for key in fields:
        if key not in known:
            raise InvalidArgument(f"{where} has no key {key!r}{_hint(str(key), known, called_here)}", field=str(key))


def _hint(key: str, known: Collection[str], called_here: Mapping[str, str]) -> str:
    if key in called_here:
        return f"; here it is {called_here[key]}"
    near = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; it knows {', '.join(sorted(known))}"
