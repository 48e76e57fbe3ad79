"""Children that fail, are removed or unlinked, and parents that do not notice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.jobs import options
from conformance.reference_impl.jobs.children import JobChildren

_NEVER_RELEASED = 'if command[1] == "ZREM" and on(command, "waiting-children") then return 0 end'


@mutant("flow.failure-counts-as-done", kills=("flow.fail.none",))
def failure_counts_as_done(damage: Damage) -> None:
    """A failed child without any option is no dependency any more."""
    damage.commands(
        "moveToFinished",
        'if event(command) == "failed" then local parent = send("HGET", KEYS[12], "parentKey") '
        'if parent then send("SREM", parent .. ":dependencies", KEYS[12]) end end',
    )


@mutant(
    "flow.options-ignored",
    kills=("flow.fail.parent", "flow.fail.continue", "flow.fail.ignore", "flow.fail.remove"),
    by=("flow-failures/a_parent_with_a_failed_child_cannot_complete",),
)
def options_ignored(damage: Damage) -> None:
    """What is to happen when a child fails is not stored."""
    damage.replace(options, "PARENT_FLAG_OPTIONS", ())


@mutant("flow.not-deferred", kills=("flow.fail.parent",))
def not_deferred(damage: Damage) -> None:
    """The parent of a failed child is processed as if nothing had happened."""
    damage.commands("moveToFinished", 'if command[1] == "HSET" and command[3] == "defa" then return 1 end')


@mutant("flow.unsuccessful-unrecorded", kills=("flow.fail.parent",))
def unsuccessful_unrecorded(damage: Damage) -> None:
    """A child that fails its parent is not among the unsuccessful ones."""
    damage.commands("moveToFinished", 'if command[1] == "ZADD" and on(command, "unsuccessful") then return 1 end')


@mutant("flow.failure-unrecorded", kills=("flow.fail.continue", "flow.fail.ignore"))
def failure_unrecorded(damage: Damage) -> None:
    """A parent does not know which of its children failed."""
    damage.commands(
        "moveToFinished",
        'if command[1] == "HSET" and on(command, "failed") and command[3] == KEYS[12] then return 1 end',
    )


@mutant("flow.forgotten-failure-remembered", kills=("flow.fail.remove",))
def removed_dependency_remembered(damage: Damage) -> None:
    """With removeDependencyOnFailure a parent remembers the failure."""

    def broken(stored: Function) -> Function:
        def parent_field(given: Mapping[str, Any]) -> dict[str, Any] | None:
            found: dict[str, Any] | None = stored(given)
            return {("idof" if name == "rdof" else name): value for name, value in found.items()} if found else None

        return parent_field

    damage.around(options, "parent_field", broken)


@mutant("flow.children-overlooked", kills=("flow.pending-children-refuse-completion", "flow.fail.continue"))
def children_overlooked(damage: Damage) -> None:
    """A parent with pending children can be completed."""
    damage.commands(
        "moveToFinished", 'if command[1] == "SCARD" and command[2] == KEYS[12] .. ":dependencies" then return 0 end'
    )


@mutant("flow.never-waits-again", kills=("flow.pending-children-refuse-completion",))
def never_waits_again(damage: Damage) -> None:
    """A running parent cannot go back to waiting for its children."""
    damage.commands("moveToWaitingChildren", 'if command[1] == "SCARD" then return 0 end')


@mutant("flow.remove-alone", kills=("flow.remove.parent",))
def remove_alone(damage: Damage) -> None:
    """Removing a parent leaves its children."""
    damage.argument("removeJob", 1, lambda _children: 0)


@mutant("flow.remove-always-all", kills=("flow.remove.parent",))
def remove_always_all(damage: Damage) -> None:
    """Removing a parent always removes its children."""
    damage.argument("removeJob", 1, lambda _children: 1)


@mutant("flow.remove-at-work", kills=("flow.remove.parent",))
def remove_at_work(damage: Damage) -> None:
    """A child that a worker holds does not protect its parent."""
    damage.commands("removeJob", 'if command[1] == "GET" and on(command, "lock") then return false end')


@mutant("flow.removed-child-waited-for", kills=("flow.remove.child",))
def removed_child_waited_for(damage: Damage) -> None:
    """A parent waits on for a child that was removed."""
    damage.commands("removeJob", _NEVER_RELEASED)


@mutant("flow.children-kept", kills=("flow.remove.unprocessed",))
def children_kept(damage: Damage) -> None:
    """Removing the unprocessed children does nothing."""

    async def nothing(_job: JobChildren) -> None:
        return None

    damage.replace(JobChildren, "removeUnprocessedChildren", nothing)


@mutant("flow.children-at-work-removed", kills=("flow.remove.unprocessed",))
def children_at_work_removed(damage: Damage) -> None:
    """Removing the unprocessed children also removes those that a worker holds."""
    damage.commands("removeUnprocessedChildren", 'if command[1] == "GET" and on(command, "lock") then return false end')


@mutant("flow.unlink-releases-nobody", kills=("flow.unlink",))
def unlink_releases_nobody(damage: Damage) -> None:
    """A parent waits on for a child that was unlinked."""
    damage.commands("removeChildDependency", _NEVER_RELEASED)


@mutant("flow.unlink-always-true", kills=("flow.unlink",))
def unlink_always_true(damage: Damage) -> None:
    """Unlinking a child without parent is said to have worked."""

    def broken(unlink: Function) -> Function:
        async def remove_dependency(job: JobChildren) -> bool:
            return bool(await unlink(job)) or True

        return remove_dependency

    damage.around(JobChildren, "removeChildDependency", broken)
