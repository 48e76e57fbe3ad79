"""What a sequence is made of: calls, steps of the clock, and faults. One step is one line of a replay file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from conformance.driver.messages import RedisAddress
from conformance.driver.ops import REGISTRY, Op, lifecycle
from conformance.observe.tap.rules import Phase

Caller: TypeAlias = Literal["client", "oracle"]
Cut: TypeAlias = Phase | Literal[""]
FaultName: TypeAlias = Literal["delete-lock", "wake", "script-flush", "disconnect"]

NOWHERE = RedisAddress(mode="standalone", nodes=[])
"""The address in the `open` of a step: each participant fills in its own, and its own prefix."""


@dataclass(frozen=True)
class CallStep:
    """One operation on one handle. `by`: in interop, which of the two clients makes the call on the shared queue.

    `cut`: the client's connection breaks at the call's script, at this moment (docs/tap.md); empty where it does not.
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
        """How coverage and findings call it."""
        return "clock"


@dataclass(frozen=True)
class FaultStep:
    """Something happens to Redis or to the connections, to both sides alike.

    `delete-lock`: the lock of `job` expires. `wake`: an idle worker wakes up, which takes the markers of `queue`.
    `script-flush`: Redis forgets all scripts. `disconnect`: the connections of both clients are cut while nothing is
    under way.
    """

    fault: FaultName
    queue: str = ""
    job: str = ""

    @property
    def name(self) -> str:
        """How coverage and findings call it."""
        return f"fault.{self.fault}"


Step: TypeAlias = CallStep | ClockStep | FaultStep


def opening(handle: str, role: lifecycle.Role, queue: str, by: Caller = "client", **options: Any) -> CallStep:
    """The step that makes a client object; workers are manual."""
    processor: lifecycle.Processor | None = "manual" if role == "worker" else None
    op = lifecycle.Open(role=role, queue=queue, prefix="", redis=NOWHERE, processor=processor, options=options)
    return CallStep(handle, op, by)


def calls_of(steps: list[Step]) -> int:
    """How many calls there are, without the making of client objects."""
    return sum(isinstance(step, CallStep) and not step.opens for step in steps)


def as_record(step: Step) -> dict[str, Any]:
    """A step as JSON values; arguments at their defaults are left out."""
    if isinstance(step, ClockStep):
        return {"clock_ms": step.ms}
    if isinstance(step, FaultStep):
        return {"fault": step.fault} | {key: value for key in ("queue", "job") if (value := getattr(step, key))}
    record: dict[str, Any] = {"call": step.name, "on": step.handle}
    if step.by != "client":
        record["by"] = step.by
    if step.cut:
        record["cut"] = step.cut
    return record | {"args": _arguments(step.op)}


def from_record(record: dict[str, Any]) -> Step:
    """The step that a record describes. Raises ValueError (msgspec.ValidationError included) for what is none."""
    if "clock_ms" in record:
        return ClockStep(msgspec.convert(record["clock_ms"], int))
    if "fault" in record:
        return msgspec.convert({key: record[key] for key in ("fault", "queue", "job") if key in record}, FaultStep)
    if record.get("call") not in REGISTRY:
        raise ValueError(f"it is no call, clock_ms or fault that this kit knows: {sorted(record)}")
    arguments = dict(record.get("args", {}))
    if record["call"] == "open":
        arguments |= {"prefix": "", "redis": NOWHERE}
    op = msgspec.convert(arguments, REGISTRY[record["call"]], from_attributes=True)
    handle, by = msgspec.convert(record.get("on", ""), str), msgspec.convert(record.get("by", "client"), Caller)
    return CallStep(handle, op, by, msgspec.convert(record.get("cut", ""), Cut))


def told(step: Step) -> str:
    """A step in one line, for people."""
    if isinstance(step, ClockStep):
        return f"{step.ms} ms pass"
    if isinstance(step, FaultStep):
        return " ".join(filter(None, (step.fault, step.queue, step.job)))
    arguments = ", ".join(
        f"{name}={msgspec.json.encode(value).decode()}" for name, value in _arguments(step.op).items()
    )
    who = " (Node)" if step.by == "oracle" else ""
    cut = f", cut {step.cut}" if step.cut else ""
    return f"{step.handle}{who}: {step.name}({arguments}){cut}"


def _arguments(op: Op[Any]) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(op)
    required = {field.name for field in msgspec.structs.fields(op) if field.required}
    defaults = {field.name: _default_of(field) for field in msgspec.structs.fields(op) if not field.required}
    kept = {name: value for name, value in values.items() if name in required or value != defaults[name]}
    return {name: value for name, value in kept.items() if not (isinstance(op, lifecycle.Open) and name in OWN)}


OWN = frozenset({"prefix", "redis"})
"""Arguments of `open` that every participant has for itself."""


def _default_of(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
