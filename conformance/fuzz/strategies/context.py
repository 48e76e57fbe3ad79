"""The inputs of generation: the state, the open handles, and the operations that both clients declare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hypothesis import strategies as st

from conformance.driver.ops import Op, lifecycle
from conformance.fuzz.prediction import PredictedQueue, SequenceState
from conformance.fuzz.strategies.arguments import QUEUE_OPTIONS, WORKER_OPTIONS
from conformance.fuzz.strategies.vocabulary import PLAIN, Vocabulary
from conformance.steps.shapes import Caller, CallStep, Step, opening

OperationAndState: TypeAlias = tuple[str, str]
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
    "worker-r2": OTHER,
    "flow": "",
}
"""Every handle, with its queue: two producers and two workers on the main queue, one of each on the other.

`worker-r2` is for interop only.
"""

TOKENS = ("token-1", "token-2")
NO_SUCH_JOB = "no-such-job"

_PRODUCERS = {MAIN: st.sampled_from(("queue-1",) * 3 + ("queue-2",)), OTHER: st.just("queue-r")}
_WORKERS = {MAIN: st.sampled_from(("worker-1",) * 3 + ("worker-2",)), OTHER: st.just("worker-r")}
_WORKERS_BY_TURNS: dict[str, dict[Caller, str]] = {
    MAIN: {"client": "worker-1", "oracle": "worker-2"},
    OTHER: {"client": "worker-r", "oracle": "worker-r2"},
}
"""In interop a worker belongs to one client: it remembers the limits and delays that it has met, and decides by them
how it claims the next job."""
_QUEUES = st.sampled_from((MAIN,) * 5 + (OTHER,))
_TURNS: st.SearchStrategy[Caller] = st.sampled_from(("client", "oracle"))
_MOSTLY = st.sampled_from((True, True, False))
_PLAIN_MOSTLY = st.sampled_from((False, False, False, True))
_WORKER_OPTIONS, _QUEUE_OPTIONS = st.sampled_from(WORKER_OPTIONS[1:]), st.sampled_from(QUEUE_OPTIONS[1:])


@dataclass
class GenerationContext:
    """The context of strategies. `operations`: those that both clients declare."""

    operations: frozenset[str]
    frozen: bool = True
    exact_data: bool = True
    takes_turns: bool = False
    breaks_redis: bool = True
    cuts: bool = True
    """Whether the client's connection can be cut at a command."""
    keeps_last: bool = False
    """Whether the oracle knows the deduplication option `keepLastIfActive`."""
    state: SequenceState = field(default_factory=SequenceState)
    opened: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Options of the open handles by name."""
    now_ms: int = 0
    holders: dict[str, tuple[Caller, str]] = field(default_factory=dict)
    """In interop: who claimed a job last, and on which handle."""
    words: Vocabulary = PLAIN
    favourites: tuple[dict[str, Any], ...] = ()
    """Job options that many jobs of this sequence get, so that they meet."""
    untried: tuple[OperationAndState, ...] = ()
    """Not tried by the campaign before this round: within a round, equal choices are equal steps."""
    tried: set[OperationAndState] = field(default_factory=set)
    """Tried by this sequence."""
    aim: OperationAndState | None = None
    """Untried pairs with the state of this one are tried first."""

    def can(self, *operations: str) -> bool:
        """Whether both clients declare all of these."""
        return self.operations.issuperset(operations)

    def queue(self, name: str) -> PredictedQueue:
        """The state of one queue."""
        return self.state.queue(name)

    def goals(self) -> list[OperationAndState]:
        """Pairs of operation and state that are worth trying."""
        return [pair for pair in self.untried if pair not in self.tried]

    def free_ids(self) -> list[str]:
        """The ids of the vocabulary that no job has."""
        taken = {job for name in (MAIN, OTHER) for job in self.queue(name).jobs}
        return [job for job in self.words.job_ids if job not in taken]

    def one_of(self, draw: st.DrawFn, jobs: Sequence[str]) -> str:
        """One of the jobs, mostly one with an id of the vocabulary if those ids look like syntax."""
        odd = [job for job in jobs if self.words.named and job in self.words.job_ids]
        mostly: bool = draw(_MOSTLY)
        job: str = draw(st.sampled_from(odd if odd and mostly else jobs))
        return job

    def any_queue(self, draw: st.DrawFn) -> str:
        """A queue: mostly the main one."""
        name: str = draw(_QUEUES)
        return name

    def producer(self, draw: st.DrawFn, queue: str, op: Op[Any]) -> list[Step]:
        """A call on a Queue object of that queue, which is opened first if needed."""
        handle: str = draw(_PRODUCERS[queue])
        return self._on(draw, handle, "queue", op, self._turn(draw))

    def worker(self, draw: st.DrawFn, queue: str, op: Op[Any]) -> list[Step]:
        """The same on a manual worker.

        In interop, the client that claimed a job also finishes it: attempts and stack traces depend on the job as that
        client has read it, so they may differ.
        """
        holder = self.holders.get(getattr(op, "job", ""))
        if self.takes_turns and holder is not None and QUEUE_OF[holder[1]] == queue:
            return [CallStep(holder[1], op, holder[0])]
        if self.takes_turns:
            by: Caller = draw(_TURNS)
            return self._on(draw, _WORKERS_BY_TURNS[queue][by], "worker", op, by)
        handle: str = draw(_WORKERS[queue])
        return self._on(draw, handle, "worker", op, "client")

    def flow(self, draw: st.DrawFn, op: Op[Any]) -> list[Step]:
        """The same on the FlowProducer."""
        return self._on(draw, "flow", "flow", op, self._turn(draw))

    def _turn(self, draw: st.DrawFn) -> Caller:
        return draw(_TURNS) if self.takes_turns else "client"

    def _on(self, draw: st.DrawFn, handle: str, role: lifecycle.Role, op: Op[Any], by: Caller) -> list[Step]:
        call = CallStep(handle, op, by)
        if handle in self.opened:
            return [call]
        return [opening(handle, role, QUEUE_OF[handle], **self._new_options(draw, role)), call]

    def _new_options(self, draw: st.DrawFn, role: lifecycle.Role) -> dict[str, Any]:
        if role == "flow" or not draw(_PLAIN_MOSTLY):
            return {}
        options: dict[str, Any] = draw(_WORKER_OPTIONS if role == "worker" else _QUEUE_OPTIONS)
        return options
