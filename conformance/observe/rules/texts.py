"""Rules about texts that differ between languages and encoders although they say the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from conformance.observe.rules.base import Context, Rule, canonical_json, with_fields
from conformance.observe.tables import Event, Snapshot, parsed_json

STACK_LABEL = "<stack>"
_JSON_FIELDS = ("opts", "parent")


def _stack_traces(snapshot: Snapshot, _: Context) -> Snapshot:
    """Keep the number of entries of `stacktrace`; what is not a JSON array of texts stays."""
    jobs = [
        replace(job, fields=with_fields(job.fields, {"stacktrace": _masked_stack(job.fields)})) for job in snapshot.jobs
    ]
    return replace(snapshot, jobs=tuple(jobs))


def _masked_stack(fields: Mapping[str, str]) -> str | None:
    entries = parsed_json(fields.get("stacktrace"))
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        return None
    return canonical_json([STACK_LABEL] * len(entries))


def _parsed_opts(snapshot: Snapshot, _: Context) -> Snapshot:
    """Sort the keys of the JSON that Lua wrote, in jobs and scheduler records."""
    jobs = [replace(job, fields=_sorted_json(job.fields)) for job in snapshot.jobs]
    schedulers = [
        replace(row, fields=_sorted_json(row.fields)) if row.fields is not None else row for row in snapshot.schedulers
    ]
    return replace(snapshot, jobs=tuple(jobs), schedulers=tuple(schedulers))


def _sorted_json(fields: Mapping[str, str]) -> dict[str, str]:
    parsed = {name: parsed_json(fields.get(name)) for name in _JSON_FIELDS}
    return with_fields(
        fields, {name: canonical_json(value) if isinstance(value, dict) else None for name, value in parsed.items()}
    )


def _stream_ids(snapshot: Snapshot, _: Context) -> Snapshot:
    """Drop the ids of stream entries; their order is the order of the table."""
    return replace(snapshot, events=tuple(_without_id(event) for event in snapshot.events))


def _without_id(event: Event) -> Event:
    return replace(event, id="<stream id>") if re.fullmatch(r"\d+-\d+", event.id) else event


STACK_TRACE_TEXT = Rule(
    name="stack-trace-text",
    reason="Stack traces are written by the language; that they are a JSON array of so many texts is protocol.",
    transform=_stack_traces,
)
OPTS_PARSED_JSON = Rule(
    name="opts-parsed-json",
    reason="opts and parent are encoded by Lua cjson, whose key order depends on the order of insertion.",
    transform=_parsed_opts,
)
STREAM_IDS = Rule(
    name="stream-ids",
    reason="Stream ids are the Redis server's time; only the order of the entries is protocol.",
    transform=_stream_ids,
)
