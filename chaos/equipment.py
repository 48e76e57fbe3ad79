"""What every run needs from the machine: Node, the pinned package, the official scripts, a Redis program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from conformance.environment.clients import Launch, Toolchain
from conformance.servers.binary import Binary, any_binary, binary_at
from conformance.servers.setting import BinaryAt, parse_setting
from conformance.upstream.node import find_node
from conformance.upstream.package import ensure_package
from conformance.upstream.scripts import load_scripts


@dataclass(frozen=True)
class Equipment:
    """`texts`: the official scripts by name."""

    toolbox: Toolchain
    texts: Mapping[str, str]
    binary: Binary

    def launch(self, client: str, command: list[str] | None = None) -> Launch:
        """How a client's driver is started. Raises UsageProblem for an unknown name."""
        return self.toolbox.launch(client, command or [])


def prepare(announce: Callable[[str], None], *, node: str = "", redis: str = "") -> Equipment:
    """Find or install everything. Raises a Problem that says what is missing."""
    found = find_node(node or None)
    package = ensure_package(found, announce=announce)
    texts = {name: script.text for name, script in load_scripts(package, found).items()}
    wanted = parse_setting(redis)
    binary = binary_at(wanted.path) if isinstance(wanted, BinaryAt) else any_binary(announce)
    return Equipment(Toolchain(found, package, announce), texts, binary)
