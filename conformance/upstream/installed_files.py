"""Verifies what npm and pip have installed: the hash of every file of the oracle, and of clients of the kit.

For the pinned version, the kit has a hash per package (`packages.manifest.json`). For everything else, and to name the
file that differs, it records the hashes of all files right after the installation, and the packages that were
resolved, with the hashes of their archives. To pin another version,
`python -m conformance.upstream.installed_files FOLDER` writes the manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from conformance.problems import EnvironmentProblem

RECORDED = "files.json"
"""Name of the record in the folder of an installation."""

NPM_LOCK = ".package-lock.json"
NPM_OWN = frozenset({NPM_LOCK, ".bin"})
"""Files of npm itself below `node_modules`. No program reads them, and they differ between versions of npm."""


COMPILED = "__pycache__"
"""Python adds files there when it imports modules that pip could not compile."""


@dataclass(frozen=True)
class Contents:
    """The part of an installation that is verified, `below` its folder. `what` and `installer`: for messages."""

    what: str
    installer: str
    below: str


ORACLE = Contents("the oracle", "npm", "node_modules")
NODE_CLIENT = Contents("the Node.js client", "npm", "")
PYTHON_CLIENT = Contents("the environment of the client", "pip", "lib")


class InstalledFiles(msgspec.Struct, frozen=True):
    """SHA-256 of every file, by its path below the verified folder.

    `packages`: what was resolved: the version and the hash of the archive, by name; empty in records of older kits.
    """

    files: dict[str, str]
    packages: dict[str, str] = {}

    def by_package(self) -> dict[str, str]:
        """One SHA-256 per package (`bullmq`, `@ioredis/commands`), over the names and hashes of its files."""
        packages: dict[str, list[str]] = {}
        for path, sha256 in sorted(self.files.items()):
            packages.setdefault(package_of(path), []).append(f"{path} {sha256}\n")
        return {name: hashlib.sha256("".join(lines).encode()).hexdigest() for name, lines in packages.items()}


def package_of(path: str) -> str:
    """The package that a path below `node_modules` belongs to; a scope is part of its name."""
    words = path.split("/")
    return "/".join(words[:2] if path.startswith("@") else words[:1])


def read_files(root: Path, contents: Contents = ORACLE) -> InstalledFiles:
    """Hash every file of an installation. Raises EnvironmentProblem if one cannot be read."""
    folder = str(root / contents.below) if contents.below else str(root)
    try:
        return InstalledFiles({path[len(folder) + 1 :].replace(os.sep, "/"): _sha256(path) for path in _files(folder)})
    except OSError as error:
        raise EnvironmentProblem(
            f"the installed packages in {root} cannot be read: {error}", hint=f"remove {root} and run again"
        ) from error


def record_files(root: Path, contents: Contents = ORACLE, packages: Mapping[str, str] | None = None) -> None:
    """Record the hashes of the installed files and the resolved packages, right after the installation."""
    found = msgspec.structs.replace(read_files(root, contents), packages=dict(packages or {}))
    (root / RECORDED).write_bytes(msgspec.json.encode(found))


def verify_files(root: Path, pinned: Mapping[str, str] | None = None, contents: Contents = ORACLE) -> None:
    """Compare every installed file with its recorded hash, and its package with the `pinned` hash if there is one.

    Raises EnvironmentProblem with the names of changed files: with them, the oracle would not be the real bullmq, or
    the client another one than the report names.
    """
    installed = read_files(root, contents)
    recorded = _recorded(root)
    changed = _unequal(recorded.files, installed.files) if recorded else []
    # The record first: it names the changed file, the manifest only its package.
    changed = changed or (_unequal(pinned, installed.by_package()) if pinned is not None else [])
    if changed:
        others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise EnvironmentProblem(
            f"{contents.what} has changed since {contents.installer} installed it: {changed[0]}{others} in "
            f"{root / contents.below} differs from its recorded hash",
            hint=f"remove {root} and run again to install it again",
        )
    if recorded is None:
        if pinned is None:
            raise EnvironmentProblem(
                f"{root} has no record of its installed files", hint="remove it and run again to install it again"
            )
        record_files(root)  # installed by an older kit without record; the manifest has just verified it


def resolved_packages(root: Path) -> dict[str, str]:
    """The packages of an installation: version and hash of the archive, by name; empty if that is unknown."""
    recorded = _recorded(root)
    return recorded.packages or npm_packages(root) if recorded else {}


def npm_packages(root: Path) -> dict[str, str]:
    """The packages that npm resolved, from its own notes."""
    try:
        noted = json.loads((root / "node_modules" / NPM_LOCK).read_bytes())["packages"]
    except (OSError, ValueError, KeyError):
        return {}
    return {
        path.removeprefix("node_modules/"): f"{package['version']} {package.get('integrity', '')}".strip()
        for path, package in noted.items()
        if "version" in package
    }


def pip_packages(report: Path) -> dict[str, str]:
    """The packages that pip resolved, from its report (`pip install --report`)."""
    try:
        installed = json.loads(report.read_bytes())["install"]
    except (OSError, ValueError, KeyError):
        return {}
    return {
        package["metadata"]["name"]: " ".join([package["metadata"]["version"], *_archive_hashes(package)])
        for package in installed
    }


def _archive_hashes(package: Mapping[str, Any]) -> list[str]:
    hashes = package.get("download_info", {}).get("archive_info", {}).get("hashes", {})
    return [f"{name}:{value}" for name, value in sorted(hashes.items())]


def load_pinned(manifest: Path) -> dict[str, str]:
    """The SHA-256 of each package of the pinned installation. Raises EnvironmentProblem for a damaged kit."""
    try:
        return msgspec.json.decode(manifest.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError) as error:
        raise EnvironmentProblem(
            f"the manifest of packages {manifest} cannot be read: {error}", hint="reinstall bullmq-conformance"
        ) from error


def _recorded(root: Path) -> InstalledFiles | None:
    try:
        return msgspec.json.decode((root / RECORDED).read_bytes(), type=InstalledFiles)
    except (OSError, msgspec.DecodeError):
        return None


def _unequal(expected: Mapping[str, str], actual: Mapping[str, str]) -> list[str]:
    added = {name for name in actual if name not in expected and COMPILED not in name.split("/")}
    return sorted(added | {name for name in expected if expected[name] != actual.get(name)})


def _files(folder: str) -> Iterator[str]:
    """Paths as text: every run reads more than a thousand, and pathlib would take longer than the hashes."""
    for entry in os.scandir(folder):
        if entry.name in NPM_OWN or entry.name == RECORDED:
            continue
        # A link could lead out of the folder, or in a circle.
        if entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path)
        else:
            yield entry.path


def _sha256(path: str) -> str:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - see _files
            return hashlib.sha256(file.readall()).hexdigest()
    except IsADirectoryError:  # a link to a folder
        return hashlib.sha256(os.fsencode(os.readlink(path))).hexdigest()  # noqa: PTH115 - see _files


def main() -> int:
    """Write the manifest of the packages below the folder given as argument to stdout."""
    sys.stdout.buffer.write(
        msgspec.json.format(msgspec.json.encode(read_files(Path(sys.argv[1])).by_package())) + b"\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
