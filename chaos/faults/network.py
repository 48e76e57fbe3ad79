"""Faults of the network between one client, or all, and Redis: made by the taps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from chaos.faults.registry import fault
from chaos.faults.workers import victim
from chaos.members import Member
from chaos.stage import Stage
from conformance.observe.tap.outlet import Link
from conformance.observe.tap.rules import BlackHole, Cut, Trigger


@contextmanager
def silent(stage: Stage, name: str, members: Sequence[Member]) -> Iterator[None]:
    """Nothing passes, nothing is lost: it arrives when the network is back."""
    with ExitStack() as stack:
        who = ", ".join(member.name for member in members)
        stack.enter_context(stage.window(name, who, resume_ms=stage.stall_ms))
        for member in members:
            stack.enter_context(member.tap.silence())
        yield


@fault("network.partition-worker", group="network", hold_ms=4500, times=1)
@contextmanager
def partition_worker(stage: Stage) -> Iterator[None]:
    """One worker hears nothing from Redis for longer than its locks live; what it sent arrives afterwards."""
    with silent(stage, "network.partition", [victim(stage).member]):
        yield


@fault("network.partition-producer", group="network", hold_ms=1500, times=1)
@contextmanager
def partition_producer(stage: Stage) -> Iterator[None]:
    """The producers hear nothing from Redis for a while."""
    with silent(stage, "network.partition", [each.member for each in stage.producers]):
        yield


@fault("network.partition-all", group="network", hold_ms=2500, times=1)
@contextmanager
def partition_all(stage: Stage) -> Iterator[None]:
    """Nobody hears anything from Redis for longer than locks live."""
    with silent(stage, "network.partition", stage.members):
        yield


@fault("network.brief-silence", group="network", hold_ms=400, times=4)
@contextmanager
def brief_silence(stage: Stage) -> Iterator[None]:
    """Trouble that is shorter than half a lock's life: no lock may be lost by it."""
    with silent(stage, "network.brief-silence", stage.members):
        yield


@fault("network.outage-worker", group="network", hold_ms=1500, times=2)
@contextmanager
def outage_worker(stage: Stage) -> Iterator[None]:
    """One worker's connections are reset, and new ones are refused for a while."""
    worker = victim(stage).member
    with stage.window("network.outage", worker.name, resume_ms=stage.stall_ms), worker.tap.outage():
        yield


@fault("network.outage-all", group="network", hold_ms=1500, times=1)
@contextmanager
def outage_all(stage: Stage) -> Iterator[None]:
    """Everybody's connections are reset, and new ones are refused for a while."""
    with ExitStack() as stack:
        stack.enter_context(stage.window("network.outage", "all", resume_ms=stage.stall_ms))
        for member in stage.members:
            stack.enter_context(member.tap.outage())
        yield


@fault("network.reset", group="network", hold_ms=100, times=5)
@contextmanager
def reset(stage: Stage) -> Iterator[None]:
    """All connections are reset (RST) at a moment of chance."""
    with stage.window("network.reset", "all", resume_ms=stage.stall_ms):
        for member in stage.members:
            member.tap.cut(reset=True)
        yield


@fault("network.truncate", group="network", hold_ms=800, times=2)
@contextmanager
def truncate(stage: Stage) -> Iterator[None]:
    """Replies break off in the middle, several times."""
    with ExitStack() as stack:
        stack.enter_context(stage.window("network.truncate", "all", resume_ms=stage.stall_ms))
        for member in stage.members:
            for call in (3, 9, 17):
                stack.enter_context(member.tap.when(Trigger(call=call, phase="mid-reply"), Cut()))
        yield


@fault("network.black-hole", group="network", hold_ms=3500, times=1)
@contextmanager
def black_hole(stage: Stage) -> Iterator[None]:
    """One connection of a worker swallows everything from its next finish on; the others go on."""
    worker = victim(stage).member
    trigger = Trigger(script="moveToFinished", phase="before-send")
    with (
        stage.window("network.black-hole", worker.name, resume_ms=stage.stall_ms),
        worker.tap.when(trigger, BlackHole()),
    ):
        yield


@contextmanager
def slow(stage: Stage, name: str, link: Link) -> Iterator[None]:
    """All connections are like this."""
    with ExitStack() as stack:
        stack.enter_context(stage.window(name, "all"))
        for member in stage.members:
            stack.enter_context(member.tap.link(link))
        yield


@fault("network.trickle", group="network", hold_ms=1500, times=1)
@contextmanager
def trickle(stage: Stage) -> Iterator[None]:
    """Everything arrives byte by byte."""
    with slow(stage, "network.trickle", Link(chunk_bytes=1)):
        yield


@fault("network.latency", group="network", hold_ms=2000, times=1)
@contextmanager
def latency(stage: Stage) -> Iterator[None]:
    """Every packet takes 100 ms longer."""
    with slow(stage, "network.latency", Link(latency_ms=100)):
        yield


@fault("network.narrow", group="network", hold_ms=2000, times=1)
@contextmanager
def narrow(stage: Stage) -> Iterator[None]:
    """Lines of 30 kB per second."""
    with slow(stage, "network.narrow", Link(bytes_per_s=30_000)):
        yield
