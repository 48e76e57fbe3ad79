"""The trigger of many defects: this process has lost a connection, and has connected again."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from conformance.mutants.damage import Damage, Function
from conformance.reference_impl.connection.opening import Entrance


class Reconnections:
    """Knows whether any connection of this process has opened a second socket."""

    def __init__(self, damage: Damage) -> None:
        self.happened = False
        self._connected: WeakSet[Entrance] = WeakSet()
        damage.around(Entrance, "open", self._noticing)

    def _noticing(self, open_wire: Function) -> Function:
        async def open_and_note(entrance: Entrance) -> Any:
            wire = await open_wire(entrance)
            self.happened = self.happened or entrance in self._connected
            self._connected.add(entrance)
            return wire

        return open_and_note
