"""Other versions of bullmq beside the pinned one: installed once, driven by the same driver."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from chaos.equipment import Equipment
from conformance.environment.clients import Launch
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.upstream.cache import cache_root
from conformance.upstream.locking import exclusive
from conformance.upstream.npm import error_summary, find_npm
from conformance.upstream.package import MODULES_VARIABLE

_VERSION = re.compile(r"\d+\.\d+\.\d+")
INSTALL_TIMEOUT_S = 300


def client_named(equipment: Equipment, name: str) -> Launch:
    """A client by name; `node@5.81.3` is the oracle's driver on another version of bullmq. Raises a Problem."""
    client, at, version = name.partition("@")
    if not at:
        return equipment.launch(name)
    if client != "node" or not _VERSION.fullmatch(version):
        raise UsageProblem(f"there is no client {name!r}", hint="other versions are written node@5.81.3")
    oracle = equipment.toolbox.oracle
    return Launch(name, oracle.command, {**oracle.environment, MODULES_VARIABLE: str(installed(equipment, version))})


def installed(equipment: Equipment, version: str) -> Path:
    """The folder whose node_modules hold this version. Raises EnvironmentProblem where npm cannot get it."""
    folder = cache_root() / f"bullmq-{version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(folder.parent / f".{folder.name}.lock", on_wait=lambda: None):
        if not (folder / "complete").exists():
            folder.mkdir(exist_ok=True)
            _install(equipment, folder, version)
            (folder / "complete").write_text("installed\n")
    return folder


def _install(equipment: Equipment, folder: Path, version: str) -> None:
    node = equipment.toolbox.node
    words = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=optional", "--prefix", str(folder)]
    try:
        done = subprocess.run(
            [str(node.path), str(find_npm(node)), *words, f"bullmq@{version}"],
            env={**os.environ, "NPM_CONFIG_UPDATE_NOTIFIER": "false"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(f"npm could not install bullmq {version}: {error}") from error
    if done.returncode:
        raise EnvironmentProblem(f"npm could not install bullmq {version}: {error_summary(done.stderr)}")
