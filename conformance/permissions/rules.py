"""Permissions as rules of ACL SETUSER."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from conformance.permissions.monitor import UsedCommand

OF_THE_KIT = re.compile(rb"\{?bc[0-9a-f]{8}\}?:")
"""The beginning of a key under a prefix that the kit chose."""

KIT_PATTERNS = ("bc*:*", "{bc*:*")
"""Key patterns of these prefixes."""

PREFIX = "PREFIX"
"""Replaces the user's own prefix in key patterns."""

MOST_TIMES = 400
"""Uses of a permission whose times are kept."""


@dataclass(frozen=True, kw_only=True)
class PermissionSet:
    """The permissions of a user: `commands` by their names in ACL rules, `keys` and `channels` as patterns."""

    commands: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    channels: frozenset[str] = frozenset()

    @property
    def permissions(self) -> list[str]:
        """All of them as single rules: `+get`, `~PREFIX:*`, `&events`."""
        return [
            *(f"~{pattern}" for pattern in sorted(self.keys)),
            *(f"&{pattern}" for pattern in sorted(self.channels)),
            *(f"+{name}" for name in sorted(self.commands)),
        ]

    def without(self, permission: str) -> PermissionSet:
        """The set without one of its permissions."""
        kind, name = permission[0], permission[1:]
        return replace(
            self,
            commands=self.commands - {name} if kind == "+" else self.commands,
            keys=self.keys - {name} if kind == "~" else self.keys,
            channels=self.channels - {name} if kind == "&" else self.channels,
        )

    def union(self, other: PermissionSet) -> PermissionSet:
        """All that either allows."""
        return PermissionSet(
            commands=self.commands | other.commands,
            keys=self.keys | other.keys,
            channels=self.channels | other.channels,
        )

    def rules(self, password: str) -> list[str]:
        """The words after the name in ACL SETUSER, for the prefixes of the kit."""
        rules = [rule for rule in self.permissions if rule != f"~{PREFIX}:*"]
        kit = [f"~{pattern}" for pattern in KIT_PATTERNS] if f"{PREFIX}:*" in self.keys else []
        return ["reset", "on", f">{password}", "resetkeys", "resetchannels", "-@all", *kit, *rules]

    def line(self, user: str, prefix: str) -> str:
        """The whole command, for the user's prefix; the password is left to the user."""
        rules = [rule.replace(f"{PREFIX}:", f"{prefix}:") for rule in self.permissions]
        return " ".join(["ACL SETUSER", user, "reset", "on", ">PASSWORD", "-@all", *rules])


@dataclass
class PermissionUses:
    """Counts uses, and keeps the times (Unix s) of some uses of each permission."""

    counts: Counter[str] = field(default_factory=Counter)
    times: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def note(self, use: UsedCommand) -> None:
        """Count one use of a command, its keys and channels."""
        needed = {
            f"+{use.name}",
            *(f"~{key_pattern(key)}" for key in use.keys),
            *(f"&{channel.decode('utf-8', 'replace')}" for channel in use.channels),
        }
        for permission in needed:
            self.counts[permission] += 1
            times = self.times[permission]
            # Every use at first, and then ever fewer, so that the whole run is represented.
            if len(times) < MOST_TIMES or self.counts[permission] % (self.counts[permission] // 20) == 0:
                times.append(use.at_s)

    @property
    def permissions(self) -> PermissionSet:
        """All that was used."""
        return set_of(self.counts)


def set_of(permissions: Iterable[str]) -> PermissionSet:
    """A set of single rules such as `+get`."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for permission in permissions:
        found[permission[0]].add(permission[1:])
    return PermissionSet(commands=frozenset(found["+"]), keys=frozenset(found["~"]), channels=frozenset(found["&"]))


def key_pattern(key: bytes) -> str:
    """The pattern of a key: below a prefix of the kit, or below the first part of its own name."""
    if OF_THE_KIT.match(key):
        return f"{PREFIX}:*"
    head, colon, _ = key.decode("utf-8", "replace").partition(":")
    return f"{head}:*" if colon else head
