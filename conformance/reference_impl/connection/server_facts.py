"""Version and settings of a server, from its reply to INFO."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from conformance.reference_impl.errors import BullMQError

MINIMUM_VERSION: Final[tuple[int, ...]] = (5, 0, 0)
RECOMMENDED_VERSION: Final[tuple[int, ...]] = (6, 2, 0)
SHORT_BLOCK_VERSION: Final[tuple[int, ...]] = (7, 0, 8)
"""Before this, Redis rounds a block timeout of 1 ms down to 0, which means forever."""


def parse_info(document: str) -> dict[str, str]:
    """Read the reply of INFO."""
    pairs = (line.partition(":") for line in document.splitlines())
    return {name: value for name, separator, value in pairs if separator}


def version_of(facts: Mapping[str, str]) -> tuple[int, ...]:
    """Return the server's version; the oldest supported one if INFO does not have it."""
    return tuple(int(part) for part in re.findall(r"\d+", facts.get("redis_version", "5.0.0"))[:3])


def minimum_block_s(version: tuple[int, ...]) -> float:
    """Return the shortest time (s) for which a server of this version can block."""
    return 0.001 if version >= SHORT_BLOCK_VERSION else 0.002


def concerns(facts: Mapping[str, str]) -> Iterator[str]:
    """Warnings about the server's version and settings. Raises BullMQError if the version is too old."""
    version = version_of(facts)
    shown = ".".join(map(str, version))
    if version < MINIMUM_VERSION:
        raise BullMQError(f"Redis version needs to be greater or equal than 5.0.0 Current: {shown}")
    if version < RECOMMENDED_VERSION:
        yield f"It is highly recommended to use a minimum Redis version of 6.2.0, current: {shown}"
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield f'Eviction policy is {policy}. It should be "noeviction"'
