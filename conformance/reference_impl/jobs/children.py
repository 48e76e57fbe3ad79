"""A job as the parent or the child of a flow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from conformance.protocol import keys as names
from conformance.reference_impl.connection.connection import flat_mapping, texts
from conformance.reference_impl.connection.resp import Command
from conformance.reference_impl.encoding import js_json
from conformance.reference_impl.jobs.base import BoundJob
from conformance.reference_impl.scripts.read import ChildKind

CHILD_KINDS: Final[tuple[ChildKind, ...]] = ("processed", "unprocessed", "ignored", "failed")
_SUFFIXES: Final[Mapping[ChildKind, str]] = {
    "processed": names.PROCESSED,
    "unprocessed": names.DEPENDENCIES,
    "ignored": names.FAILED_CHILDREN,
    "failed": names.UNSUCCESSFUL,
}


@dataclass(frozen=True)
class _Page:
    """Where to go on, and about how many children to answer."""

    cursor: int = 0
    count: int = 20

    @classmethod
    def of(cls, options: Any) -> _Page:
        return cls(**options) if isinstance(options, Mapping) else cls()


class JobChildren(BoundJob):
    """Children and what became of them, by full key."""

    async def getDependencies(self, opts: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Answer `processed` (values by key), `unprocessed` and `failed` (keys), `ignored` (failure reasons by key).

        `opts` asks for a page of some kinds, {kind: {cursor (0), count (20)}}; then there is a `next<Kind>Cursor` too,
        0 at the end. `count` is a hint to Redis, except for `failed`, where the cursor counts children.
        """
        asked = {kind: (opts or {})[kind] for kind in CHILD_KINDS if js_json.truthy((opts or {}).get(kind))}
        if asked:
            return await self._pages_of_dependencies(asked)
        replies = await self.owner.connection.together([self._all_of(kind) for kind in CHILD_KINDS])
        return {kind: _children(kind, reply) for kind, reply in zip(CHILD_KINDS, replies, strict=True)}

    async def _pages_of_dependencies(self, asked: Mapping[ChildKind, Any]) -> dict[str, Any]:
        kinds = list(asked)
        pages = {kind: _Page.of(asked[kind]) for kind in kinds}
        replies = await self.owner.connection.together([self._page_of(kind, pages[kind]) for kind in kinds])
        found: dict[str, Any] = {}
        for kind, reply in zip(kinds, replies, strict=True):
            if kind == "failed":
                following, members = pages[kind].cursor + pages[kind].count, reply
            else:
                following, members = int(reply[0]), reply[1]
            found[kind] = _children(kind, members)
            found[f"next{kind.capitalize()}Cursor"] = following
        return found

    def _all_of(self, kind: ChildKind) -> Command:
        key = self.key(_SUFFIXES[kind])
        if kind == "failed":
            return ("ZRANGE", key, 0, -1)
        return ("SMEMBERS" if kind == "unprocessed" else "HGETALL", key)

    def _page_of(self, kind: ChildKind, page: _Page) -> Command:
        key = self.key(_SUFFIXES[kind])
        if kind == "failed":
            # Node's end does not move with the cursor, so only the first page is ever full.
            return ("ZRANGE", key, page.cursor, page.count - 1)
        return ("SSCAN" if kind == "unprocessed" else "HSCAN", key, page.cursor, "COUNT", page.count)

    async def getDependenciesCount(self, opts: dict[str, Any] | None = None) -> dict[str, int]:
        """Answer the number of children by kind, of the kinds that `opts` sets; of all kinds without any."""
        asked = [kind for kind, wanted in (opts or {}).items() if js_json.truthy(wanted)]
        kinds = cast("Iterable[ChildKind]", asked) if asked else CHILD_KINDS
        chosen = list(kinds)
        counts = await self.scripts.get_dependency_counts(self.known_id, chosen)
        return dict(zip(chosen, counts, strict=True))

    async def getChildrenValues(self) -> dict[str, Any]:
        """Return values of the completed children."""
        reply = await self.owner.connection.command("HGETALL", self.key(names.PROCESSED))
        return _parsed(flat_mapping(reply))

    async def getFailedChildrenValues(self) -> dict[str, str]:
        """Failure reasons of these children; the older name of getIgnoredChildrenFailures."""
        return await self.getIgnoredChildrenFailures()

    async def getIgnoredChildrenFailures(self) -> dict[str, str]:
        """Failure reasons of the children whose failure does not fail this job."""
        return flat_mapping(await self.owner.connection.command("HGETALL", self.key(names.FAILED_CHILDREN)))

    async def removeChildDependency(self) -> bool:
        """Unlink the job from its parent; False when there is no relation. Raises ScriptError."""
        removed = await self.scripts.remove_child_dependency(self.known_id, self.parentKey)
        if removed:
            self.parent = self.parentKey = None
        return removed

    async def removeUnprocessedChildren(self) -> None:
        """Remove the children that nobody works on."""
        await self.scripts.remove_unprocessed_children(self.known_id)


def _parsed(values: dict[str, str]) -> dict[str, Any]:
    return {key: js_json.parse(value) for key, value in values.items()}


def _children(kind: ChildKind, reply: Any) -> Any:
    if kind == "processed":
        return _parsed(flat_mapping(reply))
    return flat_mapping(reply) if kind == "ignored" else texts(reply)
