"""Which faults come when: one after the other, or several at a time, by the seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from chaos.faults.base import ChaosSystem, Fault
from chaos.run_errors import RunErrors

DOMAINS = {
    "workers": "processes",
    "producers": "processes",
    "clocks": "processes",
    "network": "network",
    "redis": "servers",
    "evictions": "servers",
    "topology": "servers",
    "containers": "servers",
}
"""What a group of faults has in its hands. Two that hold the same thing would undo each other's healing."""
ORDER = ("servers", "network", "processes")
"""Who begins, and is healed, first: a process can be started again only where it reaches a Redis that answers."""


def schedule(
    faults: Sequence[Fault], system: ChaosSystem, *, rounds: int | None, until_ms: float, at_once: int
) -> Iterator[tuple[Fault, ...]]:
    """Every fault as often as it wants to be (or `rounds`), then, until that time, any; `at_once` of them overlap."""
    due = [fault for fault in faults for _ in range(rounds or fault.times)]
    if len(faults) > 1:
        system.random.shuffle(due)
    while due:
        yield _taken(due, at_once)
    while faults and system.recorder.now_ms() < until_ms:
        yield _taken(system.random.sample(list(faults), len(faults)), at_once)


def _taken(due: list[Fault], most: int) -> tuple[Fault, ...]:
    """Take the first fault that is due, and after it those that can overlap with what was taken."""
    taken: list[Fault] = []
    for fault in list(due):
        if len(taken) < most and _domain(fault) not in map(_domain, taken):
            taken.append(fault)
            due.remove(fault)
    return tuple(sorted(taken, key=lambda fault: ORDER.index(_domain(fault))))


def _domain(fault: Fault) -> str:
    return DOMAINS[fault.group]


@contextmanager
def injected(faults: Sequence[Fault], system: ChaosSystem, troubles: RunErrors) -> Iterator[None]:
    """The faults, the later ones while the earlier are on, for the duration of the block.

    They are healed in the order in which they began: a worker that was killed during a failover is started again when
    the failover is over, and not into it. What one of them breaks off at is noted, and the others are healed.
    """
    begun: list[tuple[Fault, ExitStack]] = []
    try:
        for fault in faults:
            stack = ExitStack()
            with troubles.noting(fault.name):
                stack.enter_context(fault.inject_into(system))
                begun.append((fault, stack))
        yield
    finally:
        for fault, stack in begun:
            with troubles.noting(fault.name):
                stack.close()
