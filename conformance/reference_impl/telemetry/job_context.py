"""The trace context of a job: its option `telemetry`, {metadata, omitContext}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Options = Mapping[str, Any]


def metadata_of(options: Options) -> Any:
    """Return the trace context with which a job was added."""
    return _telemetry(options).get("metadata")


def omits_context(options: Options) -> bool:
    """Whether a job is to carry no trace (`omitContext`)."""
    return bool(_telemetry(options).get("omitContext"))


def carrying(options: Options | None, metadata: str | None) -> Options | None:
    """Return the options of a single job, with this trace unless they forbid it (upstream `queue.ts`, `add`).

    A trace in the options themselves is lost, as in Node.js.
    """
    if not metadata or omits_context(options or {}):
        return options
    return {**(options or {}), "telemetry": {"metadata": metadata}}


def settled(merged: dict[str, Any], own: Options | None, metadata: str | None) -> dict[str, Any]:
    """Return the options of one of several jobs (upstream `queue.ts`, `addBulk`; `flow-producer.ts`, `addNode`).

    `merged` are its `own` options over the queue's defaults, whose `telemetry` never counts. A trace in its own
    options takes precedence over that of the call.
    """
    telemetry = None if own is None else following(own, metadata)
    if telemetry is not None:
        return {**merged, "telemetry": telemetry}
    if "telemetry" in merged:
        return {name: value for name, value in merged.items() if name != "telemetry"}
    return merged


def following(options: Options, metadata: str | None) -> Any:
    """Return the option `telemetry` of a job that is made with these options inside a trace, or outside of any.

    A trace in the options continues. If they forbid one, `metadata` is False, as Node.js stores it.
    """
    given = options.get("telemetry")
    if not metadata:
        return given
    omits = _telemetry(options).get("omitContext")
    carried = metadata_of(options) or (not omits and metadata)
    return {"metadata": carried, "omitContext": omits} if carried or omits else given


def _telemetry(options: Options) -> Mapping[str, Any]:
    telemetry = options.get("telemetry")
    return telemetry if isinstance(telemetry, Mapping) else {}
