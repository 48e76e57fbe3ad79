"""Canonical rules, and those independent of the clock: names, texts, times to live, traces of workers. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import count
from typing import Any

from conformance.observe.tables import TABLES, Deduplication, Event, Expiring, Snapshot, as_number, parsed_json

PLAUSIBLE_SINCE_MS = 1_400_000_000_000
"""Unix ms (2014): an earlier number is not the time of a job but some other unit, for example seconds."""

CLOCK_TOLERANCE_MS = 2000
"""How far a client's clock may differ from the server's."""

PREFIX_LABEL = "<prefix>"
STACK_LABEL = "<stack>"

_SORTED = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"))
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_LIBRARY = re.compile(r"[^:\s]+:[^:\s]+")
_JSON_FIELDS = ("opts", "parent")


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonicalContext:
    """Inputs of a rule besides the snapshot: the settings of the scenario. Times in ms, None if unknown.

    `lock_duration_ms`, `limiter_duration_ms`, `stalled_interval_ms`: upper ends of the times to live. The lower end is
    `ttl_floor_ms`: a scenario that has just set a lock of 30 s may demand that more than 25 s are left.
    """

    lock_duration_ms: int | None = 30_000
    limiter_duration_ms: int | None = None
    stalled_interval_ms: int | None = None
    ttl_floor_ms: int = 0


Transform = Callable[[Snapshot, CanonicalContext], Snapshot]


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonicalRule:
    """One named normalisation. `reason`: why two conforming clients may differ here.

    Applying a rule to its own result changes nothing, and a value that does not fit the rule stays as it is, so that it
    shows up as a difference. `relative`: the rule judges a value by other values of the same side, so that the same
    value may fit on one side only; `observe.diff.compare` then compares it as it was read.
    """

    name: str
    reason: str
    transform: Transform = field(repr=False)
    relative: bool = False

    def apply(self, snapshot: Snapshot, context: CanonicalContext) -> Snapshot:
        """The snapshot with this one normalisation."""
        return self.transform(snapshot, context)


def canonical_json(value: Any) -> str:
    """JSON text with sorted keys: equal values give equal texts."""
    return _SORTED.encode(value)


def with_fields(mapping: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """The hash with some fields replaced; None leaves a field as it is."""
    return {**mapping, **{name: value for name, value in changes.items() if value is not None}}


def within(ttl_ms: float | str, upper_ms: int | None, label: str, floor_ms: int = 0) -> float | str:
    """The label if a time to live is in its band, else the raw value (-1, no expiry, always stays)."""
    # A text is a label of an earlier application: rules must not change their own result.
    if isinstance(ttl_ms, str) or ttl_ms < floor_ms or ttl_ms < 0:
        return ttl_ms
    return label if upper_ms is None or ttl_ms <= upper_ms else ttl_ms


def map_texts(snapshot: Snapshot, change: Callable[[str], str]) -> Snapshot:
    """The snapshot with every text in it changed: ids, keys, names and values of fields, stream ids aside."""
    tables: dict[str, Any] = {
        table: tuple(_map_row(row, change) for row in getattr(snapshot, table)) for table in TABLES
    }
    return replace(snapshot, **tables)


def _map_row(row: Any, change: Callable[[str], str]) -> Any:
    changed = {item.name: _map_value(getattr(row, item.name), change) for item in fields(row)}
    return replace(row, **changed)


def _map_value(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(name): _map_value(inner, change) for name, inner in value.items()}
    if isinstance(value, list):
        return [_map_value(inner, change) for inner in value]
    if isinstance(value, tuple):
        return tuple(_map_value(inner, change) for inner in value)
    return value


def _own_prefix(snapshot: Snapshot, _: CanonicalContext) -> Snapshot:
    """Replace the prefix wherever a key name starts with it, also inside JSON text."""
    return snapshot if snapshot.prefix == PREFIX_LABEL else with_prefixes_named(snapshot, [snapshot.prefix])


def with_prefixes_named(snapshot: Snapshot, prefixes: Iterable[str]) -> Snapshot:
    """The snapshot with PREFIX_LABEL for each of these prefixes wherever a key name starts with it."""
    # Only where a key name starts: user data may contain the same word inside another one.
    # One prefix may be the start of another: the longer one must be tried first.
    longest_first = sorted(set(prefixes), key=lambda prefix: (-len(prefix), prefix))
    key_start = re.compile(rf"(?<![\w<-])(?:{'|'.join(map(re.escape, longest_first))}):")
    changed = map_texts(snapshot, lambda text: key_start.sub(lambda _: f"{PREFIX_LABEL}:", text))
    return replace(changed, prefix=PREFIX_LABEL)


def _lock_tokens(snapshot: Snapshot, _: CanonicalContext) -> Snapshot:
    """Name each token after the first job that it locks: what stays is whether two locks have the same one.

    Numbers would do so too, but one token too many would change those of all that follow.
    """
    # By length first: generated ids are numbers, and "10" must not come before "9".
    locks = sorted(snapshot.locks, key=lambda lock: (lock.queue, len(lock.job), lock.job))
    names: dict[str, str] = {}
    renamed = [
        replace(lock, token=names.setdefault(lock.token, f"<token of {lock.queue}:{lock.job}>")) for lock in locks
    ]
    return replace(snapshot, locks=tuple(renamed))


def _library_version(snapshot: Snapshot, _: CanonicalContext) -> Snapshot:
    """Keep only that `meta.version` has the form name, colon, version."""
    metas = [
        replace(meta, fields=with_fields(meta.fields, {"version": "<name>:<version>"}))
        if _LIBRARY.fullmatch(meta.fields.get("version", ""))
        else meta
        for meta in snapshot.metas
    ]
    return replace(snapshot, metas=tuple(metas))


def _generated_uuids(snapshot: Snapshot, _: CanonicalContext) -> Snapshot:
    """Number the job ids that are uuids by first appearance, and use the numbers wherever those uuids stand."""
    ids = list(dict.fromkeys(ids_by_appearance(snapshot)))
    uuids = [job for job in ids if UUID.fullmatch(job)]
    free_labels = (label for number in count(1) if (label := f"<uuid {number}>") not in ids)
    return with_uuids_named(snapshot, dict(zip(uuids, free_labels, strict=False)))


def with_uuids_named(snapshot: Snapshot, names: Mapping[str, str]) -> Snapshot:
    """The snapshot with these names wherever their uuids stand."""
    if not names:
        return snapshot
    return map_texts(snapshot, lambda text: UUID.sub(lambda found: names.get(found.group(), found.group()), text))


def ids_by_appearance(snapshot: Snapshot) -> Iterator[str]:
    """All job ids, first in the order of events and containers, which does not depend on the ids themselves."""
    # The sort is stable, so events keep the order of their stream within each queue.
    for event in sorted(snapshot.events, key=lambda event: event.queue):
        yield event.job
    for member in sorted(snapshot.memberships, key=lambda member: (member.queue, member.container)):
        yield member.job
    for job in sorted(
        snapshot.jobs, key=lambda job: (job.queue, job.fields.get("name", ""), job.fields.get("data", ""))
    ):
        yield job.id
    for dependency in sorted(snapshot.dependencies, key=lambda row: (row.queue, row.parent, row.kind)):
        yield dependency.child.rpartition(":")[2]
    # Rows that may outlive their job.
    for rows in (snapshot.locks, snapshot.logs, snapshot.deduplications):
        yield from (row.job for row in rows)


OWN_PREFIX = CanonicalRule(
    name="own-prefix",
    reason="Each participant works under its own key prefix, and BullMQ writes full keys into parentKey, parent, "
    "dependencies and failure texts.",
    transform=_own_prefix,
)
LOCK_TOKEN = CanonicalRule(
    name="lock-token",
    reason="A worker makes up its tokens; only whether two locks share one is protocol.",
    transform=_lock_tokens,
    relative=True,
)
LIBRARY_VERSION = CanonicalRule(
    name="library-version",
    reason="meta.version names the library that last opened the queue; only its form is protocol.",
    transform=_library_version,
)
GENERATED_UUIDS = CanonicalRule(
    name="generated-uuids",
    reason="Flow jobs without an id get a random uuid; the order of appearance identifies each job.",
    transform=_generated_uuids,
)


def _stack_traces(snapshot: Snapshot, _: CanonicalContext) -> Snapshot:
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


def _parsed_opts(snapshot: Snapshot, _: CanonicalContext) -> Snapshot:
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


def _stream_ids(snapshot: Snapshot, _: CanonicalContext) -> Snapshot:
    """Drop the ids of stream entries; their order is the order of the table."""
    return replace(snapshot, events=tuple(_without_id(event) for event in snapshot.events))


def _without_id(event: Event) -> Event:
    return replace(event, id="<stream id>") if re.fullmatch(r"\d+-\d+", event.id) else event


STACK_TRACE_TEXT = CanonicalRule(
    name="stack-trace-text",
    reason="Stack traces are written by the language; only their number, as a JSON array of texts, is protocol.",
    transform=_stack_traces,
)
OPTS_PARSED_JSON = CanonicalRule(
    name="opts-parsed-json",
    reason="opts and parent are encoded by Lua cjson, whose key order depends on the order of insertion.",
    transform=_parsed_opts,
)
STREAM_IDS = CanonicalRule(
    name="stream-ids",
    reason="Stream ids are the Redis server's time; only the order of the entries is protocol.",
    transform=_stream_ids,
)


def _lock_ttl(snapshot: Snapshot, context: CanonicalContext) -> Snapshot:
    """Keep whether the lock expires within lockDuration."""
    locks = [
        replace(
            lock,
            ttl_ms=within(lock.ttl_ms, context.lock_duration_ms, "<within lockDuration>", context.ttl_floor_ms),
        )
        for lock in snapshot.locks
    ]
    return replace(snapshot, locks=tuple(locks))


def _deduplication_ttl(snapshot: Snapshot, _: CanonicalContext) -> Snapshot:
    """Keep whether the key expires within the ttl that its owner asked for."""
    rows = [
        replace(row, ttl_ms=within(row.ttl_ms, _asked_ttl(snapshot, row), "<within ttl>"))
        for row in snapshot.deduplications
    ]
    return replace(snapshot, deduplications=tuple(rows))


def _asked_ttl(snapshot: Snapshot, row: Deduplication) -> int | None:
    """The option `deduplication.ttl` (stored as `de`) of the owner; None where the owner is gone or gave none."""
    owner = snapshot.job(row.queue, row.job)
    asked = owner.opts.get("de") if owner is not None else None
    ttl = as_number(asked.get("ttl")) if isinstance(asked, Mapping) else None
    return int(ttl) if ttl else None


def _limiter_ttl(snapshot: Snapshot, context: CanonicalContext) -> Snapshot:
    """Keep whether the rate window ends within its duration (the scenario's, or else the queue's own)."""
    rows = [
        replace(row, ttl_ms=within(row.ttl_ms, _duration(snapshot, row, context), "<within duration>"))
        for row in snapshot.limiters
    ]
    return replace(snapshot, limiters=tuple(rows))


def _duration(snapshot: Snapshot, row: Expiring, context: CanonicalContext) -> int | None:
    if context.limiter_duration_ms is not None:
        return context.limiter_duration_ms
    duration = as_number(snapshot.meta(row.queue).get("duration"))
    # 2^53 - 1 was set by rateLimit with a TTL of its own, which no option of the queue bounds.
    return int(duration) if duration is not None and row.value != str(2**53 - 1) else None


def _stalled_check_ttl(snapshot: Snapshot, context: CanonicalContext) -> Snapshot:
    """Keep whether the next stalled check becomes possible within stalledInterval."""
    rows = [
        replace(row, ttl_ms=within(row.ttl_ms, context.stalled_interval_ms, "<within stalledInterval>"))
        for row in snapshot.stalled_checks
    ]
    return replace(snapshot, stalled_checks=tuple(rows))


LOCK_TTL = CanonicalRule(
    name="lock-ttl",
    reason="A lock's time to live is read some moments after it was set; it must lie in (0, lockDuration].",
    transform=_lock_ttl,
)
DEDUPLICATION_TTL = CanonicalRule(
    name="dedup-ttl",
    reason="A deduplication key's time to live runs down; it must lie in (0, ttl], or not expire at all.",
    transform=_deduplication_ttl,
    relative=True,
)
LIMITER_TTL = CanonicalRule(
    name="limiter-ttl",
    reason="The rate window's time to live runs down; it must lie in (0, duration].",
    transform=_limiter_ttl,
    relative=True,
)
STALLED_CHECK_TTL = CanonicalRule(
    name="stalled-check-ttl",
    reason="The throttle of the stalled check runs down; it must lie in (0, stalledInterval].",
    transform=_stalled_check_ttl,
)


def _no_traces(snapshot: Snapshot, _: CanonicalContext) -> Snapshot:
    return replace(snapshot, markers=(), stalled_checks=())


WORKER_TRACES = CanonicalRule(
    name="worker-traces",
    reason="If workers run their own loop, they may take a marker before or after the last claim, and the throttle of "
    "the stalled check is intermittent; another invariant checks that the marker exists while work waits.",
    transform=_no_traces,
)


def _without_marks(snapshot: Snapshot, _: CanonicalContext) -> Snapshot:
    active = {(row.queue, row.job) for row in snapshot.memberships if row.container == "active"}
    members = [row for row in snapshot.memberships if row.container != "stalled" or (row.queue, row.job) not in active]
    return replace(snapshot, memberships=tuple(members))


STALLED_MARKS = CanonicalRule(
    name="stalled-marks",
    reason="A worker's loop checks for stalled jobs before or after its claims, and marks what is active then. Only "
    "scenarios need this rule: in a store, a mark is data like any other.",
    transform=_without_marks,
)
