"""Faults of the network between one client, or all, and Redis: made by the taps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from random import Random

from chaos.faults.base import ChaosSystem, fault
from chaos.faults.processes import REACH_MS, victim
from chaos.processes import ClientProcess
from chaos.workload import MAIN, WorkloadMix
from conformance.observe.tap.recording import CommandRecord, NotSeen
from conformance.observe.tap.rules import BlackHole, Cut, Trigger
from conformance.observe.tap.socket_writer import RedisLink, SilentDirection

SINGLE_JOBS = WorkloadMix(weights={"plain": 1}, opening=())
"""A worker that is never idle asks for its next job by the end of the last, and waits for no marker."""


@contextmanager
def _silent(system: ChaosSystem, processes: Sequence[ClientProcess]) -> Iterator[None]:
    """All packets are held back and none is lost: they arrive when the network is back."""
    with ExitStack() as stack:
        stack.enter_context(system.window(victims=processes, resume_ms=system.stall_ms))
        for process in processes:
            # Inside the window: it starts before the first packet is held and ends after the last one is let through.
            stack.enter_context(process.tap.silence())
        yield


# Longer than two lock durations of 2 s, so that every lock of the worker has expired.
@fault("network.partition-worker", group="network", hold_ms=4500, times=1)
@contextmanager
def partition_worker(system: ChaosSystem) -> Iterator[None]:
    """One worker receives nothing from Redis for longer than its locks live; its own packets arrive afterwards."""
    with _silent(system, [victim(system)]):
        yield


@fault("network.partition-producer", group="network", hold_ms=1500, times=1)
@contextmanager
def partition_producer(system: ChaosSystem) -> Iterator[None]:
    """The producers receive nothing from Redis for a while."""
    with _silent(system, [producer.process for producer in system.producers]):
        yield


@fault("network.partition-all", group="network", hold_ms=2500, times=1)
@contextmanager
def partition_all(system: ChaosSystem) -> Iterator[None]:
    """No client receives anything from Redis for longer than locks live."""
    with _silent(system, system.processes):
        yield


@contextmanager
def _one_way(system: ChaosSystem, direction: SilentDirection) -> Iterator[None]:
    """The packets of one worker get through in one direction only."""
    worker = victim(system)
    target = f"{worker.name} {direction}"
    with system.window(target, victims=[worker], resume_ms=system.stall_ms), worker.tap.silence(direction):
        yield


@fault("network.deaf-worker", group="network", hold_ms=4500, times=1)
@contextmanager
def deaf_worker(system: ChaosSystem) -> Iterator[None]:
    """Redis executes the commands of a worker, but no reply reaches the worker for longer than its locks live."""
    with _one_way(system, "to-client"):
        yield


@fault("network.unheard-worker", group="network", hold_ms=4500, times=1)
@contextmanager
def unheard_worker(system: ChaosSystem) -> Iterator[None]:
    """The commands of a worker do not reach Redis for longer than its locks live; replies would still arrive."""
    with _one_way(system, "to-redis"):
        yield


# Below half a lock's life, in which every lock is renewed at least once.
@fault("network.brief-silence", group="network", hold_ms=400, times=4)
@contextmanager
def brief_silence(system: ChaosSystem) -> Iterator[None]:
    """The network fails for less than half the life of a lock: no lock may be lost."""
    with _silent(system, system.processes):
        yield


@fault("network.outage-worker", group="network", hold_ms=1500, times=2)
@contextmanager
def outage_worker(system: ChaosSystem) -> Iterator[None]:
    """One worker's connections are reset, and new ones are refused for a while."""
    worker = victim(system)
    with system.window(victims=[worker], resume_ms=system.stall_ms), worker.tap.outage():
        yield


@fault("network.outage-all", group="network", hold_ms=1500, times=1)
@contextmanager
def outage_all(system: ChaosSystem) -> Iterator[None]:
    """The connections of all clients are reset, and new ones are refused for a while."""
    with ExitStack() as stack:
        stack.enter_context(system.window("all", resume_ms=system.stall_ms))
        for process in system.processes:
            stack.enter_context(process.tap.outage())
        yield


