"""One job: data, progress, logs, priority, delay, promotion, state."""

from __future__ import annotations

from typing import Any

from tests.reference_impl.corpus.steps import CorpusCase, Step, add, case, complete, do, fail, queue, take, tick, worker

_LOGS = do("queue.getJobLogs", job="1")


def _rows(count: int, **more: Any) -> tuple[Step, ...]:
    return tuple(do("job.log", job="1", row=f"row {number} é", **more) for number in range(count))


def _progress(name: str, text: str) -> CorpusCase:
    return case(
        f"progress-{name}",
        queue(),
        add(),
        do("job.updateProgress", job="1", value_raw=text),
        do("queue.getJob", job="1"),
    )


EDIT_CASES = (
    case(
        "data",
        queue(),
        add("a", '{"x":1}'),
        do("job.updateData", job="1", data_raw='{"y": [1.0]}'),
        do("queue.getJob", job="1"),
    ),
    case("data-of-no-job", queue(), do("job.updateData", job="404", data_raw="1")),
    _progress("number", "50"),
    _progress("fraction", "33.30"),
    _progress("text", '"half é"'),
    _progress("object", '{"done":[1,2]}'),
    _progress("boolean", "true"),
    case("progress-of-no-job", queue(), do("job.updateProgress", job="404", value_raw="1")),
    case("logs", queue(), add(), *_rows(3), _LOGS),
    case("logs-kept", queue(), add(), *_rows(4, keep_logs=2), _LOGS),
    case("logs-kept-by-option", queue(), add(keepLogs=2), *_rows(4), _LOGS),
    case("logs-empty-row", queue(), add(), do("job.log", job="1", row=""), _LOGS),
    case(
        "logs-of-no-job",
        queue(),
        do("job.log", job="404", row="r"),
        do("queue.getJobLogs", job="404"),
        do("job.clearLogs", job="404"),
    ),
    case(
        "logs-ranges",
        queue(),
        add(),
        *_rows(5),
        *[
            do("queue.getJobLogs", job="1", start=start, end=end, asc=asc)
            for start, end in ((0, 1), (1, 3), (-2, -1), (9, 12))
            for asc in (True, False)
        ],
    ),
    case("logs-cleared", queue(), add(), *_rows(3), do("job.clearLogs", job="1"), _LOGS),
    case(
        "logs-cleared-but-some",
        queue(),
        add(),
        *_rows(3),
        do("job.clearLogs", job="1", keep_logs=1),
        _LOGS,
        do("job.clearLogs", job="1", keep_logs=0),
        _LOGS,
    ),
    case("promote", queue(), add(delay=500), do("job.promote", job="1"), do("queue.getJob", job="1")),
    case("promote-prioritized", queue(), add(delay=500, priority=3), do("job.promote", job="1")),
    case("promote-paused", queue(), add(delay=500), do("queue.pause"), do("job.promote", job="1")),
    case("promote-not-delayed", queue(), add(), do("job.promote", job="1"), do("job.promote", job="404")),
    case(
        "change-delay",
        queue(),
        add(delay=500),
        tick(100),
        do("job.changeDelay", job="1", delay_ms=2500),
        do("queue.getJob", job="1"),
    ),
    case("change-delay-to-zero", queue(), add(delay=500), do("job.changeDelay", job="1", delay_ms=0)),
    case(
        "change-delay-not-delayed",
        queue(),
        add(),
        do("job.changeDelay", job="1", delay_ms=5),
        do("job.changeDelay", job="404", delay_ms=5),
    ),
    case(
        "change-priority",
        queue(),
        add("a"),
        add("b"),
        do("job.changePriority", job="1", priority=5),
        do("queue.getJob", job="1"),
    ),
    case(
        "change-priority-lifo",
        queue(),
        add(priority=5),
        add(priority=5),
        do("job.changePriority", job="2", priority=5, lifo=True),
    ),
    case("change-priority-to-none", queue(), add(priority=5), do("job.changePriority", job="1", priority=0)),
    case(
        "change-priority-to-none-lifo",
        queue(),
        add("w"),
        add(priority=5),
        do("job.changePriority", job="2", priority=0, lifo=True),
    ),
    case(
        "change-priority-paused",
        queue(),
        add(),
        do("queue.pause"),
        do("job.changePriority", job="1", priority=2),
        do("queue.resume"),
    ),
    case(
        "change-priority-of-delayed",
        queue(),
        add(delay=9),
        do("job.changePriority", job="1", priority=2),
        do("job.promote", job="1"),
    ),
    case("change-priority-beyond-limit", queue(), add(), do("job.changePriority", job="1", priority=99_999_999)),
    case("change-priority-of-no-job", queue(), do("job.changePriority", job="404", priority=1)),
    case(
        "states",
        queue(),
        worker(),
        add("c"),
        add("f"),
        add("a"),
        take("x"),
        take("y"),
        take("z"),
        complete("1", token="x"),
        fail("2", token="y"),
        add("w"),
        add("d", delay=9),
        add("p", priority=1),
        *[
            do(op, job=job)
            for job in ("1", "2", "3", "4", "5", "6", "404")
            for op in ("queue.getJobState", "job.getState", "job.isFinished")
        ],
    ),
    case("state-when-paused", queue(), add(), do("queue.pause"), do("job.getState", job="1")),
)
