"""Numbers and lists as people write them."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, singular: str, plural: str = "") -> str:
    """Count things: `1 requirement`, `2 requirements`."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def listed(names: Sequence[str]) -> str:
    """Enumerate: `producer, worker and events`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
