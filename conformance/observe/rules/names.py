"""Rules about names that each participant has for itself: its prefix, its tokens, its uuids, its library."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from conformance.observe.rules.base import Context, Rule, map_texts, with_fields
from conformance.observe.tables import Snapshot

PREFIX_LABEL = "<prefix>"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_LIBRARY = re.compile(r"[^:\s]+:[^:\s]+")


def _own_prefix(snapshot: Snapshot, _: Context) -> Snapshot:
    """Replace the prefix wherever it begins a key name, also inside JSON text."""
    if snapshot.prefix == PREFIX_LABEL:
        return snapshot
    key_start = re.compile(rf"(?<![\w<-]){re.escape(snapshot.prefix)}:")
    changed = map_texts(snapshot, lambda text: key_start.sub(lambda _: f"{PREFIX_LABEL}:", text))
    return replace(changed, prefix=PREFIX_LABEL)


def _lock_tokens(snapshot: Snapshot, _: Context) -> Snapshot:
    """Number the tokens in the order of the locked jobs: what stays is whether two locks have the same one."""
    locks = sorted(snapshot.locks, key=lambda lock: (lock.queue, len(lock.job), lock.job))
    numbers: dict[str, int] = {}
    renamed = [replace(lock, token=f"<token {numbers.setdefault(lock.token, len(numbers) + 1)}>") for lock in locks]
    return replace(snapshot, locks=tuple(renamed))


def _library_version(snapshot: Snapshot, _: Context) -> Snapshot:
    """Keep only that `meta.version` has the form name, colon, version."""
    metas = [
        replace(meta, fields=with_fields(meta.fields, {"version": "<name>:<version>"}))
        if _LIBRARY.fullmatch(meta.fields.get("version", ""))
        else meta
        for meta in snapshot.metas
    ]
    return replace(snapshot, metas=tuple(metas))


def _generated_uuids(snapshot: Snapshot, _: Context) -> Snapshot:
    """Number the job ids that are uuids by first appearance, and use the numbers wherever those uuids stand."""
    ids = list(dict.fromkeys(_ids_by_appearance(snapshot)))
    uuids = [job for job in ids if _UUID.fullmatch(job)]
    if not uuids:
        return snapshot
    free_labels = (label for number in count(1) if (label := f"<uuid {number}>") not in ids)
    known = dict(zip(uuids, free_labels, strict=False))
    return map_texts(snapshot, lambda text: _UUID.sub(lambda found: known.get(found.group(), found.group()), text))


def _ids_by_appearance(snapshot: Snapshot) -> Iterator[str]:
    """All job ids, first in the order of events and containers, which does not depend on the ids themselves."""
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


OWN_PREFIX = Rule(
    name="own-prefix",
    reason="Each participant works under its own key prefix, and BullMQ writes full keys into parentKey, parent, "
    "dependencies and failure texts.",
    transform=_own_prefix,
)
LOCK_TOKEN = Rule(
    name="lock-token",
    reason="A worker makes up its tokens; only whether two locks share one is protocol.",
    transform=_lock_tokens,
)
LIBRARY_VERSION = Rule(
    name="library-version",
    reason="meta.version names the library that last opened the queue; only its form is protocol.",
    transform=_library_version,
)
GENERATED_UUIDS = Rule(
    name="generated-uuids",
    reason="Flow jobs without an id get a random uuid; which job is which is told by the order of appearance.",
    transform=_generated_uuids,
)
