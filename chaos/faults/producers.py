"""Faults of producer processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from chaos.faults.registry import fault
from chaos.stage import Stage
from chaos.workload import Mix
from conformance.observe.tap.recording import NotSeen
from conformance.observe.tap.rules import Hold, Trigger

REACH_MS = 3000


@fault("producer.kill", group="producers", hold_ms=200, times=3)
@contextmanager
def kill(stage: Stage) -> Iterator[None]:
    """A producer dies at a moment of chance, and another takes its place."""
    producer = stage.random.choice(stage.producers)
    with stage.window("producer.kill", producer.member.name):
        producer.member.kill()
        try:
            yield
        finally:
            producer.member.start()


@contextmanager
def killed_at(stage: Stage, name: str, trigger: Trigger) -> Iterator[None]:
    """Kill a producer exactly there."""
    producer = stage.random.choice(stage.producers)
    with stage.window(name, producer.member.name):
        with producer.member.tap.when(trigger, Hold()) as barrier:
            with suppress(NotSeen):  # nothing of the kind is asked for: dying in between is a fault too
                barrier.reached.wait(REACH_MS)
            producer.member.kill()
        try:
            yield
        finally:
            producer.member.start()


@fault("producer.kill-in-bulk", group="producers", hold_ms=200, times=2, mix=Mix(weights={"bulk": 5, "plain": 1}))
@contextmanager
def kill_in_bulk(stage: Stage) -> Iterator[None]:
    """A producer dies inside addBulk: some of its jobs are there, and nobody knows which."""
    where = Trigger(phase="after-execute", where=lambda record: (record.script or "").startswith("add"), call=3)
    with killed_at(stage, "producer.kill-in-bulk", where):
        yield


@fault("producer.kill-in-flow", group="producers", hold_ms=200, times=2, mix=Mix(weights={"flow": 5, "plain": 1}))
@contextmanager
def kill_in_flow(stage: Stage) -> Iterator[None]:
    """A producer dies inside a flow, before its EXEC: nothing of the flow may be there."""
    with killed_at(stage, "producer.kill-in-flow", Trigger(command="EXEC", phase="before-send")):
        yield


@fault("producer.kill-after-flow", group="producers", hold_ms=200, times=2, mix=Mix(weights={"flow": 5, "plain": 1}))
@contextmanager
def kill_after_flow(stage: Stage) -> Iterator[None]:
    """A producer dies when Redis has stored its flow, and it does not know yet."""
    with killed_at(stage, "producer.kill-after-flow", Trigger(command="EXEC", phase="after-execute")):
        yield
