"""The pinned bullmq package: installed once into the user's cache, used offline from then on."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import IO

from platformdirs import user_cache_path

from conformance.problems import EnvironmentProblem
from conformance.upstream.node import NodeBinary, npm_ci

CACHE_VARIABLE = "BULLMQ_CONFORMANCE_CACHE"
"""Environment variable that names another cache folder."""

MODULES_VARIABLE = "BULLMQ_CONFORMANCE_MODULES"
"""Environment variable from which the Node driver knows below which folder `node_modules` is."""

HARNESS = Path(str(files("conformance.node_harness")))
"""The room with package.json, package-lock.json, the Lua manifest and the Node driver."""


@dataclass(frozen=True)
class BullMQPackage:
    """An installed bullmq. `root` is the folder that holds `node_modules`; `lock_sha256` names what was installed."""

    root: Path
    version: str
    lock_sha256: str


def ensure_package(
    node: NodeBinary, *, announce: Callable[[str], None], cache_root: Path | None = None
) -> BullMQPackage:
    """Return the installed package, and install it first if this cache does not have it yet.

    `announce` gets a line for each step when something is installed. The folder appears in the cache complete or not at
    all, also when several processes start at once or one is interrupted. Raises EnvironmentProblem if npm fails or the
    cache cannot be written.
    """
    lock_sha256 = hashlib.sha256((HARNESS / "package-lock.json").read_bytes()).hexdigest()
    root = cache_root or cache_folder()
    target = root / f"npm-{lock_sha256[:12]}"
    version = installed_version(target)
    if version is None:
        try:
            version = _install_once(node, target, announce)
        except OSError as error:
            raise EnvironmentProblem(
                f"the cache folder {root} cannot be used: {error}", hint=f"set {CACHE_VARIABLE} to a writable folder"
            ) from error
    return BullMQPackage(target, version, lock_sha256)


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


def _install_once(node: NodeBinary, target: Path, announce: Callable[[str], None]) -> str:
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = target.parent / f".{target.name}.lock"
    # Without the lock, two runs that start together would take each other's half of an installation for leftovers.
    with exclusive_lock(lock, on_wait=lambda: announce("Waiting for another process that installs bullmq ...")):
        # Whoever waited for the lock finds the work done.
        version = installed_version(target)
        return version if version is not None else _install(node, target, announce)


def _install(node: NodeBinary, target: Path, announce: Callable[[str], None]) -> str:
    """Install beside the target and move into place. The caller holds the lock, so nobody else uses the leftovers."""
    started = time.monotonic()
    for leftover in (target, *target.parent.glob(f"{target.name}.part-*")):
        shutil.rmtree(leftover, ignore_errors=True)
    announce(f"Installing {_wanted()} with npm into {target} (once; later runs work offline) ...")
    part = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=target.parent))
    try:
        for name in ("package.json", "package-lock.json"):
            shutil.copyfile(HARNESS / name, part / name)
        npm_ci(node, part)
        version = installed_version(part)
        if version is None:
            raise EnvironmentProblem("npm installed no bullmq", hint=f"try `npm ci` in {HARNESS}")
        part.chmod(0o755)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    announce(f"Installed bullmq {version} in {time.monotonic() - started:.1f} s")
    return version


def _wanted() -> str:
    dependencies = json.loads((HARNESS / "package.json").read_bytes())["dependencies"]
    return f"bullmq {dependencies['bullmq']}"


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
    with path.open("ab") as handle:
        try:
            _take(handle, wait=False)
        except OSError:
            on_wait()
            _take(handle, wait=True)
        yield
