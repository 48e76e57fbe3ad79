"""What a manual worker can do with a job that it holds: renewing its lock, putting it back."""

from __future__ import annotations

from .steps import PREFIX, add, case, do, queue, redis, take, tick, worker

_HELD = (queue(), worker(), add(), take())
_LATER = 1_700_000_005_000

CASES = (
    case(
        "extend-lock", *_HELD, do("worker.extendLock", job="1", token="t", duration_ms=60_000), lock_duration_ms=60_000
    ),
    case("extend-foreign-lock", *_HELD, do("worker.extendLock", job="1", token="x", duration_ms=9)),
    case(
        "extend-no-lock",
        queue(),
        worker(),
        add(),
        do("worker.extendLock", job="1", token="t", duration_ms=9),
        do("worker.extendLock", job="404", token="t", duration_ms=9),
    ),
    case(
        "extend-locks",
        queue(),
        worker(),
        add(),
        add(),
        take("a"),
        take("b"),
        do("worker.extendLocks", jobs=["1", "2", "9"], tokens=["a", "x", "y"], duration_ms=5000),
    ),
    case("extend-no-locks", queue(), worker(), do("worker.extendLocks", jobs=[], tokens=[], duration_ms=5000)),
    case(
        "to-delayed",
        *_HELD,
        do("worker.moveToDelayed", job="1", token="t", timestamp=_LATER),
        take("u"),
        tick(5000),
        take("v"),
    ),
    case("to-delayed-in-the-past", *_HELD, do("worker.moveToDelayed", job="1", token="t", timestamp=5), take("u")),
    case(
        "to-delayed-prioritized",
        queue(),
        worker(),
        add(priority=4),
        take(),
        do("worker.moveToDelayed", job="1", token="t", timestamp=_LATER),
        tick(5000),
        take("v"),
    ),
    case("to-delayed-foreign-lock", *_HELD, do("worker.moveToDelayed", job="1", token="x", timestamp=_LATER)),
    case(
        "to-delayed-not-claimed",
        queue(),
        worker(),
        add(),
        do("worker.moveToDelayed", job="1", token="t", timestamp=_LATER),
        do("worker.moveToDelayed", job="404", token="t", timestamp=_LATER),
    ),
    case(
        "to-delayed-no-longer-active",
        *_HELD,
        redis("DEL", f"{PREFIX}:q:active"),
        do("worker.moveToDelayed", job="1", token="t", timestamp=_LATER),
    ),
    case(
        "to-wait", queue(), worker(), add("a"), add("b"), take(), do("worker.moveToWait", job="1", token="t"), take("u")
    ),
    case(
        "to-wait-prioritized",
        queue(),
        worker(),
        add(priority=4),
        add(priority=4),
        take(),
        do("worker.moveToWait", job="1", token="t"),
        take("u"),
    ),
    case("to-wait-paused", *_HELD, do("queue.pause"), do("worker.moveToWait", job="1", token="t")),
    case("to-wait-foreign-lock", *_HELD, do("worker.moveToWait", job="1", token="x")),
    case(
        "to-wait-not-claimed",
        queue(),
        worker(),
        add(),
        do("worker.moveToWait", job="1", token="t"),
        do("worker.moveToWait", job="404", token="t"),
    ),
    case(
        "to-wait-no-longer-active",
        *_HELD,
        redis("DEL", f"{PREFIX}:q:active"),
        do("worker.moveToWait", job="1", token="t"),
    ),
    case(
        "to-waiting-children-refused",
        *_HELD,
        do("worker.moveToWaitingChildren", job="1", token="x"),
        do("worker.moveToWaitingChildren", job="404", token="t"),
    ),
)
