"""JSON for files that are generated or recorded, and reviewed: few lines, and every line is one thing."""

from __future__ import annotations

import json
from typing import Any


def compact_json(value: Any, *, width: int = 160, depth: int | None = None) -> str:
    """Write JSON in which a value that fits into `width` characters is on one line.

    A longer object or array has one line for each of its members; plain members of an array share lines. With `depth`,
    values nested deeper than that are on one line even if they are longer: `depth=1` writes one record of an array per
    line.
    """
    return _text(value, 0, width, depth) + "\n"


def _text(value: Any, level: int, width: int, depth: int | None) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    fits = len(flat) + level <= width or (depth is not None and level >= depth)
    if fits or not isinstance(value, dict | list):
        return flat
    margin = " " * (level + 1)
    if isinstance(value, dict):
        members = [f"{margin}{json.dumps(key)}: {_text(item, level + 1, width, depth)}" for key, item in value.items()]
        opening, closing = "{", "}"
    else:
        members = [margin + _text(item, level + 1, width, depth) for item in value]
        opening, closing = "[", "]"
        if not any(isinstance(item, dict | list) for item in value):
            members = _filled(members, margin, width)
    return "\n".join([opening, ",\n".join(members), " " * level + closing])


def _filled(members: list[str], margin: str, width: int) -> list[str]:
    lines = members[:1]
    for member in members[1:]:
        longer = f"{lines[-1]}, {member.removeprefix(margin)}"
        if len(longer) < width:
            lines[-1] = longer
        else:
            lines.append(member)
    return lines
