"""The schedule of faults: one after the other, or several at a time, chosen by the seed."""

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
"""The resource that each group of faults controls. Two faults of the same resource would undo each other's healing."""
ORDER = ("servers", "network", "processes")
"""Groups that start and heal first: a process can only be started again if Redis answers."""


def schedule(
    faults: Sequence[Fault], system: ChaosSystem, *, rounds: int | None, until_ms: float, at_once: int
) -> Iterator[tuple[Fault, ...]]:
    """Every fault `times` times (or `rounds`), then random ones until the run's time is over; `at_once` overlap."""
    # Each fault is due several times before any comes at random: every fault must be seen in each run.
    due = [fault for fault in faults for _ in range(rounds or fault.times)]
    # Shuffled, so that other seeds try other sequences of faults.
    if len(faults) > 1:
        system.random.shuffle(due)
    while due:
        # In this order they also heal, because `injected` heals in the order of injection.
        yield _taken(due, at_once)
    while faults and system.recorder.now_ms() < until_ms:
        yield _taken(system.random.sample(list(faults), len(faults)), at_once)


def _taken(due: list[Fault], most: int) -> tuple[Fault, ...]:
    """Take the first due fault, and then those that can overlap with the ones taken."""
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
    """Inject the faults, each while the earlier ones are on, for the duration of the block.

    They are healed in the order of injection: a worker that was killed during a failover is started again when the
    failover is over. If one of them raises, the error is recorded and the others are still healed.
    """
    injected_faults: list[tuple[Fault, ExitStack]] = []
    try:
        for fault in faults:
            # One stack per fault, because they must be healed in another order than one stack would do it.
            stack = ExitStack()
            with troubles.noting(fault.name):
                stack.enter_context(fault.inject_into(system))
                # Only after its injection: a fault that could not be injected must not be healed.
                injected_faults.append((fault, stack))
        yield
    finally:
        # A failed healing is noted, so that the other faults are still healed.
        for fault, stack in injected_faults:
            with troubles.noting(fault.name):
                stack.close()
