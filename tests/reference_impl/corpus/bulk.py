"""Queue.addBulk: one pipeline, one script per job."""

from __future__ import annotations

from .steps import PREFIX, add, add_bulk, case, do, one, queue

CASES = (
    case("empty", queue(), add_bulk()),
    case("one", queue(), add_bulk(one("a", '{"x":1}')), do("queue.getJob", job="1")),
    case("many", queue(), add_bulk(*[one(f"n{number}", str(number)) for number in range(60)])),
    case(
        "every-kind", queue(), add_bulk(one(), one(delay=5), one(priority=3), one(lifo=True), one(delay=5, priority=1))
    ),
    case("ids", queue(), add_bulk(one(jobId="a"), one(), one(jobId="a"), one(jobId="b")), do("queue.count")),
    case(
        "options", queue(), add_bulk(one(attempts=2, backoff=5), one(keepLogs=1), one(timestamp=1, removeOnFail=True))
    ),
    case("default-options", queue(defaultJobOptions={"attempts": 3}), add_bulk(one(), one(attempts=1))),
    case("deduplication", queue(), add_bulk(*[one(f"n{n}", deduplication={"id": "d"}) for n in range(3)])),
    case(
        "parents",
        *(queue(), add("parent"), add("other")),
        add_bulk(
            one("child", parent={"id": "1", "queue": f"{PREFIX}:q"}),
            one("orphan", parent={"id": "9", "queue": f"{PREFIX}:q"}),
            one("child", jobId="c", parent={"id": "1", "queue": f"{PREFIX}:q"}),
            one("taken", jobId="c", parent={"id": "2", "queue": f"{PREFIX}:q"}),
        ),
        do("job.getDependencies", job="1"),
    ),
    case("paused", queue(), do("queue.pause"), add_bulk(one("a"), one("b", priority=2), one("c", delay=3))),
)
