"""Processes of the client in containers of their own: the docker engine kills and pauses them."""

from __future__ import annotations

import secrets
import subprocess
from contextlib import suppress

from chaos.members import Member
from conformance.environment.clients import Launch
from conformance.observe.tap.tap import Tap
from conformance.servers.waiting import wait_until

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
        self._answers = False

    def start(self) -> None:
        """Start a new container. Raises DriverBroken."""
        self._name, self._answers = f"bullmq-chaos-{secrets.token_hex(6)}", False
        run = ["docker", "run", "--rm", "--interactive", "--network", "host", "--name", self._name, "--label", LABEL]
        self.launch = Launch(self.launch.name, [*run, self._image])
        super().start()
        self._answers = True

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
        if self._answers:
            self._engine("rm", "--force")
        elif self._name:
            # The engine may still be about to make it, although nobody waits for it any more.
            wait_until(lambda: self._engine("rm", "--force"), deadline_s=ENGINE_DEADLINE_S, step_s=0.5)

    def _engine(self, *words: str) -> bool:
        """One command about this container; whether the engine carried it out: one that is gone needs nothing."""
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                ["docker", *words, self._name],
                check=False,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=ENGINE_DEADLINE_S,
            )
            return done.returncode == 0
        return False
