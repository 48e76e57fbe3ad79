"""Which key under a participant's prefix means what: `PREFIX:QUEUE:REST`.

A queue name holds no `:` (upstream `queue-base.ts` refuses it), a job id may; therefore the queue is what stands
between the prefix and the next colon, and everything after it is the rest. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

LISTS = ("wait", "paused", "active")
"""Containers that are Redis lists: fetching takes from the right end, adding goes to the left."""
SORTED_SETS = ("prioritized", "delayed", "completed", "failed", "waiting-children")
"""Containers that are sorted sets."""
STATES = (*LISTS, *SORTED_SETS)
"""Every container that gives a job its state; a job is in exactly one of them."""

QUEUE_KEYS: Mapping[str, str] = {
    **dict.fromkeys(LISTS, "list"),
    **dict.fromkeys(SORTED_SETS, "zset"),
    "stalled": "set",
    "marker": "zset",
    "repeat": "zset",
    "meta": "hash",
    "events": "stream",
    "id": "string",
    "pc": "string",
    "limiter": "string",
    "stalled-check": "string",
    "metrics:completed": "hash",
    "metrics:failed": "hash",
    "metrics:completed:data": "list",
    "metrics:failed:data": "list",
}
"""Redis type of every key that a queue has once."""

JOB_SUFFIXES: Mapping[str, str] = {
    "lock": "string",
    "logs": "list",
    "dependencies": "set",
    "processed": "hash",
    "failed": "hash",
    "unsuccessful": "zset",
}
"""Redis type of every key that belongs to one job: `JOB:SUFFIX`."""

DEDUPLICATION = "de:"
SCHEDULER = "repeat:"

SCHEDULER_ONLY_FIELDS = frozenset({"ic", "every", "pattern", "startDate", "endDate", "limit", "tz", "offset"})
"""Fields of a scheduler record that no job hash has."""

EXPIRING = frozenset({"job:lock", "deduplication", "limiter", "stalled-check"})
"""Kinds of key that BullMQ lets expire; a time to live on any other kind is a row of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a key is.

    `kind`: a name of `QUEUE_KEYS`, `job:` and a suffix of `JOB_SUFFIXES`, `job`, `deduplication`, `scheduler` or
    `unknown`.
    `subject`: the job id, deduplication id or scheduler id; empty for keys that a queue has once.
    """

    queue: str
    kind: str
    subject: str = ""


def split_key(prefix: str, key: str) -> tuple[str, str]:
    """The queue and the rest of a key; both empty where the key is not of the form `PREFIX:QUEUE:REST`."""
    queue, colon, rest = key.removeprefix(f"{prefix}:").partition(":")
    return (queue, rest) if colon and rest and key.startswith(f"{prefix}:") else ("", "")


def place_of(prefix: str, key: str, redis_type: str, fields: Iterable[str] = ()) -> Place:
    """What the key is, from its name and type, and from its field names where it is a hash.

    A name that BullMQ reserves but with another Redis type is `unknown`, unless it is a hash: then it is a job with a
    reserved id, as BullMQ itself would see it.
    """
    queue, rest = split_key(prefix, key)
    if not rest:
        return Place(queue=queue, kind="unknown")
    if QUEUE_KEYS.get(rest) == redis_type:
        return Place(queue=queue, kind=rest)
    if rest.startswith(DEDUPLICATION) and redis_type == "string":
        return Place(queue=queue, kind="deduplication", subject=rest.removeprefix(DEDUPLICATION))
    names = frozenset(fields)
    owned = _owned_by_job(queue, rest, redis_type, names)
    if owned is not None:
        return owned
    if redis_type != "hash":
        return Place(queue=queue, kind="unknown", subject=rest)
    if rest.startswith(SCHEDULER) and names & SCHEDULER_ONLY_FIELDS and "timestamp" not in names:
        return Place(queue=queue, kind="scheduler", subject=rest.removeprefix(SCHEDULER))
    return Place(queue=queue, kind="job", subject=rest)


def _owned_by_job(queue: str, rest: str, redis_type: str, names: frozenset[str]) -> Place | None:
    """A key `JOB:SUFFIX`. The hashes of finished children have child keys as fields, and those contain a colon."""
    job, colon, suffix = rest.rpartition(":")
    if not (colon and job) or JOB_SUFFIXES.get(suffix) != redis_type:
        return None
    if redis_type == "hash" and not all(":" in name for name in names):
        return None
    return Place(queue=queue, kind=f"job:{suffix}", subject=job)


def is_reserved(rest: str) -> bool:
    """Whether BullMQ gives a meaning to this name after `PREFIX:QUEUE:` (jobs aside)."""
    return rest in QUEUE_KEYS or rest.rpartition(":")[2] in JOB_SUFFIXES or rest.startswith(DEDUPLICATION)


def glob_escaped(text: str) -> str:
    r"""The text as a literal of Redis' glob language, for SCAN MATCH (`*`, `?`, `[`, `]` and `\` are special)."""
    return "".join(f"\\{character}" if character in "*?[]\\" else character for character in text)
