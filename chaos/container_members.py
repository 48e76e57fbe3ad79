"""Processes of the client in containers of their own: the docker engine kills and pauses them."""

from __future__ import annotations

import secrets
import subprocess
from contextlib import suppress

from chaos.members import Member
from conformance.gate.preparing.clients import Launch
from conformance.observe.tap.tap import Tap

LABEL = "bullmq-conformance-chaos=1"
ENGINE_DEADLINE_S = 120
"""Engines that copy the whole image for every container (storage driver vfs) take long."""


class ContainerMember(Member):
    """A driver in a container that shares the network of this machine, and so reaches its tap at 127.0.0.1."""

    handshake_ms = ENGINE_DEADLINE_S * 1000

    def __init__(self, name: str, launch: Launch, tap: Tap, *, mode: str, seed: int, image: str) -> None:
        super().__init__(name, launch, tap, mode=mode, seed=seed)
        self._image = image
        self._name = ""

    def start(self) -> None:
        """Start a new container. Raises DriverBroken."""
        self._name = f"bullmq-chaos-{secrets.token_hex(6)}"
        run = ["docker", "run", "--rm", "--interactive", "--network", "host", "--name", self._name, "--label", LABEL]
        self.launch = Launch(self.launch.name, [*run, self._image])
        super().start()

    def kill(self) -> None:
        """`docker kill`: the client has no time for anything."""
        self._engine("kill")
        super().kill()

    def freeze(self) -> None:
        """`docker pause`."""
        self._engine("pause")

    def thaw(self) -> None:
        """`docker unpause`."""
        self._engine("unpause")

    def close(self) -> None:
        """Remove the container, whatever state it is in."""
        super().close()
        if self._name:
            self._engine("rm", "--force")

    def _engine(self, *words: str) -> None:
        """One command about this container; one that is gone needs nothing."""
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                ["docker", *words, self._name],
                check=False,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=ENGINE_DEADLINE_S,
            )
