"""Every script that a client calls, broken at each of its three points: exhaustive, and the same every time.

At a point either the connection is cut, or the client's process is killed. Then it starts (or connects) again, whatever
nobody knows the end of is asked for once more (jobs are not: they might be there twice then), the queue is drained, and
all invariants are checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

from chaos.members import Member
from chaos.redis_process import RedisProcess
from chaos.segments import SEGMENTS, Segment
from chaos.topologies.base import Topology
from conformance.checkers.histories.base import Judgement
from conformance.checkers.histories.history import History
from conformance.environment.clients import Launch
from conformance.observe.tap.rules import PHASES, Phase
from conformance.observe.tap.tap import Tap
from conformance.servers.binary import Binary
from conformance.upstream.manifest import load_manifest

Hurt: TypeAlias = Literal["cut", "kill"]


@dataclass(frozen=True, kw_only=True)
class CrashPoint:
    """One cell of the table. `segment`: the piece of work during which it happens."""

    segment: str
    script: str
    point: Phase
    hurt: Hurt

    def __str__(self) -> str:
        """As in the table."""
        return f"{self.script} {self.point} {self.hurt}"


@dataclass(frozen=True, kw_only=True)
class CrashResult:
    """What came of it. `reached`: whether the client got there at all."""

    where: CrashPoint
    reached: bool
    judgements: tuple[Judgement, ...]
    history: History

    @property
    def failed(self) -> list[Judgement]:
        """The judgements that speak against the client."""
        return [judgement for judgement in self.judgements if judgement.verdict == "fail"]

    @property
    def findings(self) -> list[str]:
        """In words."""
        return [
            f"{judgement.check}: {found.job} {found.message}"
            for judgement in self.failed
            for found in judgement.findings
        ]


def points_of(segment: Segment, *, kill: bool = True) -> Iterator[CrashPoint]:
    """The crash points of a segment."""
    hurts: tuple[Hurt, ...] = ("cut", "kill") if kill and segment.killed else ("cut",)
    for script in segment.scripts:
        for point in PHASES:
            for hurt in hurts:
                yield CrashPoint(segment=segment.name, script=script, point=point, hurt=hurt)


def segment_named(name: str) -> Segment:
    """A segment by its name. Raises StopIteration for one that does not exist."""
    return next(each for each in SEGMENTS if each.name == name)


class CrashBench:
    """Redis, a tap and a driver that many crash points share, each on a prefix of its own."""

    def __init__(self, launch: Launch, binary: Binary, texts: Mapping[str, str] | None = None) -> None:
        self._stack = ExitStack()
        self._launch = launch
        self._server = RedisProcess(binary)
        self._texts = texts or {}
        self._member: Member | None = None

    def __enter__(self) -> Self:
        """Start Redis; the driver starts with the first point."""
        self._stack.callback(self._server.close)
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        self._stack.close()

    @property
    def topology(self) -> Topology:
        """The one server."""
        return Topology("single", [self._server], [self._server.node], lambda: self._server)

    @property
    def member(self) -> Member:
        """The client's process behind its tap, alive or not."""
        if self._member is None:
            names = {entry.sha1: name for name, entry in load_manifest().scripts.items()}
            tap = self._stack.enter_context(Tap(self._server.node, scripts=names, texts=self._texts))
            self._member = Member("client", self._launch, tap, mode="single", seed=0)
            self._stack.callback(self._member.close)
        return self._member
