"""The steps of a sequence: calls, steps of the clock, faults, counters; one step is one line of a replay file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from conformance.driver.ops import REGISTRY, Op, flow, lifecycle, queue
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.observe.tap.rules import TriggerPhase

Caller: TypeAlias = Literal["client", "oracle"]
Cut: TypeAlias = TriggerPhase | Literal[""]
FaultName: TypeAlias = Literal["delete-lock", "wake", "script-flush", "disconnect"]
CounterName: TypeAlias = Literal["id", "pc", "atm"]

NOWHERE = RedisAddress(mode="standalone", nodes=[])
"""The address in the `open` of a step: each participant fills in its own, and its own prefix."""

PREFIX = "<prefix>"
"""Stands in a step for the participant's own prefix."""

OWN_ARGUMENTS = frozenset({"prefix", "redis"})
"""Arguments of `open` that every participant has for itself."""


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

    ms: int

    @property
    def name(self) -> str:
        """Its name in coverage and findings."""
        return "clock"


@dataclass(frozen=True)
class FaultStep:
    """A disturbance of Redis or of the connections, the same for both systems.

    `delete-lock`: the lock of `job` expires. `wake`: an idle worker wakes up, which takes the markers of `queue`.
    `script-flush`: Redis forgets all scripts. `disconnect`: the connections of both clients are cut while nothing is
    under way.
    """

    fault: FaultName
    queue: str = ""
    job: str = ""

    @property
    def name(self) -> str:
        """Its name in coverage and findings."""
        return f"fault.{self.fault}"


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


OutsideStep: TypeAlias = ClockStep | FaultStep | CounterStep
"""A step that no client takes."""

Step: TypeAlias = CallStep | OutsideStep


def opening(handle: str, role: lifecycle.Role, queue: str, by: Caller = "client", **options: Any) -> CallStep:
    """The step that makes a client object; workers are manual."""
    processor: lifecycle.Processor | None = "manual" if role == "worker" else None
    op = lifecycle.Open(role=role, queue=queue, prefix="", redis=NOWHERE, processor=processor, options=options)
    return CallStep(handle, op, by)


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


def step_line(step: Step) -> str:
    """A step in one line, for people."""
    if isinstance(step, ClockStep):
        return f"{step.ms} ms pass"
    if isinstance(step, FaultStep):
        return " ".join(filter(None, (step.fault, step.queue, step.job)))
    if isinstance(step, CounterStep):
        return f"{' '.join(filter(None, (step.counter, 'of', step.queue, step.job)))} is {step.value}"
    arguments = ", ".join(
        f"{name}={msgspec.json.encode(value).decode()}" for name, value in _arguments(step.op).items()
    )
    who = " (its partner)" if step.by == "oracle" else ""
    cut = f", cut {step.cut}" if step.cut else ""
    return f"{step.handle}{who}: {step.name}({arguments}){cut}"


def as_record(step: Step) -> dict[str, Any]:
    """A step as JSON values; arguments at their defaults are left out."""
    if isinstance(step, ClockStep):
        return {"clock_ms": step.ms}
    if isinstance(step, FaultStep):
        return {"fault": step.fault} | {key: value for key in ("queue", "job") if (value := getattr(step, key))}
    if isinstance(step, CounterStep):
        job = {"job": step.job} if step.job else {}
        return {"counter": step.counter, "queue": step.queue, **job, "value": step.value}
    record: dict[str, Any] = {"call": step.name, "on": step.handle}
    if step.by != "client":
        record["by"] = step.by
    if step.cut:
        record["cut"] = step.cut
    return record | {"args": _arguments(step.op)}


def from_record(record: dict[str, Any]) -> Step:
    """The step of a record. Raises ValueError (or its subclass msgspec.ValidationError) if the record is invalid."""
    if "clock_ms" in record:
        return ClockStep(msgspec.convert(record["clock_ms"], int))
    if "fault" in record:
        return msgspec.convert({key: record[key] for key in ("fault", "queue", "job") if key in record}, FaultStep)
    if "counter" in record:
        named = {key: record[key] for key in ("counter", "queue", "job", "value") if key in record}
        return msgspec.convert(named, CounterStep)
    if record.get("call") not in REGISTRY:
        raise ValueError(f"it is not a call, clock_ms, fault or counter that this kit knows: {sorted(record)}")
    arguments = dict(record.get("args", {}))
    if record["call"] == "open":
        arguments |= {"prefix": "", "redis": NOWHERE}
    op = msgspec.convert(arguments, REGISTRY[record["call"]], from_attributes=True)
    handle, by = msgspec.convert(record.get("on", ""), str), msgspec.convert(record.get("by", "client"), Caller)
    return CallStep(handle, op, by, msgspec.convert(record.get("cut", ""), Cut))


def _arguments(op: Op[Any]) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(op)
    required = {field.name for field in msgspec.structs.fields(op) if field.required}
    defaults = {field.name: _default_of(field) for field in msgspec.structs.fields(op) if not field.required}
    kept = {name: value for name, value in values.items() if name in required or value != defaults[name]}
    return {
        name: value for name, value in kept.items() if not (isinstance(op, lifecycle.Open) and name in OWN_ARGUMENTS)
    }


def _default_of(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
