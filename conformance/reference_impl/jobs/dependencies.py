"""Results of a job's children, from the companion keys of its hash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from conformance.protocol import keys as names
from conformance.reference_impl import js_values
from conformance.reference_impl.connection.connection import flat_mapping, text, texts
from conformance.reference_impl.connection.resp import Command
from conformance.reference_impl.jobs.record import BoundJob
from conformance.reference_impl.scripts import Scripts
from conformance.reference_impl.scripts.manage import ChildKind

CHILD_KINDS: Final[tuple[ChildKind, ...]] = ("processed", "unprocessed", "ignored", "failed")
_SUFFIXES: Final[Mapping[ChildKind, str]] = {
    "processed": names.PROCESSED,
    "unprocessed": names.DEPENDENCIES,
    "ignored": names.FAILED_CHILDREN,
    "failed": names.UNSUCCESSFUL,
}


@dataclass(frozen=True)
class _DependencyPage:
    """The cursor of a page, and about how many children to return."""

    cursor: int = 0
    count: int = 20

    @classmethod
    def of(cls, options: Any) -> _DependencyPage:
        return cls(**options) if isinstance(options, Mapping) else cls()


async def read_dependencies(job: BoundJob, opts: Mapping[str, Any]) -> dict[str, Any]:
    """Return all children of a job by kind, or a page of the kinds that `opts` names (see `Job.getDependencies`)."""
    asked = {kind: opts[kind] for kind in CHILD_KINDS if js_values.truthy(opts.get(kind))}
    if asked:
        return await _read_pages(job, asked)
    # In one MULTI: a child that ends between two reads would appear in both kinds or in neither.
    replies = await job.owner.connection.together([_read_all(job, kind) for kind in CHILD_KINDS])
    return {kind: _children(kind, reply) for kind, reply in zip(CHILD_KINDS, replies, strict=True)}


async def count_dependencies(job: BoundJob, opts: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of children by kind, of the kinds that `opts` sets; of all kinds without any."""
    asked = [kind for kind, is_wanted in opts.items() if js_values.truthy(is_wanted)]
    kinds = list(cast("Iterable[ChildKind]", asked) if asked else CHILD_KINDS)
    counts = await job.scripts.get_dependency_counts(job.known_id, kinds)
    return dict(zip(kinds, counts, strict=True))


async def read_children_values(job: BoundJob) -> dict[str, Any]:
    """Return values of the completed children, by their full keys."""
    return _parsed(flat_mapping(await job.owner.connection.command("HGETALL", job.key(names.PROCESSED))))


async def read_ignored_failures(job: BoundJob) -> dict[str, str]:
    """Return failure reasons of the children whose failure does not fail this job, by their full keys."""
    return flat_mapping(await job.owner.connection.command("HGETALL", job.key(names.FAILED_CHILDREN)))


async def read_range(scripts: Scripts, key: str, start: int, end: int) -> dict[str, Any]:
    """Return the children `start` to `end` in a set or hash of a job (see `Queue.getDependencies`)."""
    page = await scripts.paginate(key, start, end)
    hashes = [texts(flat) for flat in page.jobs if flat]
    return {
        "items": [_dependency(item) for item in page.items],
        "jobs": [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in hashes],
        "total": page.total,
    }


async def _read_pages(job: BoundJob, asked: Mapping[ChildKind, Any]) -> dict[str, Any]:
    pages = {kind: _DependencyPage.of(page) for kind, page in asked.items()}
    replies = await job.owner.connection.together([_read_page(job, kind, page) for kind, page in pages.items()])
    found: dict[str, Any] = {}
    for (kind, page), reply in zip(pages.items(), replies, strict=True):
        if kind == "failed":
            # A sorted set is read by rank, so its cursor is a position and never 0 at the end.
            following, members = page.cursor + page.count, reply
        else:
            following, members = int(reply[0]), reply[1]
        found[kind] = _children(kind, members)
        found[f"next{kind.capitalize()}Cursor"] = following
    return found


def _read_all(job: BoundJob, kind: ChildKind) -> Command:
    key = job.key(_SUFFIXES[kind])
    if kind == "failed":
        return ("ZRANGE", key, 0, -1)
    return ("SMEMBERS" if kind == "unprocessed" else "HGETALL", key)


def _read_page(job: BoundJob, kind: ChildKind, page: _DependencyPage) -> Command:
    key = job.key(_SUFFIXES[kind])
    if kind == "failed":
        # As in Node.js, `end` does not move with the cursor, so only the first page can be full.
        return ("ZRANGE", key, page.cursor, page.count - 1)
    return ("SSCAN" if kind == "unprocessed" else "HSCAN", key, page.cursor, "COUNT", page.count)


def _parsed(values: Mapping[str, str]) -> dict[str, Any]:
    return {key: js_values.parse(value) for key, value in values.items()}


def _children(kind: ChildKind, reply: Any) -> Any:
    if kind == "processed":
        return _parsed(flat_mapping(reply))
    return flat_mapping(reply) if kind == "ignored" else texts(reply)


def _dependency(item: Any) -> dict[str, Any]:
    """A member of a set, or a pair of field and value of a hash, as the user sees it."""
    if not isinstance(item, list):
        return {"id": text(item)}
    child, value = texts(item)
    try:
        return {"id": child, "v": js_values.parse(value)}
    except ValueError as error:
        return {"id": child, "err": str(error)}
