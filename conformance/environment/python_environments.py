"""Python environments of clients, one per list of packages, so that dependencies cannot clash with the kit's own."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.problems import EnvironmentProblem
from conformance.upstream.installed_files import (
    PYTHON_CLIENT,
    RECORDED,
    pip_packages,
    record_files,
    resolved_packages,
    verify_files,
)
from conformance.upstream.package import CACHE_VARIABLE, cache_folder, exclusive_lock

LAST_LINES = 6


@dataclass(frozen=True)
class PythonPackages:
    """A list of packages: pinned, hashed requirements, or packages that pip resolves (`redis==7.4.1`).

    `key` identifies the list: each list has its own environment.
    """

    words: tuple[str, ...]
    key: str

    @staticmethod
    def pinned(requirements: Path) -> PythonPackages:
        """Exactly the packages of a hashed requirements file."""
        words = ("--require-hashes", "--no-deps", "-r", str(requirements))
        return PythonPackages(words, _digest(requirements.read_bytes()))

    @staticmethod
    def resolved(packages: Sequence[str]) -> PythonPackages:
        """These versions and their dependencies, as resolved by pip."""
        return PythonPackages(tuple(packages), _digest("\n".join(packages).encode()))


def ensure_python_environment(name: str, packages: PythonPackages, *, announce: Callable[[str], None]) -> Path:
    """The interpreter of the environment; installs it once per list of packages and Python version.

    Raises EnvironmentProblem with the last lines of pip if that fails, if the cache cannot be written, or if an
    installed file has changed since.
    """
    root = cache_folder() / f"python-{name}-{packages.key}"
    try:
        _install_once(name, packages, root, announce)
    except OSError as error:
        raise EnvironmentProblem(
            f"the cache folder {root.parent} cannot be used: {error}", hint=f"set {CACHE_VARIABLE} to a writable folder"
        ) from error
    verify_files(root, contents=PYTHON_CLIENT)
    return root / "bin" / "python"


def packages_of(python: Path) -> dict[str, str]:
    """The packages of the environment with this interpreter: version and hash of the archive, by name."""
    return resolved_packages(python.parent.parent)


def _install_once(name: str, packages: PythonPackages, root: Path, announce: Callable[[str], None]) -> None:
    python, marker = root / "bin" / "python", root / "complete"
    root.parent.mkdir(parents=True, exist_ok=True)
    # Without the lock, one process would run the interpreter of an environment that another has only half installed.
    with exclusive_lock(
        root.parent / f".{root.name}.lock", on_wait=lambda: announce("waiting for another installation ...")
    ):
        # The marker is written last: an interrupted installation has none, and is created again.
        if not marker.exists():
            announce(f"installing the Python client {name!r} once into {root}")
            # Leftovers of an interrupted installation: pip would take its half-written packages for installed.
            shutil.rmtree(root, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(root)], name)
            report = root / "report.json"
            install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--report", str(report)]
            _run([str(python), *install, *packages.words], name)
            (root / PYTHON_CLIENT.below).mkdir(exist_ok=True)
            record_files(root, PYTHON_CLIENT, pip_packages(report))
            marker.write_text("installed\n", "utf-8")


def _run(command: list[str], name: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        tail = " | ".join((done.stdout + done.stderr).strip().splitlines()[-LAST_LINES:])
        raise EnvironmentProblem(
            f"the environment of client {name!r} could not be installed: {tail}",
            hint="check the names and versions of its packages and the connection to the package index, then run again",
        )


def _digest(packages: bytes) -> str:
    # With the Python version: a virtual environment breaks when its interpreter is upgraded. And with the name of the
    # record, which environments of older kits do not have.
    return hashlib.sha256(packages + sys.version.encode() + RECORDED.encode()).hexdigest()[:12]
