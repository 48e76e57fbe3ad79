"""Which Node.js runs the oracle."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from conformance.problems import EnvironmentProblem, UsageProblem

MINIMUM_MAJOR = 18
"""The driver uses nothing newer, and the newest `nodejs-bin` on PyPI is 18.4."""

_VERSION_TIMEOUT_S = 20
_VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)")

Source = Literal["setting", "system", "nodejs-bin"]


@dataclass(frozen=True)
class Node:
    """A Node.js that can be started. `version` has no leading `v`; `source` tells how it was found."""

    path: Path
    version: str
    source: Source


def find_node(setting: str | None = None) -> Node:
    """Choose a Node.js: the one asked for, else the one on PATH, else the one from the PyPI package `nodejs-bin`.

    `setting` is a path or a command name. Raises UsageProblem if it does not name a usable Node.js, and
    EnvironmentProblem if nothing was asked for and nothing is there.
    """
    if setting:
        return _asked_for(setting)
    on_path = shutil.which("node")
    rejected = ""
    if on_path:
        version = node_version(Path(on_path))
        if version and _new_enough(version):
            return Node(Path(on_path), version, "system")
        rejected = f" ({on_path} is {version or 'not a working Node.js'})"
    bundled = bundled_node()
    if bundled:
        version = node_version(bundled)
        if version and _new_enough(version):
            return Node(bundled, version, "nodejs-bin")
    raise EnvironmentProblem(
        f"no Node.js {MINIMUM_MAJOR} or newer was found{rejected}",
        hint="install Node.js, or `pip install nodejs-bin`, or name one with --node PATH",
    )


def bundled_node() -> Path | None:
    """Locate the binary inside the PyPI package `nodejs-bin` (module `nodejs`) without importing it."""
    spec = importlib.util.find_spec("nodejs")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    candidates = (folder / "bin" / "node", folder / "node.exe")
    return next((path for path in candidates if path.is_file()), None)


def node_version(path: Path) -> str | None:
    """Ask a binary for its version, such as `20.11.1`; None if it is no Node.js or does not start."""
    try:
        asked = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.fullmatch(asked.stdout.strip())
    return ".".join(match.groups()) if match else None


def _asked_for(setting: str) -> Node:
    path = shutil.which(setting)
    if path is None:
        raise UsageProblem(f"--node {setting}: there is no such program", hint="name a Node.js binary or leave it out")
    version = node_version(Path(path))
    if version is None:
        raise UsageProblem(f"--node {setting}: this is not a working Node.js", hint=f"try `{setting} --version`")
    if not _new_enough(version):
        raise UsageProblem(
            f"--node {setting}: version {version} is too old", hint=f"{MINIMUM_MAJOR} or newer is needed"
        )
    return Node(Path(path), version, "setting")


def _new_enough(version: str) -> bool:
    return int(version.split(".", 1)[0]) >= MINIMUM_MAJOR
