"""Options and state of a worker, and how it bears errors (upstream `src/classes/worker.ts`)."""

from __future__ import annotations

import asyncio
import contextlib
import math
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from conformance.protocol.keys import NAMED_WORKER_INFIX
from conformance.reference_impl.clock import Clock
from conformance.reference_impl.connection.connection import Connection, is_connection_problem
from conformance.reference_impl.encoding.js_json import is_number
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.policy import DEFAULT
from conformance.reference_impl.queues.base import QueueBase
from conformance.reference_impl.scripts.runner import ScriptTexts

Outcome = TypeVar("Outcome")

DEFAULT_OPTIONS: Final[Mapping[str, Any]] = {
    "drainDelay": 5,
    "concurrency": 1,
    "lockDuration": 30_000,
    "maxStalledCount": 1,
    "stalledInterval": 30_000,
    "autorun": True,
    "runRetryDelay": 15_000,
}
"""`drainDelay` is in seconds, everything else in ms."""


class WorkerBase(QueueBase):
    """What the parts of a worker share.

    Raises InvalidArgument, with Node's texts, for options out of range.
    """

    def __init__(
        self,
        name: str,
        opts: Mapping[str, Any] | None = None,
        *,
        scripts: ScriptTexts | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name, {**DEFAULT_OPTIONS, **(opts or {})}, scripts=scripts, clock=clock)
        _validate(self._opts)
        self.concurrency = self._opts["concurrency"]
        self._opts["lockRenewTime"] = self._opts.get("lockRenewTime") or self._opts["lockDuration"] / 2
        self.id = str(uuid.uuid4())
        """The first half of all lock tokens."""
        self.paused = False
        self.close_called = asyncio.Event()
        self.blocking_connection = Connection(self.address, name=self._connection_name(), watch=self.link)

    @property
    def concurrency(self) -> int:
        """How many jobs run at a time."""
        return self._concurrency

    @concurrency.setter
    def concurrency(self, concurrency: int) -> None:
        if not is_number(concurrency) or concurrency < 1 or not math.isfinite(concurrency):
            raise InvalidArgument("concurrency must be a finite number greater than 0")
        self._concurrency = concurrency

    @property
    def is_open(self) -> bool:
        """Whether the worker takes new jobs."""
        return not (self.closing or self.paused)

    async def waitUntilReady(self) -> None:
        """Both connections are open, and `getWorkers` sees this worker."""
        await super().waitUntilReady()
        await self.blocking_connection.ready()

    def _connection_name(self) -> str | None:
        """Where `getWorkers` finds the worker; BullMQ 5.62.0 names no connection to a cluster."""
        if self.address.mode == "cluster":
            return None
        own_name = self._opts.get("name")
        return self.client_name(f"{NAMED_WORKER_INFIX}{own_name}" if own_name else "")

    async def persist(self, act: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Repeat an act while Redis cannot be reached.

        Raises whatever else goes wrong, after telling the `error` listeners; when closing, also the lost connection.
        """
        while True:
            try:
                return await act()
            except Exception as error:
                if not is_connection_problem(error):
                    self.report(error)
                    raise
                if self.closing:
                    raise
                await self.rest(self.policy.reconnect.first_s)

    async def rest(self, seconds: float) -> None:
        """Sleep at least so long, and until the next attempt to reach Redis is due, but not longer than until close."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.close_called.wait(), max(seconds, self.link.pause_s))

    def report(self, error: BaseException) -> None:
        """Tell the `error` listeners, unless the worker is on its way out."""
        if self.is_open:
            self.emit("error", error)


def reconnect_delay_s(failures: int) -> float:
    """Seconds to wait after so many failed attempts to reach Redis, by the default policy."""
    return DEFAULT.reconnect.delay_s(failures)


def _validate(opts: Mapping[str, Any]) -> None:
    if not is_number(opts["maxStalledCount"]) or opts["maxStalledCount"] < 0:
        raise InvalidArgument("maxStalledCount must be greater or equal than 0")
    if is_number(opts.get("maxStartedAttempts")) and opts["maxStartedAttempts"] < 0:
        raise InvalidArgument("maxStartedAttempts must be greater or equal than 0")
    if not is_number(opts["stalledInterval"]) or opts["stalledInterval"] <= 0:
        raise InvalidArgument("stalledInterval must be greater than 0")
    if not is_number(opts["drainDelay"]) or opts["drainDelay"] <= 0:
        raise InvalidArgument("drainDelay must be greater than 0")
