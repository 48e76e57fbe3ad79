"""The stand-in: the oracle does on the client's keys what the client cannot do, so that the rest can be judged."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from conformance.driver.connection import DriverConnection
from conformance.driver.errors import DriverBroken
from conformance.driver.messages import DriverEvent
from conformance.driver.ops import Op, job, lifecycle
from conformance.driver.ops.lifecycle import RedisAddress

Answer = TypeVar("Answer")

OPEN_WITHIN_MS = 15_000


@dataclass(frozen=True)
class PerformedOperations:
    """Names of the operations performed in a scenario: by the client itself (`own`), and by its stand-in."""

    own: set[str] = field(default_factory=set)
    stand_in: set[str] = field(default_factory=set)


class StandInBroken(Exception):
    """The driver of the stand-in broke. Not a finding about the client."""


class StandIn:
    """Twins of a participant's handles, opened in a driver of the oracle when first needed.

    Twins connect to Redis directly and not through the participant's tap, which records the client's traffic only.
    `living` returns a connection to a running driver of the oracle that has no other role at the time.
    """

    def __init__(self, living: Callable[[], DriverConnection], address: RedisAddress) -> None:
        self._living = living
        self._address = address
        self._twins: set[str] = set()
        self._opening = threading.Lock()

    def moved(self, address: RedisAddress) -> StandIn:
        """The same driver, connected to another Redis."""
        return StandIn(self._living, address)

    def has(self, handle: str) -> bool:
        """Whether the handle has a twin."""
        return handle in self._twins

    def open(self, handle: str, opened: lifecycle.Open, *, client_has_one: bool, now_ms: int | None) -> None:
        """Open the twin of a handle, unless it is open. `client_has_one`: the client has such an object itself."""
        # A twin queue must not write `meta`: whether the client wrote it is for the comparison to find out.
        silent = {"skipMetasUpdate": True} if client_has_one and opened.role == "queue" else {}
        twin = msgspec.structs.replace(opened, redis=self._address, options={**opened.options, **silent})
        with self._opening:
            if self.has(handle):
                return
            self._ask(twin, handle, OPEN_WITHIN_MS, now_ms)
            # After the call: a twin that failed to open is opened again with the next operation.
            self._twins.add(handle)

    def call(self, op: Op[Answer], handle: str, *, deadline_ms: int, now_ms: int | None) -> Answer:
        """Carry out an operation on the twin of a handle.

        Raises the same errors as `DriverConnection.call`, but StandInBroken instead of DriverBroken.
        """
        answer = self._ask(op, handle, deadline_ms, now_ms)
        if isinstance(op, lifecycle.Close):
            self._twins.discard(handle)
        return answer

    def wait_event(
        self, handle: str, *, names: set[str], deadline_ms: int, where: Callable[[DriverEvent], bool] | None
    ) -> DriverEvent:
        """See `DriverConnection.wait_event`."""
        try:
            return self._living().wait_event(handle, names=names, deadline_ms=deadline_ms, where=where)
        except DriverBroken as broken:
            raise StandInBroken(str(broken)) from broken

    def reset(self) -> None:
        """Close every twin."""
        # Without twins there may be no driver of the oracle yet, and none should be started for this.
        if self._twins:
            self._ask(lifecycle.Reset(), None, OPEN_WITHIN_MS, None)
            self._twins.clear()

    def _ask(self, op: Op[Answer], handle: str | None, deadline_ms: int, now_ms: int | None) -> Answer:
        try:
            return self._living().call(op, handle=handle, deadline_ms=deadline_ms, now_ms=now_ms)
        except DriverBroken as broken:
            raise StandInBroken(str(broken)) from broken


def handles_named_in(op: Op[Any]) -> list[str]:
    """The other handles that an operation refers to: they need twins as well."""
    return [op.events] if isinstance(op, job.WaitUntilFinished) else []
