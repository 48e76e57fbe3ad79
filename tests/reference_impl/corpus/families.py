"""FlowProducer: adding trees of jobs, reading them back, and how they end.

A tree that is read back has at most one child of each kind: the order of the members of a Redis set depends on the
prefix, which always differs between the two sides.
"""

from __future__ import annotations

from typing import Any

from tests.reference_impl.corpus.steps import (
    PREFIX,
    CorpusCase,
    DriverCall,
    Step,
    add,
    case,
    close,
    complete,
    do,
    fail,
    flows,
    node,
    on,
    queue,
    take,
    tick,
    worker,
)

_WORKED = (queue(), worker(), flows())
_READ = do("flow.getFlow", job="root", queue="q")
_FLOW = (
    on("q", "job.getDependencies", job="root"),
    on("q", "job.getDependenciesCount", job="root"),
    on("q", "job.getChildrenValues", job="root"),
    on("q", "job.getIgnoredChildrenFailures", job="root"),
    on("q", "job.getState", job="root"),
)


def _grow(*children: dict[str, Any], **opts: Any) -> DriverCall:
    """Add a flow with the root `root`."""
    return do("flow.add", flow=node("root", "q", *children, jobId="root", **opts))


_TWO = _grow(node("m", "q", jobId="mid"))
_THREE = _grow(node("m", "q", node("l", "q", jobId="leaf"), jobId="mid"))


def _option(name: str, **opts: Any) -> CorpusCase:
    """A flow whose root and child have the same options."""
    return case(f"option-{name}", flows(), do("flow.add", flow=node("p", "q", node("c", "q", **opts), **opts)))


def _failing(name: str, *after: Step, **opts: Any) -> CorpusCase:
    """The first of two children of a waiting root fails."""
    grown = _grow(node("bad", "q", jobId="bad", **opts), node("good", "q", jobId="good", delay=50))
    return case(name, *_WORKED, grown, take(), fail("bad"), *_FLOW, _READ, *after)


