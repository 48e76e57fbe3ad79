"""The options of `permissions`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from conformance.gate.options import ChosenTier, ClientName, OracleVersion, Packages, SingleRedis
from conformance.ledger.profiles import load_profiles
from conformance.options import Option
from conformance.permissions.session import Selection
from conformance.problems import UsageProblem
from conformance.servers.setting import RedisUrl, parse_setting

WHOLE_CLIENT = "client"
"""The name of the user who may do everything that the driver declares."""


class PermissionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All options of `permissions`. `out` None: nothing is kept."""

    client: ClientName = "reference"
    command: Sequence[str] = ()
    packages: Packages = ()
    oracle: OracleVersion = ""
    redis: SingleRedis = ""
    profile: Annotated[
        Sequence[str], Option("A user for this profile alone (`list --profiles` names them); repeatable.")
    ] = ()
    tier: ChosenTier = "core"
    select: Annotated[Sequence[str], Option("Glob over requirement ids, areas or scenario ids; repeatable.")] = ()
    prove: Annotated[bool, Option("Run again with exactly these permissions.")] = False
    minimize: Annotated[
        bool, Option("Prove, then remove each permission in turn, and drop it if no scenario fails.")
    ] = False
    prefix: Annotated[str, Option("Key prefix in the printed lines.")] = "bull"
    jobs: Annotated[
        int | None, Option("Processes of each run; default: three for each core, at most 8.", at_least=1)
    ] = None
    out: Annotated[Path | None, Option("Folder for permissions.acl, permissions.json and the runs.")] = None

    def check(self) -> None:
        """Raise UsageProblem for an unknown profile, or for a Redis that the kit must not give users to."""
        unknown = [name for name in self.profile if name not in load_profiles()]
        if unknown:
            raise UsageProblem(
                f"unknown profile {unknown[0]!r}", hint="`bullmq-conformance list --profiles` names them"
            )
        if isinstance(parse_setting(self.redis), RedisUrl):
            raise UsageProblem(
                "permissions creates users, so it starts a Redis of its own",
                hint="use binary:PATH, bundled or container[:IMAGE] for --redis, or leave it out",
            )

    @property
    def users(self) -> tuple[str, ...]:
        """The names of the users to find permissions for."""
        return tuple(self.profile) or (WHOLE_CLIENT,)

    def selection(self, user: str) -> Selection:
        """The runs for a user: for a profile, only its operations and capabilities count as declared."""
        words = ["--tier", self.tier]
        words += ["--client", self.client] if not self.command else []
        words += [word for name in self.packages for word in ("--with", name)]
        words += [word for name in self.select for word in ("--select", name)]
        words += ["--oracle", self.oracle] if self.oracle else []
        words += ["--jobs", str(self.jobs)] if self.jobs else []
        words += [word for name in declared_for(user) for word in ("--declare", name)]
        return Selection(words=words, command=self.command, redis=self.redis)


def declared_for(user: str) -> list[str]:
    """The operations and capabilities of a profile and its base; empty for the whole client."""
    profiles = load_profiles()
    if user not in profiles:
        return []
    chosen = [profiles[name] for name in profiles.with_bases([user])]
    return list(dict.fromkeys(name for each in chosen for name in (*each.operations, *each.capabilities)))
