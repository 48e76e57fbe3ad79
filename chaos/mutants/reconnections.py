"""The trigger of many defects: this process has lost a connection, and has connected again."""

from __future__ import annotations

import math
import time
from typing import Any
from weakref import WeakSet

from conformance.mutants.damage import Damage, Function
from conformance.reference_impl.connection.opening import Entrance


class Reconnections:
    """Knows whether any connection of this process has opened a second socket."""

    def __init__(self, damage: Damage) -> None:
        self.happened = False
        self._last_s = -math.inf
        self._connected: WeakSet[Entrance] = WeakSet()
        damage.around(Entrance, "open", self._noticing)

    @property
    def ago_s(self) -> float:
        """How long ago the last one was (s); infinite if there was none."""
        return time.monotonic() - self._last_s

    def _noticing(self, open_wire: Function) -> Function:
        async def open_and_note(entrance: Entrance) -> Any:
            wire = await open_wire(entrance)
            if entrance in self._connected:
                self.happened, self._last_s = True, time.monotonic()
            self._connected.add(entrance)
            return wire

        return open_and_note
