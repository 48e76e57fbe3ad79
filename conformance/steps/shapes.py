"""Steps as values: calls, steps of the clock, faults, counters; and what only a run with any answers can decide."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from conformance.driver.ops import Op, flow, lifecycle, queue
from conformance.driver.ops.lifecycle import RedisAddress

Caller: TypeAlias = Literal["client", "oracle"]
Cut: TypeAlias = Literal["", "before-send", "after-execute", "mid-reply"]
FaultName: TypeAlias = Literal["delete-lock", "wake", "delete-stalled-check", "script-flush", "disconnect"]
CounterName: TypeAlias = Literal["id", "pc", "atm"]
Ending: TypeAlias = Literal["complete", "fail"]

NOWHERE = RedisAddress(mode="standalone", nodes=[])
"""The address in the `open` of a step: each participant fills in its own, and its own prefix."""

PREFIX = "<prefix>"
"""Replaces the participant's own prefix in a step."""

HELD = "@"
"""Before the name of a worker: replaced in a step by the id of the job that it holds."""


@dataclass(frozen=True)
class CallStep:
    """One operation on one handle.

    `by`: in interop, which of the two clients makes the call on the shared queue; `oracle` is the client's partner.
    `cut`: the client's connection breaks at the call's script in this phase (docs/reference/tap.md); empty: no cut.
    """

    handle: str
    op: Op[Any]
    by: Caller = "client"
    cut: Cut = ""

    @property
    def name(self) -> str:
        """The protocol's name of the operation."""
        return type(self.op).op

    @property
    def opens(self) -> bool:
        """Whether this only makes a client object, which changes no job."""
        return isinstance(self.op, lifecycle.Open)


@dataclass(frozen=True)
class ClockStep:
    """Time passes: the clocks of both clients, and the times to live in Redis (ms)."""

    clock_ms: int

    @property
    def name(self) -> str:
        """Its name in coverage and findings."""
        return "clock"


@dataclass(frozen=True)
class FaultStep:
    """A disturbance of Redis or of the connections, the same for both systems.

    `delete-lock`: the lock of `job` expires. `wake`: an idle worker wakes up, which takes the markers of `queue`.
    `delete-stalled-check`: the time in which `queue` allows one stalled check is over. `script-flush`: Redis forgets
    all scripts. `disconnect`: the connections of both clients are cut while nothing is under way.
    """

    fault: FaultName
    queue: str = ""
    job: str = ""

    @property
    def name(self) -> str:
        """Its name in coverage and findings."""
        return f"fault.{self.fault}"

    @property
    def lost_key(self) -> str:
        """The key of the queue that is gone afterwards; empty if it is none."""
        keys = {"delete-lock": f"{self.job}:lock", "wake": "marker", "delete-stalled-check": "stalled-check"}
        return keys.get(self.fault, "")


@dataclass(frozen=True)
class CounterStep:
    """A counter is as high as after years of use, in both systems.

    `id`: the number that the queue gave last; `pc`: the same for its priorities; `atm`: the attempts of `job`, if there
    is such a job.
    """

    counter: CounterName
    queue: str
    value: int
    job: str = ""

    @property
    def name(self) -> str:
        """Its name in coverage and findings."""
        return f"counter.{self.counter}"


@dataclass(frozen=True)
class DrainStep:
    """These workers take and end in turns what they get, while minutes pass."""

    drain: tuple[str, ...]
    outcome: Ending = "complete"


@dataclass(frozen=True)
class WaitStep:
    """Wait until this number of jobs are finished, or until the event reader `on` delivers `event`."""

    finished: int = 0
    event: str = ""
    on: str = ""


OutsideStep: TypeAlias = ClockStep | FaultStep | CounterStep
"""A step that no client takes."""

Step: TypeAlias = CallStep | OutsideStep
"""A step whose effect is known before it is taken."""

FeatureStep: TypeAlias = Step | DrainStep | WaitStep
"""Also one that depends on what clients do."""


def opening(
    handle: str, role: lifecycle.Role, queue: str, processor: lifecycle.Processor = "manual", **options: Any
) -> CallStep:
    """The step that makes a client object; a worker is manual unless its loop has a `processor`."""
    chosen = processor if role == "worker" else None
    op = lifecycle.Open(role=role, queue=queue, prefix="", redis=NOWHERE, processor=chosen, options=options)
    return CallStep(handle, op)


def calls_of(steps: Iterable[Step]) -> int:
    """How many calls there are; making a client object is none."""
    return sum(isinstance(step, CallStep) and not step.opens for step in steps)


def addressed(op: Op[Any], prefix: str, address: RedisAddress) -> Op[Any]:
    """The operation as one participant sends it: with its own address, and its own prefix wherever a step names one."""
    if isinstance(op, lifecycle.Open):
        return msgspec.structs.replace(op, prefix=prefix, redis=address)
    if isinstance(op, queue.Add) and "parent" in op.opts:
        return msgspec.structs.replace(op, opts=_with_prefix(op.opts, prefix))
    if isinstance(op, queue.AddBulk):
        jobs = [msgspec.structs.replace(job, opts=_with_prefix(job.opts, prefix)) for job in op.jobs]
        return msgspec.structs.replace(op, jobs=jobs)
    if isinstance(op, flow.AddFlow):
        root = msgspec.structs.replace(op.flow, opts=_with_prefix(op.flow.opts, prefix))
        return msgspec.structs.replace(op, flow=root)
    return op


def _with_prefix(opts: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The option `parent` names its queue by the full name, prefix included."""
    parent = opts.get("parent")
    if not isinstance(parent, dict):
        return opts
    return {**opts, "parent": {**parent, "queue": str(parent.get("queue", "")).replace(PREFIX, prefix)}}
