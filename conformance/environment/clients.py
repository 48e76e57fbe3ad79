"""Which client a name stands for, and the command that starts its driver.

`node` is the oracle's own driver, `reference` the kit's Python client; every folder in `conformance/clients` that holds
a `client.toml` is another name (with `-` for `_`). Any other client is given by its command.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import msgspec

from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.upstream.node import NodeBinary, find_node
from conformance.upstream.package import (
    CACHE_VARIABLE,
    BullMQPackage,
    cache_folder,
    driver_command,
    ensure_package,
    ensure_version,
    exclusive_lock,
)

LAST_LINES = 6
_VERSION = re.compile(r"\d+\.\d+\.\d+")


@dataclass(frozen=True)
class Launch:
    """How a driver is started: a command (never through a shell) and variables added to the environment."""

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


NOBODY = Launch("nobody", [])
"""The client of a verb that has none: the oracle is alone."""


class ClientFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`client.toml`: `command` may use `{python}` (of its own environment) and `{here}` (its folder)."""

    description: str
    command: tuple[str, ...]
    requirements: str | None = None
    """A hashed requirements file beside it; installed once into an environment of its own."""


def client_folders() -> dict[str, Path]:
    """Folder of each client that ships with the kit, by the name that users give."""
    root = Path(str(files("conformance.clients")))
    return {path.parent.name.replace("_", "-"): path.parent for path in sorted(root.glob("*/client.toml"))}


def client_names() -> list[str]:
    """Every name that `--client` takes."""
    return ["reference", "node", *client_folders()]


@dataclass(frozen=True)
class Toolchain:
    """What drivers are started with: Node, the pinned package, and a way to say what takes long."""

    node: NodeBinary
    package: BullMQPackage
    announce: Callable[[str], None]

    @property
    def oracle(self) -> Launch:
        """The Node driver on the pinned package."""
        command, environment = driver_command(self.node, self.package)
        return Launch("node", command, environment)

    def launch(self, name: str, command: Sequence[str] = ()) -> Launch:
        """The driver of a named client, or of a given command.

        `node@5.81.3` is the oracle's driver on another version of bullmq. Raises UsageProblem for an unknown name,
        EnvironmentProblem where what it needs cannot be installed.
        """
        if command:
            return Launch(name, list(command))
        client, at, version = name.partition("@")
        if at:
            return self._other_version(name, client, version)
        if name == "node":
            return self.oracle
        if name == "reference":
            environment = {"BULLMQ_CONFORMANCE_NODE": str(self.node.path)}
            return Launch(name, [sys.executable, "-m", "conformance.reference_impl.driver"], environment)
        return self._from_folder(name)

    def _other_version(self, name: str, client: str, version: str) -> Launch:
        if client != "node" or not _VERSION.fullmatch(version):
            raise UsageProblem(f"there is no client {name!r}", hint="other versions are written node@5.81.3")
        package = ensure_version(self.node, version, announce=self.announce)
        package.verify()
        return Launch(name, *driver_command(self.node, package))

    def _from_folder(self, name: str) -> Launch:
        folder = client_folders().get(name)
        if folder is None:
            raise UsageProblem(
                f"unknown client {name!r}",
                hint=f"use one of {', '.join(client_names())}, or give your driver's command after `--`",
            )
        described = msgspec.convert(tomllib.loads((folder / "client.toml").read_text("utf-8")), ClientFile)
        python = sys.executable
        if described.requirements:
            python = str(ensure_python_environment(name, folder / described.requirements, announce=self.announce))
        return Launch(name, [part.format(python=python, here=folder) for part in described.command])


def find_toolchain(node: str, announce: Callable[[str], None]) -> Toolchain:
    """Find Node (`node`: a path or command, "" for what this machine has) and install the pinned package once.

    Raises a Problem that says what is missing, or which installed file is not as npm left it.
    """
    found = find_node(node or None)
    package = ensure_package(found, announce=announce)
    package.verify()
    return Toolchain(found, package, announce)


# Environments of clients, one per list of requirements, so that dependencies cannot clash with ours.


def ensure_python_environment(name: str, requirements: Path, *, announce: Callable[[str], None]) -> Path:
    """The interpreter of the environment; installs it once per requirements file and Python version.

    Raises EnvironmentProblem with the last lines of pip when that fails, or when the cache cannot be written. A marker
    file written last distinguishes a whole environment from one that was interrupted, which is made anew.
    """
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    root = cache_folder() / f"python-{name}-{wanted}"
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
    # Without the lock, one process would run the interpreter of an environment that another has only half installed.
    with exclusive_lock(
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
