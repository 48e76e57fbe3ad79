"""Everything that generation may look at: the world, the handles that are open, and what both clients declare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hypothesis import strategies as st

from conformance.driver.ops import Op, lifecycle
from conformance.fuzz.steps import Caller, CallStep, Step, opening
from conformance.fuzz.strategies.options import QUEUE_OPTIONS, WORKER_OPTIONS
from conformance.fuzz.world import QueueWorld, World

Draw: TypeAlias = st.DrawFn
Pair: TypeAlias = tuple[str, str]
"""An operation, and the state of the job (or queue) that it is called on."""

MAIN, OTHER = "q", "r"
"""The queues of a sequence: most happens in the first; children of flows may live in the second."""

QUEUE_OF = {
    "queue-1": MAIN,
    "queue-2": MAIN,
    "queue-r": OTHER,
    "worker-1": MAIN,
    "worker-2": MAIN,
    "worker-r": OTHER,
    "flow": "",
}
"""Every handle, with its queue: two producers and two workers on the main queue, one of each on the other."""

TOKENS = ("token-1", "token-2")

_PRODUCERS = {MAIN: st.sampled_from(("queue-1",) * 3 + ("queue-2",)), OTHER: st.just("queue-r")}
_WORKERS = {MAIN: st.sampled_from(("worker-1",) * 3 + ("worker-2",)), OTHER: st.just("worker-r")}
_QUEUES = st.sampled_from((MAIN,) * 5 + (OTHER,))
_TURNS: st.SearchStrategy[Caller] = st.sampled_from(("client", "oracle"))
_PLAIN_MOSTLY = st.sampled_from((False, False, False, True))
_WORKER_OPTIONS, _QUEUE_OPTIONS = st.sampled_from(WORKER_OPTIONS[1:]), st.sampled_from(QUEUE_OPTIONS[1:])


@dataclass
class Scene:
    """What strategies are given. `operations`: what both clients declare."""

    operations: frozenset[str]
    frozen: bool = True
    exact_data: bool = True
    takes_turns: bool = False
    breaks_redis: bool = True
    cuts: bool = True
    """Whether the client's connection can be cut at a command."""
    world: World = field(default_factory=World)
    opened: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Options of the open handles by name."""
    now_ms: int = 0
    holders: dict[str, tuple[Caller, str]] = field(default_factory=dict)
    """In interop: who claimed a job last, and on which handle."""
    favourites: tuple[dict[str, Any], ...] = ()
    """Job options that come again and again in this sequence, so that they meet."""
    untried: tuple[Pair, ...] = ()
    """What the run has not tried, as of the beginning of its round: within a round, equal choices are equal steps."""
    tried: set[Pair] = field(default_factory=set)
    """What this sequence has tried."""
    aim: Pair | None = None
    """Of the untried pairs, those about this one's state are tried first."""

    def can(self, *operations: str) -> bool:
        """Whether both clients declare all of these."""
        return self.operations.issuperset(operations)

    def queue(self, name: str) -> QueueWorld:
        """The state of one queue."""
        return self.world.queue(name)

    def goals(self) -> list[Pair]:
        """Pairs of operation and state that are worth trying."""
        return [pair for pair in self.untried if pair not in self.tried]

    def any_queue(self, draw: Draw) -> str:
        """A queue: mostly the main one."""
        name: str = draw(_QUEUES)
        return name

    def producer(self, draw: Draw, queue: str, op: Op[Any]) -> list[Step]:
        """A call on a Queue object of that queue, which is made if it is not there yet."""
        handle: str = draw(_PRODUCERS[queue])
        return self._on(draw, handle, "queue", op)

    def worker(self, draw: Draw, queue: str, op: Op[Any], handle: str = "") -> list[Step]:
        """The same on a manual worker.

        In interop, a job is finished by who has claimed it: the job as a client remembers it from its claim decides
        about attempts and stack traces, and that differs by right.
        """
        holder = self.holders.get(getattr(op, "job", ""))
        if self.takes_turns and holder is not None and QUEUE_OF[holder[1]] == queue:
            return [CallStep(holder[1], op, holder[0])]
        name: str = handle or draw(_WORKERS[queue])
        return self._on(draw, name, "worker", op)

    def flow(self, draw: Draw, op: Op[Any]) -> list[Step]:
        """The same on the FlowProducer."""
        return self._on(draw, "flow", "flow", op)

    def options_of(self, handle: str) -> dict[str, Any]:
        """What a handle was opened with; empty for one that is not open."""
        return self.opened.get(handle, {})

    def _on(self, draw: Draw, handle: str, role: lifecycle.Role, op: Op[Any]) -> list[Step]:
        call = CallStep(handle, op, draw(_TURNS) if self.takes_turns else "client")
        if handle in self.opened:
            return [call]
        return [opening(handle, role, QUEUE_OF[handle], **self._new_options(draw, role)), call]

    def _new_options(self, draw: Draw, role: lifecycle.Role) -> dict[str, Any]:
        if role == "flow" or not draw(_PLAIN_MOSTLY):
            return {}
        options: dict[str, Any] = draw(_WORKER_OPTIONS if role == "worker" else _QUEUE_OPTIONS)
        return options


def pick(draw: Draw, choices: Sequence[str]) -> str:
    """One of them; the earliest is the simplest."""
    return choices[draw(st.integers(0, len(choices) - 1))] if len(choices) > 1 else choices[0]
