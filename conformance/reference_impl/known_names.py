"""Refusal of unknown or misspelt names, with a suggestion for the one that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any, Final

from conformance.reference_impl.errors import InvalidArgument

_NEAR: Final = 0.85
"""How similar (0 to 1) a name is to a known one if it is a misspelling of it: a letter more, less or another."""


_ENDING: Final = 2
"""Letters of an ending."""


def refuse_misspelt(names: Collection[Any], known: frozenset[str], *, what: str) -> None:
    """Raise InvalidArgument for the first name that is nearly a known one, such as `concurency`, `remove_on_fail`.

    Other unknown names pass: Node.js stores options that it does not know, and any event may be published.
    `what` describes such a name in the message.
    """
    if known.issuperset(names):
        return
    for name in names:
        meant = None if name in known else _meant(str(name), known)
        if meant:
            raise InvalidArgument(f"unknown {what} {name!r}; did you mean {meant!r}?", field=str(name))


def _meant(name: str, known: frozenset[str]) -> str | None:
    plain = {_plain(candidate): candidate for candidate in sorted(known)}
    begun = _plain(name)
    near = difflib.get_close_matches(begun, plain, n=1, cutoff=_NEAR)
    # The ratio is low for short words without their ending, such as `fail` and `limit`.
    near += [word for word in plain if word.startswith(begun) and len(word) - len(begun) <= _ENDING < len(begun)]
    return plain[near[0]] if near else None


def _plain(name: str) -> str:
    """Return the name without the differences between camelCase, snake_case and kebab-case."""
    return name.replace("_", "").replace("-", "").lower()


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