FLOW_CASES = (
    case("single-job", flows(), do("flow.add", flow=node("only", "q", data='{"a":1}'))),
    case("parent-and-child", flows(), do("flow.add", flow=node("p", "q", node("c", "r", data="[1]"), data='"p"'))),
    case("three-levels", *_WORKED, _grow(node("m", "q", node("l", "r", jobId="leaf"), jobId="mid")), _READ),
    case(
        "many-branches",
        flows(),
        _grow(
            node("a", "q", node("a1", "q"), node("a2", "r", node("deep", "s"))),
            *(node("b", "r", delay=9), node("c", "q", priority=2, jobId="c"), node("d", "t", lifo=True)),
        ),
    ),
    case(
        "bulk",
        flows(),
        do("flow.addBulk", flows=[node("a", "q", node("x", "q")), node("b", "r"), node("c", "q", node("y", "s"))]),
    ),
    case("bulk-empty", flows(), do("flow.addBulk", flows=[])),
    _option("delay", delay=500),
    _option("priority", priority=3),
    _option("attempts-and-backoff", attempts=3, backoff={"type": "exponential", "delay": 10}),
    _option("timestamp", timestamp=1_234_567_890_123),
    _option("keep", removeOnComplete=True, removeOnFail={"age": 5}),
    _option("limits", keepLogs=2, stackTraceLimit=1, sizeLimit=100),
    _option("telemetry", telemetry={"metadata": "m", "omitContext": True}),
    _option("fail-parent", failParentOnFailure=True),
    _option("continue-parent", continueParentOnFailure=True),
    _option("ignore-dependency", ignoreDependencyOnFailure=True),
    _option("remove-dependency", removeDependencyOnFailure=True),
    case(
        "option-deduplication",
        *(flows(), _grow(node("a", "q", jobId="a", deduplication={"id": "d", "ttl": 60_000}))),
        _grow(node("b", "q", jobId="b", deduplication={"id": "d", "ttl": 60_000})),
    ),
    _option("lifo", lifo=True),
    _option("unknown", custom={"a": [1]}),
    case(
        "below-a-parent",
        *_WORKED,
        add("p"),
        do("flow.add", flow=node("c", "q", node("g", "q"), parent={"id": "1", "queue": f"{PREFIX}:q"})),
    ),
    case(
        "below-no-parent",
        *_WORKED,
        do("flow.add", flow=node("c", "q", node("g", "q"), parent={"id": "404", "queue": f"{PREFIX}:q"})),
    ),
    case("same-id-twice", *_WORKED, _grow(node("a", "q", jobId="a")), _grow(node("b", "q", jobId="b")), *_FLOW[1:]),
    case("child-that-exists", *_WORKED, add("x", jobId="x"), _grow(node("x", "q", jobId="x")), *_FLOW),
    case(
        "child-of-another-root",
        *_WORKED,
        _grow(node("x", "q", jobId="x")),
        do("flow.add", flow=node("r2", "q", node("x", "q", jobId="x"), jobId="r2")),
        *_FLOW,
    ),
    case(
        "child-already-completed",
        *_WORKED,
        add("x", jobId="x"),
        take(),
        complete("x", "[5]"),
        _grow(node("x", "q", jobId="x")),
        *_FLOW,
    ),
    case("into-a-paused-queue", *_WORKED, do("queue.pause"), _grow(node("a", "q"), node("b", "q", priority=1))),
    case("refused-id", *_WORKED, do("flow.add", flow=node("p", "q", node("c", "q", jobId="a:b"))), do("queue.count")),
    case("refused-integer-id", *_WORKED, do("flow.add", flow=node("p", "q", jobId="12")), do("queue.count")),
    case(
        "refused-priority",
        *_WORKED,
        do("flow.add", flow=node("p", "q", node("c", "q", priority=1.5))),
        do("queue.count"),
    ),
    case(
        "refused-size",
        *_WORKED,
        do("flow.addBulk", flows=[node("p", "q"), node("big", "q", data='"xxxxx"', sizeLimit=2)]),
    ),
    case("refused-flags", *_WORKED, _grow(node("c", "q", failParentOnFailure=True, removeDependencyOnFailure=True))),
    case("read-nothing", flows(), do("flow.getFlow", job="404", queue="q")),
    case(
        "read-in-part",
        *_WORKED,
        _THREE,
        *[do("flow.getFlow", job="root", queue="q", depth=depth) for depth in (1, 2, 3)],
    ),
    case("read-few-children", *_WORKED, _TWO, do("flow.getFlow", job="root", queue="q", max_children=1)),
    case("read-with-a-hole", *_WORKED, _TWO, do("queue.remove", job="mid", remove_children=False), _READ),
    case(
        "completes",
        *_WORKED,
        _grow(node("c", "q", jobId="c"), data=""),
        take(),
        complete("c", '{"v":1.0}', fetch=True),
        *_FLOW,
        complete("root"),
        _READ,
    ),
    case(
        "completes-delayed-root",
        *_WORKED,
        _grow(node("c", "q", jobId="c"), delay=500),
        take(),
        complete("c", fetch=True),
        *_FLOW,
    ),
    case(
        "completes-prioritized-root",
        *_WORKED,
        _grow(node("c", "q", jobId="c"), priority=5),
        take(),
        complete("c"),
        *_FLOW,
    ),
    case(
        "completes-in-another-queue",
        queue(),
        worker("x", of="r"),
        flows(),
        _grow(node("c", "r", jobId="c")),
        take(at="x"),
        complete("c", "1", at="x"),
        *_FLOW,
    ),
    case("fails", *_WORKED, _grow(node("bad", "q", jobId="bad")), take(), fail("bad"), *_FLOW, _READ),
    _failing("fails-its-parent", take("u"), fail("root", token="u"), failParentOnFailure=True),
    _failing("parent-goes-on", take("u"), complete("root", token="u"), continueParentOnFailure=True),
    _failing(
        "is-ignored",
        tick(50),
        take("u"),
        complete("good", "1", token="u", fetch=True),
        *_FLOW,
        ignoreDependencyOnFailure=True,
    ),
    _failing(
        "is-forgotten",
        tick(50),
        take("u"),
        complete("good", "1", token="u", fetch=True),
        *_FLOW,
        removeDependencyOnFailure=True,
    ),
    case(
        "fails-up-to-the-root",
        *(
            *_WORKED,
            _grow(
                node(
                    "m",
                    "q",
                    node("l", "q", jobId="leaf", failParentOnFailure=True),
                    jobId="mid",
                    failParentOnFailure=True,
                )
            ),
        ),
        *(take(), fail("leaf"), take("u"), fail("mid", token="u"), take("v"), *_FLOW),
    ),
    case("removed-with-its-root", *_WORKED, _THREE, do("job.remove", job="root")),
    case("removed-without-its-root", *_WORKED, _THREE, do("job.remove", job="leaf"), *_FLOW),
    case("unprocessed-removed", *_WORKED, _TWO, do("job.removeUnprocessedChildren", job="root"), *_FLOW),
    case("drained", *_WORKED, _TWO, do("queue.drain"), do("queue.getJobCounts", types=[])),
    case("obliterated", *_WORKED, _TWO, do("queue.obliterate", force=True), do("queue.getJobCounts", types=[])),
    case(
        "counted",
        *_WORKED,
        _TWO,
        do("queue.getJobCounts", types=[]),
        do("queue.getJobs", types=["waiting-children"]),
        do("queue.count"),
    ),
    case("of-a-closed-producer", flows(), close("f"), do("flow.add", flow=node("p", "q"))),
)
