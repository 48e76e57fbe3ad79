"""The libraries through which Node's BullMQ can speak to Redis. Each release uses ioredis unless its user says else."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Final, Literal

from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.protocol.versions import in_range

RedisLibrary = Literal["ioredis", "redis", "valkey-glide", "bun"]
DEFAULT: Final[RedisLibrary] = "ioredis"

LIBRARY_VARIABLE: Final = "BULLMQ_CONFORMANCE_REDIS_LIBRARY"
"""Environment variable with the name of the library, for the Node driver."""


@dataclass(frozen=True)
class OtherLibrary:
    """A library other than ioredis: the npm package with its version, and the releases of BullMQ that can use it.

    `package`: empty for Bun, whose own program is the library. `native`: whether it has parts for one system.
    """

    releases: str
    package: str = ""
    version: str = ""
    native: bool = False

    @property
    def packages(self) -> dict[str, str]:
        """The packages that npm installs for it."""
        return {self.package: self.version} if self.package else {}


OTHERS: Final[dict[RedisLibrary, OtherLibrary]] = {
    "redis": OtherLibrary(">=5.77", "redis", "6.3.1"),
    "valkey-glide": OtherLibrary(">=5.81", "@valkey/valkey-glide", "2.5.2", native=True),
    "bun": OtherLibrary(">=5.77"),
}
"""By the name that the user chooses. Versions: what bullmq 6.7.0 is tested with, or the newest at that time."""


def other_library(name: RedisLibrary, bullmq: str) -> OtherLibrary:
    """The library for this version of bullmq. Raises UsageProblem if the release cannot use it."""
    library = OTHERS[name]
    if not in_range(bullmq, library.releases):
        first = library.releases.removeprefix(">=")
        raise UsageProblem(
            f"BullMQ {bullmq} cannot use {name} for --with-driver",
            hint=f"it can since {first}: choose another release, such as --client node@6.7.0, or leave the option out",
        )
    return library


def bun_program() -> str:
    """The path of Bun. Raises EnvironmentProblem if it is not installed."""
    found = shutil.which("bun")
    if found is None:
        raise EnvironmentProblem("--with-driver bun needs the program bun", hint="install it (https://bun.sh) on PATH")
    return found
