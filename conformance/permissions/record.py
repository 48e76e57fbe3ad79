"""The result of `permissions`, and its files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from conformance.permissions.rules import PermissionSet
from conformance.problems import EnvironmentProblem

ACL_FILE = "permissions.acl"
JSON_FILE = "permissions.json"


class UserPermissions(msgspec.Struct, frozen=True, kw_only=True):
    """The permissions of one user.

    `line`: the command that creates the user. `uses`: how often the first run used each permission. `scenarios`: how
    many were run. `worse`: scenarios that are worse with exactly these permissions; None if that was not tried.
    `needed`: for each permission a scenario that fails without it; `dropped`: permissions without which none does.
    """

    user: str
    line: str
    commands: list[str]
    keys: list[str]
    channels: list[str]
    uses: dict[str, int]
    scenarios: int
    worse: list[str] | None = None
    needed: dict[str, str] = {}
    dropped: list[str] = []


class PermissionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All users of one call of `permissions`. `tier` and `select` say which scenarios were run."""

    client: str
    tier: str
    select: list[str]
    users: list[UserPermissions]

    @property
    def is_proven(self) -> bool:
        """Whether no user was found to lack anything."""
        return not any(user.worse for user in self.users)


def permissions_of(
    user: str, prefix: str, permissions: PermissionSet, uses: dict[str, int], scenarios: int
) -> UserPermissions:
    """The permissions of a user, before they are proven."""
    return UserPermissions(
        user=user,
        line=permissions.line(f"{prefix}-{user}", prefix),
        commands=sorted(permissions.commands),
        keys=sorted(permissions.keys),
        channels=sorted(permissions.channels),
        uses={name: uses[name] for name in permissions.permissions if name in uses},
        scenarios=scenarios,
    )


def write_record(record: PermissionRecord, folder: Path) -> list[Path]:
    """Write both files. Raises EnvironmentProblem if they cannot be written."""
    texts = {
        ACL_FILE: "".join(f"{user.line}\n" for user in record.users).encode("utf-8", "backslashreplace"),
        JSON_FILE: msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n",
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_bytes(text)
    except OSError as error:
        raise EnvironmentProblem(f"cannot write to {folder}: {error.strerror}", hint="choose another --out") from error
    return [folder / name for name in texts]
