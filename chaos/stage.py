"""Everything that a fault may touch, and the window in which it is recorded."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from chaos.members import Member
from chaos.producers import Producer
from chaos.recorder import Recorder
from chaos.topologies.base import RedisServer, Topology
from chaos.workers import WorkerMember
from conformance.checkers.histories.lines import FaultBegan, FaultEnded

EVERYTHING = 0.0
"""The start of the run: all that was written since then may be gone."""


@dataclass
class Window:
    """An open fault, which sets these when it knows them: see `FaultEnded`. 0 is everything."""

    lost_since_ms: float | None = None
    torn: bool = False


@dataclass
class Stage:
    """One run's Redis and processes. `stall_ms`: how long a dead worker's job may take to be recovered."""

    topology: Topology
    producers: Sequence[Producer]
    workers: Sequence[WorkerMember]
    recorder: Recorder
    prefix: str
    stall_ms: float
    random: random.Random
    aborted: threading.Event = field(default_factory=threading.Event)

    @property
    def members(self) -> list[Member]:
        """All processes of the client."""
        return [*(each.member for each in self.producers), *(each.member for each in self.workers)]

    @property
    def primary(self) -> RedisServer:
        """The server that has the data."""
        return self.topology.primary()

    def pause(self, ms: float) -> None:
        """Let the world go on for so long; less when the run is aborted."""
        self.aborted.wait(ms / 1000)

    @contextmanager
    def window(
        self, fault: str, target: str = "", *, skew_ms: float = 0, resume_ms: float | None = None
    ) -> Iterator[Window]:
        """Record that a fault is on for the duration of the block. Healing belongs inside of it."""
        number = self.recorder.number()
        began = FaultBegan(
            at_ms=self.recorder.now_ms(),
            number=number,
            fault=fault,
            target=target,
            skew_ms=skew_ms,
            resume_ms=resume_ms,
        )
        self.recorder.put(began)
        window = Window()
        try:
            yield window
        finally:
            self.recorder.put(
                FaultEnded(
                    at_ms=self.recorder.now_ms(),
                    number=number,
                    fault=fault,
                    lost_since_ms=window.lost_since_ms,
                    torn=window.torn,
                )
            )
