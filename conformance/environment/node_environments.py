"""Copies of Node.js clients with their npm packages, one per state of the client's folder.

A copy, because Node.js looks for the packages of a module in the folders above it, and nothing is written into the kit.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from conformance.problems import EnvironmentProblem
from conformance.upstream.node import NodeBinary, run_npm
from conformance.upstream.package import CACHE_VARIABLE, cache_folder, exclusive_lock

MODULES = "node_modules"


def ensure_node_environment(name: str, folder: Path, node: NodeBinary, *, announce: Callable[[str], None]) -> Path:
    """The copy of a client's folder with exactly the packages of its `package-lock.json`; installed once.

    Raises EnvironmentProblem with npm's error if that fails, or if the cache cannot be written.
    """
    root = cache_folder() / f"node-{name}-{_digest(folder, node)}"
    try:
        _install_once(name, folder, root, node, announce)
    except OSError as error:
        raise EnvironmentProblem(
            f"the cache folder {root.parent} cannot be used: {error}", hint=f"set {CACHE_VARIABLE} to a writable folder"
        ) from error
    return root


def _install_once(name: str, folder: Path, root: Path, node: NodeBinary, announce: Callable[[str], None]) -> None:
    marker = root / MODULES / ".complete"
    root.parent.mkdir(parents=True, exist_ok=True)
    # Without the lock, one process would start a driver whose packages another has only half installed.
    with exclusive_lock(
        root.parent / f".{root.name}.lock", on_wait=lambda: announce("waiting for another installation ...")
    ):
        # The marker is written last: an interrupted installation has none, and is created again.
        if not marker.exists():
            announce(f"installing the Node.js client {name!r} once into {root}")
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(folder, root, ignore=shutil.ignore_patterns(MODULES))
            run_npm(node, root, "ci")
            # npm makes no folder for a client whose list of packages is empty.
            marker.parent.mkdir(exist_ok=True)
            marker.write_text("installed\n", "utf-8")


def _digest(folder: Path, node: NodeBinary) -> str:
    # With the version of Node.js: packages may have parts for one version.
    digest = hashlib.sha256(node.version.encode())
    for path in sorted(folder.rglob("*")):
        if path.is_file() and MODULES not in path.relative_to(folder).parts:
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
