"""Translates keys and values of Redis between the names of the scenario and those of its clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from conformance.observe.keyspace import DEDUPLICATION, SCHEDULER, RawKey, assemble
from conformance.observe.reader import AnyRedis, read_matching
from conformance.observe.tables import Snapshot, parsed_json
from conformance.participants.names import Names
from conformance.protocol.keys import ID_COUNTER, JOB_SUFFIXES, LOGS, STALLED
from conformance.protocol.states import LIST_CONTAINERS, QUEUE_KEYS, ZSET_CONTAINERS

LARGEST_NODE = 100
"""Entries of a stream's node (`stream-node-max-entries`), unless its bytes (`stream-node-max-bytes`) are fewer."""
SMALLEST_NODE = 20
"""Entries that are certainly fewer than 4096 bytes, the default of `stream-node-max-bytes`."""

_MEMBERS = frozenset({*LIST_CONTAINERS, *ZSET_CONTAINERS, STALLED})


def key_to_client(names: Names, queue: str, rest: str) -> str:
    """The part of a key after `PREFIX:QUEUE:`, with the client's id in it."""
    return _renamed(rest, names.ids(queue).to_client)


def rest_to_scenario(names: Names, queue: str, rest: str) -> str:
    """The part of a key after `PREFIX:QUEUE:`, with the scenario's id in it."""
    return _renamed(rest, names.ids(queue).to_scenario)


def value_to_scenario(names: Names, queue: str, rest: str, kind: str, value: Any) -> Any:
    """The value of a key in the scenario's names: as Node would have left it.

    `rest`: the part of its name after `PREFIX:QUEUE:`. `kind`: its Redis type; `value` in the shapes of `RawKey`.
    """
    ids = names.ids(queue)
    if rest == ID_COUNTER and ids.differ:
        # A client whose ids do not come from the counter does not move it, except perhaps for schedules.
        return str(max(ids.added, int(value or 0)))
    if names.same or value is None or rest.endswith(f":{LOGS}"):
        return value
    if rest in _MEMBERS:
        return _in_order(kind, _members(value, ids.to_scenario))
    if rest.startswith(DEDUPLICATION) and kind == "string":
        return ids.to_scenario(value)
    if kind == "stream":
        return [(entry, names.event_to_scenario(queue, fields)) for entry, fields in value]
    if kind == "hash" and not _belongs_to_job(rest):
        return job_to_scenario(names, queue, value)
    return _in_order(kind, _members(value, names.to_scenario) if kind != "hash" else names.to_scenario(value))


def job_to_scenario(names: Names, queue: str, fields: dict[str, str]) -> dict[str, str]:
    """The hash of a job, or some fields of it."""
    renamed: dict[str, str] = names.to_scenario(fields)
    opts, parent = parsed_json(fields.get("opts")), parsed_json(fields.get("parent"))
    for name, old, new in (
        ("opts", opts, names.opts_to_scenario(queue, opts) if isinstance(opts, dict) else opts),
        ("parent", parent, names.parent_to_scenario(parent) if isinstance(parent, dict) else parent),
    ):
        if old != new:
            renamed[name] = json.dumps(new, ensure_ascii=False, separators=(",", ":"))
    return renamed


def read_named(redis: AnyRedis, names: Names) -> tuple[Snapshot, Snapshot]:
    """All keys of the scenario in Redis: as stored, and in the scenario's names.

    Raises EnvironmentProblem if Redis cannot be read.
    """
    # Read once: a second read could show a later state than the first.
    taken_ms, raw_keys = read_matching(redis, names.pattern)
    actual = assemble(names.client_prefix, taken_ms, raw_keys)
    if names.same:
        return actual, actual
    renamed = [_key_to_scenario(names, raw) for raw in raw_keys]
    renamed += _missing_counters(names, {raw.key for raw in renamed})
    return actual, assemble(names.prefix, taken_ms, sorted(renamed, key=lambda raw: raw.key))


def equally_trimmed(oracle: Snapshot, client: Snapshot, names: Names) -> tuple[Snapshot, Snapshot]:
    """Cut the longer event stream before the oldest event of the other, if the client has other ids.

    Redis trims whole nodes of a stream. The size of a node depends on the bytes of its entries, and these depend on the
    ids. A stream shorter than a node was not trimmed, and one that only lacks some events is not cut to its length.
    """
    for queue in names.queues_with_other_ids():
        longer, shorter = sorted((side.events_of(queue) for side in (oracle, client)), key=len, reverse=True)
        surplus = len(longer) - len(shorter)
        if not shorter or len(longer) <= SMALLEST_NODE or surplus > LARGEST_NODE:
            continue
        oldest = (shorter[0].name, shorter[0].job)
        starts = [place for place, event in enumerate(longer) if (event.name, event.job) == oldest]
        removed = longer[: min(starts, key=lambda place: abs(place - surplus), default=0)]
        oracle, client = (
            replace(side, events=tuple(event for event in side.events if event not in removed))
            if side.events_of(queue) == longer
            else side
            for side in (oracle, client)
        )
    return oracle, client


def _key_to_scenario(names: Names, raw: RawKey) -> RawKey:
    client_queue, _, rest = raw.key.removeprefix(f"{names.client_prefix}:").partition(":")
    queue = names.scenario_queue(client_queue)
    key = f"{names.prefix}:{queue}:{rest_to_scenario(names, queue, rest)}"
    return replace(raw, key=key, value=value_to_scenario(names, queue, rest, raw.type, raw.value))


def _missing_counters(names: Names, there: set[str]) -> Iterator[RawKey]:
    """The id counters that a client does not write because its ids do not come from them."""
    for queue, ids in names.queues_with_other_ids().items():
        base = f"{names.prefix}:{queue}:"
        if base + ID_COUNTER not in there and any(key.startswith(base) for key in there):
            yield RawKey(key=base + ID_COUNTER, type="string", value=str(ids.added))


def job_in(rest: str) -> str:
    """The id at the start of the part of a key after `PREFIX:QUEUE:`; empty if the key belongs to no job."""
    if rest in QUEUE_KEYS or rest.startswith((DEDUPLICATION, SCHEDULER)):
        return ""
    return rest.rpartition(":")[0] if _belongs_to_job(rest) else rest


def _renamed(rest: str, job: Callable[[str], str]) -> str:
    """The rest of a key, with the id at its start (if any) translated."""
    owner = job_in(rest)
    return f"{job(owner)}{rest.removeprefix(owner)}" if owner else rest


def _belongs_to_job(rest: str) -> bool:
    """Whether it is `JOB:SUFFIX`."""
    owner, _, suffix = rest.rpartition(":")
    return bool(owner) and suffix in JOB_SUFFIXES


def _members(value: Any, change: Callable[[Any], Any]) -> Any:
    """The members of a list, set or sorted set (with their scores), translated."""
    if isinstance(value, list):
        return [(change(item[0]), *item[1:]) if isinstance(item, tuple) else change(item) for item in value]
    return change(value)


def _in_order(kind: str, value: Any) -> Any:
    """The order that Redis would give: sorted sets by score and then by member, bytewise. Sets are sorted by member."""
    if kind == "set":
        return sorted(value)
    if kind != "zset":
        return value
    return sorted(value, key=lambda item: (float(item[1]), str(item[0]).encode("utf-8", "surrogateescape")))
