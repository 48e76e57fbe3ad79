"""Which client a name stands for, and the command that starts its driver.

`node` is the oracle's own driver, `reference` the kit's Python client; every folder in `conformance/clients` that holds
a `client.toml` is another name (with `-` for `_`). Any other client is given by its command.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import msgspec

from conformance.gate.preparing.environments import ensure_python_environment
from conformance.problems import UsageProblem
from conformance.upstream.node import Node
from conformance.upstream.package import Package, driver_command


@dataclass(frozen=True)
class Launch:
    """How a driver is started: a command (never through a shell) and variables added to the environment."""

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


class ClientFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`client.toml`: `command` may use `{python}` (of its own environment) and `{here}` (its folder)."""

    description: str
    command: tuple[str, ...]
    requirements: str | None = None
    """A hashed requirements file beside it; installed once into an environment of its own."""


@dataclass(frozen=True)
class Toolbox:
    """What launching may need: Node, the pinned package, and a way to say what takes long."""

    node: Node
    package: Package
    announce: Callable[[str], None]


def client_folders() -> dict[str, Path]:
    """Folder of each client that ships with the kit, by the name that users give."""
    root = Path(str(files("conformance.clients")))
    return {path.parent.name.replace("_", "-"): path.parent for path in sorted(root.glob("*/client.toml"))}


def client_names() -> list[str]:
    """Every name that `--client` takes."""
    return ["reference", "node", *client_folders()]


def oracle_launch(toolbox: Toolbox) -> Launch:
    """The Node driver on the pinned package."""
    command, environment = driver_command(toolbox.node, toolbox.package)
    return Launch("node", command, environment)


def client_launch(name: str, command: list[str], toolbox: Toolbox) -> Launch:
    """The driver of a named client, or of a given command. Raises UsageProblem for an unknown name."""
    if command:
        return Launch(name, command)
    if name == "node":
        return oracle_launch(toolbox)
    if name == "reference":
        environment = {"BULLMQ_CONFORMANCE_NODE": str(toolbox.node.path)}
        return Launch(name, [sys.executable, "-m", "conformance.reference_impl.driver"], environment)
    return _folder_launch(name, toolbox)


def _folder_launch(name: str, toolbox: Toolbox) -> Launch:
    folder = client_folders().get(name)
    if folder is None:
        raise UsageProblem(
            f"unknown client {name!r}",
            hint=f"use one of {', '.join(client_names())}, or give your driver's command after `--`",
        )
    described = msgspec.convert(tomllib.loads((folder / "client.toml").read_text("utf-8")), ClientFile)
    python = sys.executable
    if described.requirements:
        python = str(ensure_python_environment(name, folder / described.requirements, announce=toolbox.announce))
    return Launch(name, [part.format(python=python, here=folder) for part in described.command])
