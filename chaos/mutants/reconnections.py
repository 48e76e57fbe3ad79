"""What many defects hang on: this process has lost a connection, and has connected again."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from conformance.mutants.damage import Damage, Function
from conformance.reference_impl.connection.single_socket import SingleSocket


class Reconnections:
    """Knows whether any connection of this process has opened a second socket."""

    def __init__(self, damage: Damage) -> None:
        self.happened = False
        self._connected: WeakSet[SingleSocket] = WeakSet()
        damage.around(SingleSocket, "_connect", self._noticing)

    def _noticing(self, connect: Function) -> Function:
        async def connect_and_note(socket: SingleSocket) -> Any:
            wire = await connect(socket)
            self.happened = self.happened or socket in self._connected
            self._connected.add(socket)
            return wire

        return connect_and_note
