"""The bullmq packages: the pinned one and others, installed once into the user's cache and then used offline."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import IO, TYPE_CHECKING

from platformdirs import user_cache_path

from conformance.problems import EnvironmentProblem
from conformance.upstream.installed_files import (
    RECORDED,
    load_pinned,
    npm_packages,
    record_files,
    resolved_packages,
    verify_files,
)
from conformance.upstream.node import NodeBinary, run_npm

if TYPE_CHECKING:
    # The distribution of the reference client has this module without the other one.
    from conformance.upstream.redis_libraries import OtherLibrary

CACHE_VARIABLE = "BULLMQ_CONFORMANCE_CACHE"
"""Environment variable that names another cache folder."""

MODULES_VARIABLE = "BULLMQ_CONFORMANCE_MODULES"
"""Environment variable with the folder of `node_modules`, for the Node driver."""

HARNESS = Path(str(files("conformance.node_harness")))
"""The folder with package.json, package-lock.json, the Lua manifest and the Node driver."""


@dataclass(frozen=True)
class BullMQPackage:
    """An installed bullmq. `root` is the folder that holds `node_modules`.

    `lock_sha256`: hash of the lock file; empty for versions other than the pinned one, because the kit has no lock for
    them.
    """

    root: Path
    version: str
    lock_sha256: str

    @property
    def resolved(self) -> dict[str, str]:
        """Its packages: version and hash of the archive, by name."""
        return resolved_packages(self.root)

    def verify(self) -> None:
        """Check every installed file against its recorded hash. Raises EnvironmentProblem with the changed files."""
        verify_files(self.root, load_pinned(HARNESS / "packages.manifest.json") if self.lock_sha256 else None)


def ensure_package(
    node: NodeBinary, *, announce: Callable[[str], None], cache_root: Path | None = None
) -> BullMQPackage:
    """Return the pinned package; installs it first if it is not in the cache.

    `announce` gets a line for each step of an installation. The folder in the cache is always complete, even if several
    processes start at once or one is interrupted. Raises EnvironmentProblem if npm fails or the
    cache cannot be written.
    """
    lock_sha256 = hashlib.sha256((HARNESS / "package-lock.json").read_bytes()).hexdigest()
    root = cache_root or cache_folder()
    target = root / f"npm-{lock_sha256[:12]}"
    # The lock leaves out the optional native helpers of msgpackr: the same files are installed on every system.
    files = {name: (HARNESS / name).read_text("utf-8") for name in ("package.json", "package-lock.json")}
    pinned = _Installation(node, target, f"bullmq {_pinned_version('bullmq')}", files, ("ci",))
    return BullMQPackage(target, pinned.ensure(announce), lock_sha256)


def ensure_bullmq(
    node: NodeBinary,
    version: str,
    *,
    announce: Callable[[str], None],
    overrides: Mapping[str, str] | None = None,
    library: OtherLibrary | None = None,
) -> BullMQPackage:
    """Return this version of bullmq, every file verified; the pinned one is installed from the kit's own lock.

    `overrides` and `library` as in `ensure_version`. Raises EnvironmentProblem if npm cannot install it, or if an
    installed file has changed since.
    """
    if version == _pinned_version("bullmq") and not overrides and not library:
        package = ensure_package(node, announce=announce)
    else:
        package = ensure_version(node, version, overrides=overrides, library=library, announce=announce)
    package.verify()
    return package


def ensure_version(
    node: NodeBinary,
    version: str,
    *,
    announce: Callable[[str], None],
    overrides: Mapping[str, str] | None = None,
    library: OtherLibrary | None = None,
    cache_root: Path | None = None,
) -> BullMQPackage:
    """Return another version of bullmq; installs it first if it is not in the cache.

    `overrides`: versions of its dependencies, such as ioredis, instead of its own choice. `library`: installed next to
    it. Raises EnvironmentProblem if npm cannot install it, or if the cache cannot be written.
    """
    chosen = {**(library.packages if library else {}), **(overrides or {})}
    # Since 6.0, ioredis is a peer dependency of bullmq, so the user must choose its version.
    wanted = ("ioredis", *(library.packages if library else ()))
    direct = {"bullmq": version, **{package: chosen.get(package, _pinned_version("ioredis")) for package in wanted}}
    name = "+".join([f"bullmq-{version}", *(f"{package.replace('/', '-')}-{of}" for package, of in chosen.items())])
    described = json.dumps({"private": True, "dependencies": direct, "overrides": chosen})
    # A native library comes as an optional package for each system.
    words = ("install",) if library and library.native else ("install", "--omit=optional")
    other = _Installation(
        node, (cache_root or cache_folder()) / name, name.replace("-", " ", 1), {"package.json": described}, words
    )
    return BullMQPackage(other.target, other.ensure(announce), "")


def installed_version(root: Path) -> str | None:
    """Read the version of bullmq below `root`; None if there is none."""
    try:
        described = json.loads((root / "node_modules" / "bullmq" / "package.json").read_bytes())
    except (OSError, ValueError):
        return None
    return str(described["version"])


def driver_command(node: NodeBinary, package: BullMQPackage) -> tuple[list[str], dict[str, str]]:
    """How to start the oracle: the command, and the variables to add to the environment."""
    return [str(node.path), str(HARNESS / "driver.mjs")], {MODULES_VARIABLE: str(package.root)}


def cache_folder() -> Path:
    """The user's folder for everything that the kit installs; it need not exist yet."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named).expanduser() if named else user_cache_path("bullmq-conformance")