@fault("network.reset", group="network", hold_ms=100, times=5)
@contextmanager
def reset(system: ChaosSystem) -> Iterator[None]:
    """All connections are reset (RST) at a random moment."""
    with system.window("all", resume_ms=system.stall_ms):
        for process in system.processes:
            process.tap.cut(reset=True)
        yield


@fault("network.truncate", group="network", hold_ms=800, times=2)
@contextmanager
def truncate(system: ChaosSystem) -> Iterator[None]:
    """Replies are cut off in the middle, several times."""
    with ExitStack() as stack:
        stack.enter_context(system.window("all", resume_ms=system.stall_ms))
        for process in system.processes:
            # Three different calls, so that a client that recovers from one is cut again.
            for call in (3, 9, 17):
                stack.enter_context(process.tap.when(Trigger(call=call, phase="mid-reply"), Cut()))
        yield


@fault("network.black-hole", group="network", hold_ms=3500, times=1)
@contextmanager
def black_hole(system: ChaosSystem) -> Iterator[None]:
    """One connection of a worker swallows everything from its next finish on; the others go on."""
    worker = victim(system)
    # The next finish, because a lost finish is what leaves a job locked.
    trigger = Trigger(script="moveToFinished", phase="before-send")
    with (
        system.window(victims=[worker], resume_ms=system.stall_ms),
        worker.tap.when(trigger, BlackHole()),
    ):
        yield


# Longer than a wait with a deadline takes on a busy machine, where CPU time that a worker had to wait for is added.
@fault("network.half-open", group="network", hold_ms=15_000, times=1, mix=SINGLE_JOBS)
@contextmanager
def half_open(system: ChaosSystem) -> Iterator[None]:
    """The connection on which a worker waits for a marker swallows everything, and is never closed; the others work.

    The window ends as soon as that is so: from then on the worker must help itself, by a deadline of its wait.
    """
    worker = victim(system)
    trigger = Trigger(command="BZPOPMIN", phase="before-send", where=_on_main)
    with worker.tap.when(trigger, BlackHole()) as hole:
        with system.window(victims=[worker], resume_ms=system.stall_ms), suppress(NotSeen):
            hole.reached.wait(REACH_MS)
        yield


def _on_main(record: CommandRecord) -> bool:
    return any(key.endswith(f":{MAIN}:marker".encode()) for key in record.keys)


def random_of(system: ChaosSystem) -> Random:
    """A random generator for packets, from the seed: the tap's thread must not share the run's own."""
    return Random(system.random.random())


@contextmanager
def _slow(system: ChaosSystem, link: RedisLink) -> Iterator[None]:
    """Apply this to all connections."""
    with ExitStack() as stack:
        stack.enter_context(system.window("all"))
        for process in system.processes:
            stack.enter_context(process.tap.link(link))
        yield


@fault("network.trickle", group="network", hold_ms=1500, times=1)
@contextmanager
def trickle(system: ChaosSystem) -> Iterator[None]:
    """Everything arrives byte by byte."""
    with _slow(system, RedisLink(chunk_bytes=1)):
        yield


@fault("network.latency", group="network", hold_ms=2000, times=1)
@contextmanager
def latency(system: ChaosSystem) -> Iterator[None]:
    """Every packet takes 100 ms longer."""
    with _slow(system, RedisLink(latency_ms=100)):
        yield


@fault("network.jitter", group="network", hold_ms=2500, times=1)
@contextmanager
def jitter(system: ChaosSystem) -> Iterator[None]:
    """Packets take 10 ms longer and, by chance, 40 ms more on average, some of them several hundred."""
    with _slow(system, RedisLink(latency_ms=10, jitter_ms=40, random=random_of(system))):
        yield


@fault("network.loss", group="network", hold_ms=2500, times=1)
@contextmanager
def loss(system: ChaosSystem) -> Iterator[None]:
    """A tenth of all packets is lost and sent again after 200 ms, as TCP does; later packets wait for them."""
    with _slow(system, RedisLink(loss=0.1, random=random_of(system))):
        yield


@fault("network.narrow", group="network", hold_ms=2000, times=1)
@contextmanager
def narrow(system: ChaosSystem) -> Iterator[None]:
    """Lines of 30 kB per second."""
    with _slow(system, RedisLink(bytes_per_s=30_000)):
        yield
