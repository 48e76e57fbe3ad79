"""Profiles: named sets of requirements to which a client can conform, read from `profiles.yaml`.

A profile is a named set of ledger rows and the operations and capabilities that a driver has to declare to claim it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from typing import Literal

import msgspec

from conformance.ledger.yaml_files import read_yaml

FILE = "profiles.yaml"
WORKER_EVENTS = "worker-events"
"""Counts as declared, unless a driver says that its client lacks it."""


def declared_names(ops: Iterable[str], capabilities: Iterable[str], lacks: Collection[str]) -> frozenset[str]:
    """Collect what profiles can ask of a driver: its operations and capabilities, and what it does not lack."""
    return frozenset((*ops, *capabilities)) | ({WORKER_EVENTS} - set(lacks))


class ProfileEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A profile as it is written down. `rows` are glob patterns of requirement ids; `base`: see `Profile`."""

    title: str
    rows: tuple[str, ...]
    base: str = ""
    operations: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    needs: Literal["", "cluster"] = ""


class Profile(ProfileEntry, frozen=True, kw_only=True):
    """A named set of requirements, and what a driver has to declare to claim it.

    `needs`: the kind of Redis on which its rows can be checked. `base`: the profile that it adds a few requirements to;
    a client conforms to it only if it conforms to its base as well.
    """

    name: str

    @property
    def is_common(self) -> bool:
        """Whether it is about every client, and so makes no client conformant as anything."""
        return not (self.operations or self.capabilities)

    def missing(self, declared: Collection[str]) -> tuple[str, ...]:
        """Pick the operations and capabilities that are not among the declared ones."""
        return tuple(needed for needed in (*self.operations, *self.capabilities) if needed not in declared)

    def pattern_for(self, requirement: str) -> str:
        """Pick the longest pattern that matches a requirement, empty where none does."""
        return max((pattern for pattern in self.rows if fnmatchcase(requirement, pattern)), key=_length, default="")


def _length(pattern: str) -> int:
    return len(pattern.replace("*", ""))


class ProfileTable(Mapping[str, Profile]):
    """All profiles by name, in the order of the file."""

    def __init__(self, profiles: Iterable[Profile]) -> None:
        self._profiles = {profile.name: profile for profile in profiles}
        self._found: dict[str, Profile | None] = {}

    def __getitem__(self, name: str) -> Profile:
        return self._profiles[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._profiles)

    def __len__(self) -> int:
        return len(self._profiles)

    def profile_of(self, requirement: str) -> Profile | None:
        """Find the profile of a requirement: that of the longest matching pattern, None where none matches.

        Raises ValueError where two profiles claim it by patterns of one length.
        """
        if requirement not in self._found:  # every scenario asks for its own
            self._found[requirement] = self._claiming(requirement)
        return self._found[requirement]

    def _claiming(self, requirement: str) -> Profile | None:
        longest = [(_length(profile.pattern_for(requirement)), profile) for profile in self.values()]
        length = max((length for length, _ in longest), default=0)
        claiming = [profile for reached, profile in longest if reached == length and length]
        if len(claiming) > 1:
            names = ", ".join(profile.name for profile in claiming)
            raise ValueError(f"{requirement} belongs to more than one profile: {names}")
        return claiming[0] if claiming else None

    def with_bases(self, names: Iterable[str]) -> tuple[str, ...]:
        """These profiles, each after its base."""
        bases = ((self._profiles[name].base, name) if name in self else (name,) for name in names)
        return tuple(dict.fromkeys(name for pair in bases for name in pair if name))

    def rows_by_profile(self, requirements: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Sort requirements into their profiles, those without any left out; every profile is a key."""
        sorted_in: dict[str, list[str]] = {name: [] for name in self}
        for requirement in requirements:
            profile = self.profile_of(requirement)
            if profile is not None:
                sorted_in[profile.name].append(requirement)
        return {name: tuple(rows) for name, rows in sorted_in.items()}


NO_PROFILES = ProfileTable(())


class ProfileFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    profiles: dict[str, ProfileEntry]


@lru_cache(maxsize=1)
def load_profiles() -> ProfileTable:
    """Read the profiles of the kit. Raises ValueError where the file is not well-formed."""
    entries = read_yaml(files("conformance.ledger") / FILE, ProfileFile).profiles
    for name, entry in entries.items():
        if entry.base and (entry.base not in entries or entries[entry.base].base):
            raise ValueError(f"{FILE}: the base {entry.base!r} of {name} is not a profile without a base")
    return ProfileTable(Profile(name=name, **msgspec.structs.asdict(entry)) for name, entry in entries.items())
