"""Invariants about parents and children."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from conformance.checkers.base import Check, Found, View
from conformance.observe.layout import split_key


def _one_dependency_kind(view: View) -> Iterator[Found]:
    """A child stands in at most one of its parent's four keys."""
    kinds: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for row in view.snapshot.dependencies:
        kinds[row.queue, row.parent, row.child].append(row.kind)
    for (queue, parent, child), found in sorted(kinds.items()):
        if len(found) > 1:
            message = f"the child {child} is {' and '.join(sorted(found))}"
            yield Found(where=f"dependency.{min(found)}", key=f"{queue}:{parent}", message=message)


def _pending_children(view: View) -> Iterator[Found]:
    """A pending child exists and has not completed. Children under another prefix cannot be seen from here."""
    for row in view.snapshot.dependencies:
        queue, child = split_key(view.snapshot.prefix, row.child)
        if row.kind != "pending" or not child:
            continue
        if (queue, child) not in view.jobs:
            message = f"the pending child {row.child} does not exist"
            yield Found(where="dependency.pending", key=f"{row.queue}:{row.parent}", message=message)
        elif "completed" in view.states.get((queue, child), []):
            message = f"the pending child {row.child} has completed"
            yield Found(where="dependency.pending", key=f"{row.queue}:{row.parent}", message=message)


def _waits_for_something(view: View) -> Iterator[Found]:
    """A job in `waiting-children` has a pending child, or it waits for ever."""
    waited_for = {(row.queue, row.parent) for row in view.snapshot.dependencies if row.kind == "pending"}
    for row in view.snapshot.memberships:
        if row.container == "waiting-children" and (row.queue, row.job) not in waited_for:
            message = "the job waits for children, and none is pending"
            yield Found(where="dependency.pending", key=f"{row.queue}:{row.job}", message=message)


def _dependencies_of_jobs(view: View) -> Iterator[Found]:
    """Children, logs: what belongs to a job goes away with it."""
    owners = {("dependency", row.queue, row.parent) for row in view.snapshot.dependencies}
    owners |= {("log", row.queue, row.job) for row in view.snapshot.logs}
    for where, queue, job in sorted(owners):
        if (queue, job) not in view.jobs:
            yield Found(where=where, key=f"{queue}:{job}", message="the job that owns this key does not exist")


CHECKS: tuple[Check[View], ...] = (
    Check(
        name="one-dependency-kind",
        severity="breaks-others",
        source="includes/updateParentDepsIfNeeded.lua",
        predicate=_one_dependency_kind,
    ),
    Check(
        name="pending-children",
        severity="breaks-others",
        source="includes/removeParentDependencyKey.lua",
        predicate=_pending_children,
    ),
    Check(
        name="waits-for-something",
        severity="breaks-others",
        source="includes/moveParentToWaitIfNoPendingDependencies.lua",
        predicate=_waits_for_something,
    ),
    Check(
        name="owned-keys",
        severity="wrong-behaviour",
        source="includes/removeJobKeys.lua",
        predicate=_dependencies_of_jobs,
    ),
)
