"""Verifies the oracle: the hash of every installed file of bullmq, ioredis and their dependencies.

For the pinned version, the kit has a hash per package (`packages.manifest.json`). For other versions, and to name the
file that differs, it records the hashes of all files right after the installation by npm. To pin another version,
`python -m conformance.upstream.installed_files FOLDER` writes the manifest.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from conformance.problems import EnvironmentProblem

RECORDED = "files.json"
"""Name of the record next to `node_modules`."""

NPM_OWN = frozenset({".package-lock.json", ".bin"})
"""Files of npm itself below `node_modules`. No program reads them, and they differ between versions of npm."""


class InstalledFiles(msgspec.Struct, frozen=True):
    """SHA-256 of every file, by its path below `node_modules`."""

    files: dict[str, str]

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


def read_files(root: Path) -> InstalledFiles:
    """Hash every file below `root/node_modules`. Raises EnvironmentProblem if one cannot be read."""
    modules = str(root / "node_modules")
    try:
        return InstalledFiles(
            {path[len(modules) + 1 :].replace(os.sep, "/"): _sha256(path) for path in _files(modules)}
        )
    except OSError as error:
        raise EnvironmentProblem(
            f"the installed packages in {root} cannot be read: {error}", hint=f"remove {root} and run again"
        ) from error


def record_files(root: Path) -> None:
    """Record the hashes of the installed files, right after the installation."""
    (root / RECORDED).write_bytes(msgspec.json.encode(read_files(root)))


def verify_files(root: Path, pinned: Mapping[str, str] | None = None) -> None:
    """Compare every installed file with its recorded hash, and its package with the `pinned` hash if there is one.

    Raises EnvironmentProblem with the names of changed files: with them, the oracle would not be the real bullmq.
    """
    installed = read_files(root)
    recorded = _recorded(root)
    changed = _unequal(recorded.files, installed.files) if recorded else []
    # The record first: it names the changed file, the manifest only its package.
    changed = changed or (_unequal(pinned, installed.by_package()) if pinned is not None else [])
    if changed:
        others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise EnvironmentProblem(
            f"the oracle has changed since npm installed it: {changed[0]}{others} in {root / 'node_modules'} "
            f"differs from its recorded hash",
            hint=f"remove {root} and run again to install it again",
        )
    if recorded is None:
        if pinned is None:
            raise EnvironmentProblem(
                f"{root} has no record of its installed files", hint="remove it and run again to install it again"
            )
        record_files(root)  # installed by an older kit without record; the manifest has just verified it


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
    return sorted(name for name in {*expected, *actual} if expected.get(name) != actual.get(name))


def _files(folder: str) -> Iterator[str]:
    """Paths as text: every run reads more than a thousand, and pathlib would take longer than the hashes."""
    for entry in os.scandir(folder):
        if entry.name in NPM_OWN:
            continue
        # A link could lead out of the folder, or in a circle.
        if entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path)
        else:
            yield entry.path


def _sha256(path: str) -> str:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - see _files
        return hashlib.sha256(file.readall()).hexdigest()


def main() -> int:
    """Write the manifest of the packages below the folder given as argument to stdout."""
    sys.stdout.buffer.write(
        msgspec.json.format(msgspec.json.encode(read_files(Path(sys.argv[1])).by_package())) + b"\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
