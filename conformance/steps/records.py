"""Steps as lines of a file, and as text for people."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import msgspec

from conformance.driver.ops import REGISTRY, Op, lifecycle
from conformance.steps.shapes import (
    NOWHERE,
    Caller,
    CallStep,
    ClockStep,
    CounterStep,
    Cut,
    DrainStep,
    FaultStep,
    FeatureStep,
    Step,
    WaitStep,
)

OWN_ARGUMENTS = frozenset({"prefix", "redis"})
"""Arguments of `open` that every participant has for itself."""

_KINDS = {
    "clock_ms": ClockStep,
    "fault": FaultStep,
    "counter": CounterStep,
    "drain": DrainStep,
    "finished": WaitStep,
    "event": WaitStep,
}
"""The steps other than calls, by a name that only their records have."""


def step_line(step: FeatureStep) -> str:
    """A step in one line, for people."""
    match step:
        case CallStep():
            arguments = ", ".join(
                f"{name}={msgspec.json.encode(value).decode()}" for name, value in _arguments(step.op).items()
            )
            who = " (its partner)" if step.by == "oracle" else ""
            cut = f", cut {step.cut}" if step.cut else ""
            return f"{step.handle}{who}: {step.name}({arguments}){cut}"
        case ClockStep():
            return f"{step.clock_ms} ms pass"
        case FaultStep():
            return " ".join(filter(None, (step.fault, step.queue, step.job)))
        case CounterStep():
            return f"{' '.join(filter(None, (step.counter, 'of', step.queue, step.job)))} is {step.value}"
        case DrainStep():
            return f"{' and '.join(step.drain)}: {step.outcome} jobs as long as there are any"
        case WaitStep():
            return f"wait until {step.on} delivers {step.event}" if step.event else f"{step.finished} jobs are finished"


def as_record(step: FeatureStep) -> dict[str, Any]:
    """A step as JSON values; arguments at their defaults are left out."""
    if not isinstance(step, CallStep):
        return {
            field.name: value
            for field in fields(step)
            if (value := getattr(step, field.name)) != field.default or field.default is MISSING
        }
    record: dict[str, Any] = {"call": step.name, "on": step.handle}
    if step.by != "client":
        record["by"] = step.by
    if step.cut:
        record["cut"] = step.cut
    return record | {"args": _arguments(step.op)}


def from_record(record: dict[str, Any]) -> Step:
    """The step of a record. Raises ValueError (or its subclass msgspec.ValidationError) if the record is invalid."""
    step = feature_step(record)
    if isinstance(step, DrainStep | WaitStep):
        raise ValueError(f"only a feature of `versions mixed` has this step: {step_line(step)}")  # noqa: TRY004
    return step


def feature_step(record: dict[str, Any]) -> FeatureStep:
    """Return the step of a feature that this record describes. Raises ValueError for an unknown one."""
    kind = next((_KINDS[name] for name in record if name in _KINDS), None)
    if kind is not None:
        named = {field.name for field in fields(kind)}
        return msgspec.convert({name: value for name, value in record.items() if name in named}, kind)
    if record.get("call") not in REGISTRY:
        raise ValueError(f"unknown step: {str(record)[:80]}")
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
