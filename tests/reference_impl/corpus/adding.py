"""Queue.add: every job option of 5.62.0, alone and together."""

from __future__ import annotations

from typing import Any

from .steps import Case, Do, Step, add, case, do, queue


def _twice(name: str, **opts: Any) -> Case:
    """Add two jobs with the same options, and read what became of them."""
    return case(name, queue(), add("first", '{"a":1}', **opts), add("second", **opts), *_read("1"))


def _read(job: str) -> tuple[Step, ...]:
    return do("queue.getJob", job=job), do("queue.getJobCounts", types=[])


def _with_defaults(**opts: Any) -> Do:
    return queue(defaultJobOptions=opts)


CASES = (
    _twice("no-options"),
    _twice("delay", delay=5000),
    _twice("delay-of-a-tenth", delay=0.1),
    _twice("delay-with-fraction", delay=1.5),
    _twice("delay-zero", delay=0),
    _twice("delay-negative", delay=-5),
    _twice("delay-as-text", delay="10"),
    _twice("delay-of-a-century", delay=3_155_760_000_000),
    case("delays-of-one-instant", queue(), *[add(f"n{number}", delay=7) for number in range(5)]),
    _twice("priority", priority=7),
    _twice("priority-zero", priority=0),
    _twice("priority-at-its-limit", priority=2_097_152),
    _twice("priority-negative", priority=-3),
    _twice("priority-and-delay", priority=2, delay=10),
    _twice("priority-and-lifo", priority=3, lifo=True),
    case("priorities-mixed", queue(), *[add(f"n{value}", priority=value) for value in (5, 1, 3, 1, 0, 5)]),
    _twice("lifo", lifo=True),
    _twice("lifo-false", lifo=False),
    case("lifo-among-others", queue(), add("a"), add("b", lifo=True), add("c"), add("d", lifo=True)),
    _twice("job-id", jobId="mine"),
    _twice("job-id-of-three-parts", jobId="a:b:c"),
    _twice("job-id-empty", jobId=""),
    _twice("job-id-like-a-number", jobId="012"),
    _twice("job-id-beyond-ascii", jobId="é-\U0001f600"),
    _twice("job-id-of-a-queue-key", jobId="meta"),
    _twice("timestamp", timestamp=1_234_567_890_123),
    _twice("timestamp-zero", timestamp=0),
    _twice("timestamp-with-fraction", timestamp=1_700_000_000_000.5),
    _twice("timestamp-and-delay", timestamp=1_600_000_000_000, delay=1000),
    _twice("attempts", attempts=3),
    _twice("attempts-zero", attempts=0),
    _twice("attempts-null", attempts=None),
    _twice("backoff-as-number", attempts=3, backoff=100),
    _twice("backoff-zero", backoff=0),
    _twice("backoff-null", backoff=None),
    _twice("backoff-fixed", attempts=3, backoff={"type": "fixed", "delay": 10}),
    _twice("backoff-jitter", attempts=3, backoff={"type": "fixed", "delay": 10, "jitter": 0.5}),
    _twice("backoff-jitter-of-all", backoff={"type": "exponential", "delay": 10, "jitter": 1}),
    _twice("backoff-exponential", backoff={"type": "exponential", "delay": 1.5}),
    _twice("backoff-of-ones-own", backoff={"type": "mine"}),
    _twice("remove-on-complete", removeOnComplete=True),
    _twice("remove-on-complete-number", removeOnComplete=5),
    _twice("remove-on-fail", removeOnFail=True),
    _twice("remove-on-fail-age-and-count", removeOnFail={"age": 10, "count": 3}),
    _twice("remove-nothing", removeOnComplete=False, removeOnFail=False),
    _twice("keep-logs", keepLogs=3),
    _twice("stack-trace-limit", stackTraceLimit=2),
    _twice("size-limit-just-kept", sizeLimit=7),
    _twice("fail-parent-on-failure", failParentOnFailure=True),
    _twice("continue-parent-on-failure", continueParentOnFailure=True),
    _twice("ignore-dependency-on-failure", ignoreDependencyOnFailure=True),
    _twice("remove-dependency-on-failure", removeDependencyOnFailure=True),
    _twice("flags-that-are-false", failParentOnFailure=False, removeDependencyOnFailure=False),
    _twice("telemetry", telemetry={"metadata": "m", "omitContext": True}),
    _twice("telemetry-metadata-only", telemetry={"metadata": '{"traceparent":"00"}'}),
    _twice("telemetry-empty", telemetry={}),
    _twice("repeat-job-key", repeatJobKey="k"),
    _twice("prev-millis", prevMillis=1_700_000_000_000),
    _twice("unknown-option", zz=1, aa={"b": [1, None]}),
    _twice("stored-names-as-options", de={"id": "d"}, kl=3, fpof=True),
    _twice(
        "all-at-once", delay=3, attempts=2, backoff=5, lifo=True, keepLogs=1, removeOnFail=9, timestamp=5, sizeLimit=99
    ),
    case("default-options", _with_defaults(attempts=4, backoff=7, delay=20), add("a"), add("b", attempts=1, delay=0)),
    case(
        "default-options-nested", _with_defaults(removeOnComplete={"count": 5}), add("a", removeOnComplete={"age": 1})
    ),
    case("default-priority-and-lifo", _with_defaults(priority=4, lifo=True), add("a"), add("b", priority=0)),
    case("default-limits", _with_defaults(keepLogs=2, stackTraceLimit=1, sizeLimit=4), add("a"), add("b", '{"c":1}')),
    case(
        "into-a-paused-queue",
        queue(),
        do("queue.pause"),
        add("a"),
        add("b", lifo=True),
        add("c", priority=1),
        add(delay=9),
    ),
    case("into-a-full-queue", queue(), do("queue.setGlobalConcurrency", concurrency=1), add("a"), add("b", priority=1)),
)
