"""Children added with the option `parent`, and what becomes of their parents."""

from __future__ import annotations

from typing import Any

from tests.reference_impl.corpus.steps import (
    PREFIX,
    CorpusCase,
    DriverCall,
    Step,
    add,
    case,
    complete,
    do,
    fail,
    queue,
    redis,
    take,
    tick,
    worker,
)

_PARENT = {"id": "1", "queue": f"{PREFIX}:q"}
_PARENT_AND_CHILDREN = (
    do("job.getDependencies", job="1"),
    do("job.getDependenciesCount", job="1"),
    do("job.getChildrenValues", job="1"),
    do("job.getIgnoredChildrenFailures", job="1"),
)
_WAITING_PARENT = (
    add("parent"),
    take(),
    add("c", parent=_PARENT),
    do("worker.moveToWaitingChildren", job="1", token="t"),
)


def child(name: str = "child", **opts: Any) -> DriverCall:
    """A child of job 1."""
    return add(name, parent=_PARENT, **opts)


def _failing(name: str, *after: Step, **opts: Any) -> CorpusCase:
    """A parent waits for two children, the first of which fails."""
    return case(
        name,
        *(queue(), worker(), add("parent"), take(), child("bad", **opts), child("good", **opts)),
        *(
            do("worker.moveToWaitingChildren", job="1", token="t"),
            take("u"),
            fail("2", token="u"),
            *_PARENT_AND_CHILDREN,
        ),
        *(do("queue.getJobState", job="1"), *after),
    )


_NEXT_TWO = (take("v"), complete("3", "7", token="v", fetch=True), *_PARENT_AND_CHILDREN)

PARENT_CASES = (
    case(
        "linked", queue(), add("parent"), child("a"), child("b", delay=5), child("c", priority=1), *_PARENT_AND_CHILDREN
    ),
    case(
        "child-of-another-queue",
        queue(),
        queue("p"),
        add("x"),
        do("queue.add", name="n", opts={"parent": {"id": "9", "queue": f"{PREFIX}:p"}}),
    ),
    case(
        "with-a-custom-id", queue(), add("parent"), child("a", jobId="c"), child("a", jobId="c"), *_PARENT_AND_CHILDREN
    ),
    case(
        "taken-by-another-parent",
        queue(),
        add("p"),
        add("o"),
        child(jobId="c"),
        add(jobId="c", parent={**_PARENT, "id": "2"}),
    ),
    case(
        "adopted-after-completion",
        queue(),
        worker(),
        add("c", jobId="c"),
        take(),
        complete("c", "5"),
        add("parent", jobId="p"),
        add("c", jobId="c", parent={**_PARENT, "id": "p"}),
        do("job.getDependencies", job="p"),
    ),
    case(
        "completes",
        queue(),
        worker(),
        *_WAITING_PARENT,
        take("u"),
        complete("2", '{"r":1.0}', token="u", fetch=True),
        *_PARENT_AND_CHILDREN,
    ),
    case(
        "parent-waits-for-two",
        queue(),
        worker(),
        add("parent"),
        take(),
        child("a"),
        child("b"),
        do("worker.moveToWaitingChildren", job="1", token="t"),
        take("u"),
        complete("2", token="u", fetch=True),
        complete("3", token="u", fetch=True),
        *_PARENT_AND_CHILDREN,
    ),
    case(
        "nothing-to-wait-for", queue(), worker(), add(), take(), do("worker.moveToWaitingChildren", job="1", token="t")
    ),
    case(
        "pending-children",
        queue(),
        worker(),
        add("parent"),
        take(),
        child(),
        complete("1"),
        do("queue.getJobState", job="1"),
    ),
    _failing("fails"),
    _failing("fails-its-parent", take("v"), fail("1", token="v"), failParentOnFailure=True),
    _failing("parent-goes-on", *_NEXT_TWO, continueParentOnFailure=True),
    _failing("is-ignored", *_NEXT_TWO, ignoreDependencyOnFailure=True),
    _failing("is-forgotten", *_NEXT_TWO, removeDependencyOnFailure=True),
    case(
        "fails-while-parent-is-active",
        queue(),
        worker(),
        add("parent"),
        take(),
        child(failParentOnFailure=True),
        take("u"),
        fail("2", token="u"),
        complete("1"),
        do("worker.moveToWaitingChildren", job="1", token="t"),
        do("job.getDependencies", job="1"),
    ),
    case(
        "fails-with-parent-gone",
        queue(),
        worker(),
        add("parent"),
        child(failParentOnFailure=True),
        redis("DEL", f"{PREFIX}:q:1"),
        redis("LREM", f"{PREFIX}:q:wait", 0, "1"),
        take(),
        fail("2"),
    ),
    case(
        "completes-with-parent-gone",
        queue(),
        worker(),
        add("parent"),
        child(),
        redis("DEL", f"{PREFIX}:q:1"),
        redis("LREM", f"{PREFIX}:q:wait", 0, "1"),
        take(),
        complete("2"),
    ),
    case("removed", queue(), worker(), *_WAITING_PARENT, do("job.remove", job="2"), *_PARENT_AND_CHILDREN),
    case("parent-removed-with-children", queue(), add("parent"), child("b", delay=9), do("job.remove", job="1")),
    case("parent-removed-alone", queue(), add("parent"), child("a"), do("job.remove", job="1", remove_children=False)),
    case(
        "parent-removed-while-a-child-runs",
        queue(),
        worker(),
        add("parent"),
        take(),
        child(),
        take("u"),
        redis("DEL", f"{PREFIX}:q:1:lock"),
        do("queue.remove", job="1"),
        do("job.remove", job="1"),
    ),
    case(
        "dependency-removed",
        queue(),
        worker(),
        *_WAITING_PARENT,
        do("job.removeChildDependency", job="2"),
        do("job.removeChildDependency", job="2"),
        *_PARENT_AND_CHILDREN,
    ),
    case(
        "dependency-of-no-child",
        queue(),
        add(),
        do("job.removeChildDependency", job="1"),
        do("job.removeChildDependency", job="404"),
    ),
    case(
        "dependency-on-a-parent-gone",
        queue(),
        add("parent"),
        child(),
        redis("DEL", f"{PREFIX}:q:1"),
        do("job.removeChildDependency", job="2"),
    ),
    case(
        "unprocessed-removed",
        queue(),
        worker(),
        *_WAITING_PARENT,
        do("job.removeUnprocessedChildren", job="1"),
        *_PARENT_AND_CHILDREN,
    ),
    case(
        "unprocessed-of-no-parent",
        queue(),
        add(),
        do("job.removeUnprocessedChildren", job="1"),
        do("job.removeUnprocessedChildren", job="404"),
    ),
    case(
        "retried-child",
        queue(),
        worker(),
        *_WAITING_PARENT,
        take("u"),
        fail("2", token="u"),
        do("job.retry", job="2"),
        *_PARENT_AND_CHILDREN,
    ),
    case(
        "retried-forgiven-child",
        queue(),
        worker(),
        add("p"),
        take(),
        child(ignoreDependencyOnFailure=True),
        do("worker.moveToWaitingChildren", job="1", token="t"),
        take("u"),
        fail("2", token="u"),
        tick(5),
        do("job.retry", job="2"),
        *_PARENT_AND_CHILDREN,
    ),
    case("dependencies-of-nothing", queue(), *_PARENT_AND_CHILDREN),
)
