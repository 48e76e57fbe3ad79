"""Python environments of other clients: one per requirements file, so that dependencies cannot clash with ours."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from conformance.problems import EnvironmentProblem
from conformance.upstream.cache import CACHE_VARIABLE, cache_root
from conformance.upstream.locking import exclusive

LAST_LINES = 6


def ensure_python_environment(name: str, requirements: Path, *, announce: Callable[[str], None]) -> Path:
    """The interpreter of the environment; installs it once per requirements file and Python version.

    Raises EnvironmentProblem with the last lines of pip when that fails, or when the cache cannot be written. A marker
    file written last tells a whole environment from one that was interrupted, which is made anew.
    """
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    root = cache_root() / f"python-{name}-{wanted}"
    try:
        _install_once(name, requirements, root, announce)
    except OSError as error:
        raise EnvironmentProblem(
            f"the cache folder {root.parent} cannot be used: {error}", hint=f"set {CACHE_VARIABLE} to a writable folder"
        ) from error
    return root / "bin" / "python"


def _install_once(name: str, requirements: Path, root: Path, announce: Callable[[str], None]) -> None:
    python, marker = root / "bin" / "python", root / "complete"
    root.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(
        root.parent / f".{root.name}.lock", on_wait=lambda: announce("waiting for another installation ...")
    ):
        if not marker.exists():
            announce(f"installing the Python client {name!r} once into {root}")
            shutil.rmtree(root, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(root)], name)
            install = [
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--require-hashes",
                "--no-deps",
            ]
            _run([str(python), *install, "-r", str(requirements)], name)
            marker.write_text("installed\n", "utf-8")


def _run(command: list[str], name: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        tail = " | ".join((done.stdout + done.stderr).strip().splitlines()[-LAST_LINES:])
        raise EnvironmentProblem(
            f"the environment of client {name!r} could not be installed: {tail}",
            hint="check the connection to the package index and run again",
        )
