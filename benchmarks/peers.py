"""The clients that the benchmarks compare: their names, requirements and commands."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from conformance.environment.client_builds import BuildStep, ClientBuild
from conformance.environment.python_environments import PythonPackages, ensure_python_environment
from conformance.problems import UsageProblem
from conformance.upstream.node import find_node
from conformance.upstream.package import MODULES_VARIABLE, ensure_package

Announce = Callable[[str], None]

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent

NODE: Final = "node"
REFERENCE: Final = "reference"
FAST_REFERENCE: Final = "reference+uvloop"
PURE_REFERENCE: Final = "reference-pure"
OFFICIAL: Final = "python-official"
RUST_OFFICIAL: Final = "rust-official"
PEER_NAMES: Final = (NODE, REFERENCE, FAST_REFERENCE, PURE_REFERENCE, OFFICIAL, RUST_OFFICIAL)

REFERENCES: Final[Mapping[str, Sequence[str]]] = {
    REFERENCE: (),
    FAST_REFERENCE: ("--uvloop",),
    PURE_REFERENCE: ("--without-hiredis",),
}
"""The variants of the reference client: on asyncio's event loop, on uvloop, and in pure Python."""

RUST_BUILD: Final = ClientBuild(
    client="rust-official-peer",
    folder=ROOT / "conformance" / "clients" / "rust_official",
    step=BuildStep(
        toolchain="rust",
        command=(
            "cargo",
            "build",
            "--profile",
            "peer",
            "--locked",
            "--bin",
            "rust-official-peer",
            "--target-dir",
            "{work}",
        ),
        program="peer/rust-official-peer",
        lock="Cargo.lock",
        sources=("Cargo.toml", "Cargo.lock", "peer.rs"),
    ),
    kind="peer",
)
"""Optimised, as users of the client build their programs. The driver in the same folder favours a short build."""


@dataclass(frozen=True)
class Command:
    """The command that starts a peer, and variables added to its environment."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def chosen_names(chosen: str | None, announce: Announce) -> list[str]:
    """The chosen peers, separated by commas; by default all that this machine can run. Prints a line for the others."""
    if chosen is not None:
        return list(dict.fromkeys(chosen.split(",")))
    obstacles = {name: _obstacle(name) for name in PEER_NAMES}
    for name, obstacle in obstacles.items():
        if obstacle:
            announce(f"{name} is left out: {obstacle}")
    return [name for name, obstacle in obstacles.items() if not obstacle]


def command_of(name: str, announce: Announce) -> Command:
    """The command that starts a peer; installs or builds what is missing.

    Raises UsageProblem for an unknown name, EnvironmentProblem if something cannot be installed or built.
    """
    if name == NODE:
        node = find_node(None)
        package = ensure_package(node, announce=announce)
        return Command([str(node.path), str(HERE / "peer.mjs")], {MODULES_VARIABLE: str(package.root)})
    if name in REFERENCES:
        return Command([sys.executable, "-m", "benchmarks.peer", "reference", *REFERENCES[name]])
    if name == OFFICIAL:
        requirements = ROOT / "conformance" / "clients" / "python_official" / "requirements.txt"
        python = ensure_python_environment(name, PythonPackages.pinned(requirements), announce=announce)
        return Command([str(python), str(HERE / "peer.py"), "official"])
    if name == RUST_OFFICIAL:
        return Command([str(RUST_BUILD.ensure(announce))])
    raise UsageProblem(f"unknown peer {name!r}", hint=f"use some of {', '.join(PEER_NAMES)}")


def _obstacle(name: str) -> str:
    """Why a peer cannot run on this machine and how to fix it; empty if it can."""
    if name == FAST_REFERENCE and importlib.util.find_spec("uvloop") is None:
        return "needs uvloop: pip install uvloop"
    return RUST_BUILD.obstacle() if name == RUST_OFFICIAL else ""
