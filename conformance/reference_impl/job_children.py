"""A job as the parent or the child of a flow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

from conformance.protocol import keys as names
from conformance.reference_impl import js_json
from conformance.reference_impl.connection import flat_mapping, texts
from conformance.reference_impl.job_base import BoundJob
from conformance.reference_impl.scripts_read import ChildKind

CHILD_KINDS: Final[tuple[ChildKind, ...]] = ("processed", "unprocessed", "ignored", "failed")


class JobChildren(BoundJob):
    """Children and what became of them, by full key."""

    async def getDependencies(self) -> dict[str, Any]:
        """Answer `processed` (values by key), `unprocessed` and `failed` (keys), `ignored` (failure reasons by key)."""
        processed, unprocessed, ignored, failed = await self.owner.connection.together(
            [
                ("HGETALL", self.key(names.PROCESSED)),
                ("SMEMBERS", self.key(names.DEPENDENCIES)),
                ("HGETALL", self.key(names.FAILED_CHILDREN)),
                ("ZRANGE", self.key(names.UNSUCCESSFUL), 0, -1),
            ]
        )
        return {
            "processed": _parsed(flat_mapping(processed)),
            "unprocessed": texts(unprocessed),
            "ignored": flat_mapping(ignored),
            "failed": texts(failed),
        }

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
