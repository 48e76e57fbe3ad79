"""Copies of Node.js clients with their npm packages, one per state of the client's folder.

A copy, because Node.js looks for the packages of a module in the folders above it, and nothing is written into the kit.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from conformance.problems import EnvironmentProblem
from conformance.upstream.installed_files import NODE_CLIENT, RECORDED, npm_packages, record_files, verify_files
from conformance.upstream.node import NodeBinary, run_npm
from conformance.upstream.package import CACHE_VARIABLE, cache_folder, exclusive_lock

MODULES = "node_modules"


def ensure_node_environment(name: str, folder: Path, node: NodeBinary, *, announce: Callable[[str], None]) -> Path:
    """The copy of a client's folder with exactly the packages of its `package-lock.json`; installed once.

    Raises EnvironmentProblem with npm's error if that fails, if the cache cannot be written, or if a file has changed
    since.
    """
    root = cache_folder() / f"node-{name}-{_digest(folder, node)}"
    try:
        _install_once(name, folder, root, node, announce)
    except OSError as error:
        raise EnvironmentProblem(
            f"the cache folder {root.parent} cannot be used: {error}", hint=f"set {CACHE_VARIABLE} to a writable folder"
        ) from error
    verify_files(root, contents=NODE_CLIENT)
    return root


def _install_once(name: str, folder: Path, root: Path, node: NodeBinary, announce: Callable[[str], None]) -> None:
    root.parent.mkdir(parents=True, exist_ok=True)
    # Without the lock, one process would start a driver whose packages another has only half installed.
    with exclusive_lock(
        root.parent / f".{root.name}.lock", on_wait=lambda: announce("waiting for another installation ...")
    ):
        # The record is written last: an interrupted installation has none, and is created again.
        if not (root / RECORDED).exists():
            announce(f"installing the Node.js client {name!r} once into {root}")
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(folder, root, ignore=shutil.ignore_patterns(MODULES))
            run_npm(node, root, "ci")
            record_files(root, NODE_CLIENT, npm_packages(root))


def _digest(folder: Path, node: NodeBinary) -> str:
    # With the version of Node.js: packages may have parts for one version.
    digest = hashlib.sha256(node.version.encode() + RECORDED.encode())
    for path in sorted(folder.rglob("*")):
        if path.is_file() and MODULES not in path.relative_to(folder).parts:
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
