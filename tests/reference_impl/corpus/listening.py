"""Readers of the event stream, and waiting for a job."""

from __future__ import annotations

from .steps import PREFIX, Case, Step, add, case, close, complete, do, events, fail, queue, redis, take, wait, worker

_EVENT = wait("queue-event", at="e")


def _heard(name: str, count: int, *steps: Step) -> Case:
    return case(name, queue(), worker(), events(), *steps, *[_EVENT] * count, close("e"))


CASES = (
    _heard("added", 4, add("a"), add("b", delay=5)),
    _heard("life-of-a-job", 5, add(), take(), complete("1", '{"v":[1]}')),
    _heard("failure", 7, add(attempts=2), take(), fail("1", "é"), take(), fail("1")),
    _heard("progress", 3, add(), do("job.updateProgress", job="1", value_raw='{"p":1.5}')),
    _heard(
        "control", 4, do("queue.pause"), do("queue.resume"), do("queue.clean", grace_ms=0, limit=0, type="wait"), add()
    ),
    _heard("duplicates", 5, add(jobId="x"), add(jobId="x"), add(jobId="y", deduplication={"id": "d"})),
    _heard(
        "of-another-client",
        1,
        redis("XADD", f"{PREFIX}:q:events", "*", "event", "custom", "some", "field", "data", "{}"),
    ),
    case("from-the-start", queue(), add("a"), events(lastEventId="0-0"), _EVENT, _EVENT, close("e")),
    case("not-started", queue(), events(autorun=False), add("a"), close("e")),
    case(
        "finished-before",
        queue(),
        worker(),
        events(),
        add(),
        take(),
        complete("1", '{"v":1}'),
        do("job.waitUntilFinished", job="1", events="e"),
    ),
    case(
        "failed-before",
        queue(),
        worker(),
        events(),
        add(),
        take(),
        fail("1", "why"),
        do("job.waitUntilFinished", job="1", events="e"),
    ),
    case("not-in-time", queue(), events(), add(), do("job.waitUntilFinished", job="1", events="e", ttl_ms=20)),
    case("no-such-job", queue(), events(), do("job.waitUntilFinished", job="404", events="e", ttl_ms=20)),
)
