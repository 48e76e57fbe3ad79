"""Versions of Redis, as tuples that compare."""

from __future__ import annotations

import re

Version = tuple[int, int, int]

OLDEST: Version = (6, 2, 0)
"""BullMQ 5.62.0 itself calls 6.2.0 the minimum (it warns below); the kit also needs it for its own reading."""

_NUMBERS = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


def read_version(text: str) -> Version | None:
    """Read the version at the start of a text such as "7.0.15" or "7.4-rc1"; None if there is none."""
    numbers = _NUMBERS.match(text)
    if numbers is None:
        return None
    major, minor, patch = numbers.groups(default="0")
    return int(major), int(minor), int(patch)


def written(version: Version) -> str:
    """Write the version as people do."""
    return ".".join(str(number) for number in version)