@dataclass(frozen=True)
class _Installation:
    """An installation of bullmq: the texts of the files that npm reads, by name, and npm's arguments."""

    node: NodeBinary
    target: Path
    name: str
    files: Mapping[str, str]
    npm_words: tuple[str, ...]

    def ensure(self, announce: Callable[[str], None]) -> str:
        """Install it if it is not there, and return its version."""
        version = self._complete_version()
        if version is not None:
            return version
        try:
            return self._install_once(announce)
        except OSError as error:
            raise EnvironmentProblem(
                f"the cache folder {self.target.parent} cannot be used: {error}",
                hint=f"set {CACHE_VARIABLE} to a writable folder",
            ) from error

    def _install_once(self, announce: Callable[[str], None]) -> str:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        lock = self.target.parent / f".{self.target.name}.lock"
        # Without the lock, two runs that start together would remove each other's unfinished installation as leftovers.
        with exclusive_lock(lock, on_wait=lambda: announce("Waiting for another process that installs bullmq ...")):
            # Another process may have finished the installation while this one waited for the lock.
            version = self._complete_version()
            return version if version is not None else self._install(announce)

    def _complete_version(self) -> str | None:
        """The installed version, if its record exists; older kits without records only installed the pinned version."""
        recorded = "package-lock.json" in self.files or (self.target / RECORDED).exists()
        return installed_version(self.target) if recorded else None

    def _install(self, announce: Callable[[str], None]) -> str:
        """Install next to the target, then move into place. The lock is held, so leftovers are not in use."""
        started = time.monotonic()
        for leftover in (self.target, *self.target.parent.glob(f"{self.target.name}.part-*")):
            shutil.rmtree(leftover, ignore_errors=True)
        announce(f"Installing {self.name} with npm into {self.target} (once; later runs work offline) ...")
        part = Path(tempfile.mkdtemp(prefix=f"{self.target.name}.part-", dir=self.target.parent))
        try:
            for name, text in self.files.items():
                (part / name).write_text(text, "utf-8")
            run_npm(self.node, part, *self.npm_words)
            version = installed_version(part)
            if version is None:
                raise EnvironmentProblem("npm did not install bullmq", hint=f"try `npm ci` in {HARNESS}")
            # Recorded before the rename: a folder in its final place always has its record.
            record_files(part, packages=npm_packages(part))
            # mkdtemp makes the folder private, but other users may share the cache.
            part.chmod(0o755)
            # A rename is atomic: a reader without the lock sees the whole installation or none.
            part.rename(self.target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        announce(f"Installed bullmq {version} in {time.monotonic() - started:.1f} s")
        return version


def _pinned_version(package: str) -> str:
    versions: dict[str, str] = json.loads((HARNESS / "package.json").read_bytes())["dependencies"]
    return versions[package]


if sys.platform == "win32":
    import msvcrt

    def _take(handle: IO[bytes], *, wait: bool) -> None:
        msvcrt.locking(handle.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _take(handle: IO[bytes], *, wait: bool) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def exclusive_lock(path: Path, *, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file at `path`; `on_wait` is called once if another process has it."""
    # The file is never removed: a second process could then lock a new file of the same name at the same time.
    with path.open("ab") as handle:
        try:
            # First without waiting, only to report the wait: an installation may take minutes.
            _take(handle, wait=False)
        except OSError:
            on_wait()
            _take(handle, wait=True)
        yield
