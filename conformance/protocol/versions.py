"""Versions of BullMQ: the default oracle, the supported ones, and ranges of versions.

Versions are compared by number, so that 5.9.0 comes before 5.62.0. A range is written as pip writes them: `<6`,
`>=5.66.6`, `>=5.65,<6`, and several of them with `||` between them, as npm does; the empty text is every version.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from conformance.protocol.scripts import BULLMQ_VERSION

SUPPORTED_ORACLES: Final = (BULLMQ_VERSION, "5.81.5", "6.7.0")
"""Oracles on which every scenario's own statements hold: what does not is an error of the kit.

With any other version, such a scenario is `changed`: shown, and compared as far as its steps went.
"""


def is_supported(version: str) -> bool:
    """Whether the scenarios were prepared for this oracle."""
    return version in SUPPORTED_ORACLES


@lru_cache(maxsize=4096)  # every scenario asks it of every row
def in_range(version: str, versions: str) -> bool:
    """Whether a version is one of a range. Raises ValueError for an invalid range."""
    return any(part.contains(Version(version), prereleases=True) for part in _specifiers(versions))


def check_range(versions: str) -> None:
    """Raises ValueError for an invalid range."""
    _specifiers(versions)


@lru_cache(maxsize=256)
def _specifiers(versions: str) -> tuple[SpecifierSet, ...]:
    try:
        return tuple(SpecifierSet(part) for part in versions.split("||"))
    except InvalidSpecifier as error:
        raise ValueError(f"invalid range of versions {versions!r} (examples: <6, >=5.66.6)") from error
