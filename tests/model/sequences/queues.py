"""Everything that is asked of a queue as a whole."""

from __future__ import annotations

from conformance.driver.ops import queue

from .registry import on_queue

STATES = ["active", "completed", "delayed", "failed", "paused", "prioritized", "waiting", "waiting-children"]
on_queue(1, lambda _: queue.Pause())
on_queue(3, lambda _: queue.Resume())
on_queue(0.5, lambda _: queue.IsPaused())
on_queue(
    2,
    lambda g: queue.GetJobs(
        types=g.rng.sample(STATES, g.rng.randint(0, 3)),
        start=g.rng.choice((0, 0, 1, -2)),
        end=g.rng.choice((-1, -1, 0, 2)),
        asc=g.maybe(0.5),
    ),
)
on_queue(1, lambda g: queue.GetJobCounts(types=g.rng.sample(STATES, g.rng.randint(0, 3))))
on_queue(0.5, lambda g: queue.GetJobCountByTypes(types=g.rng.sample(STATES, g.rng.randint(0, 3))))
on_queue(0.5, lambda _: queue.CountPending())
on_queue(0.5, lambda _: queue.GetCountsPerPriority(priorities=[0, 1, 2, 1]))
on_queue(0.7, lambda g: queue.Drain(delayed=g.maybe(0.5)))
on_queue(
    2,
    lambda g: queue.Clean(
        grace_ms=g.rng.choice((0, 0, 1_000, 60_000)),
        limit=g.rng.choice((0, 1, 2)),
        type=g.rng.choice(("completed", "wait", "active", "paused", "prioritized", "delayed", "failed")),
    ),
)
on_queue(0.4, lambda g: queue.Obliterate(force=g.maybe(0.7), count=g.rng.choice((1, 2, 1_000))))
on_queue(
    1,
    lambda g: queue.RetryJobs(
        count=g.rng.choice((1, 2, 1_000)),
        state=g.rng.choice(("completed", "failed")),
        timestamp=g.rng.choice((None, 1_700_000_001_000)),
    ),
)
on_queue(0.7, lambda g: queue.PromoteJobs(count=g.rng.choice((1, 1_000))))
on_queue(0.2, lambda g: queue.TrimEvents(max_length=g.rng.choice((0, 10_000))))
on_queue(1, lambda g: queue.GetMetrics(type=g.rng.choice(("completed", "failed")), start=0, end=g.rng.choice((-1, 0))))
on_queue(0.7, lambda g: queue.SetGlobalConcurrency(concurrency=g.rng.choice((1, 2, 5))))
on_queue(0.7, lambda _: queue.RemoveGlobalConcurrency())
on_queue(0.3, lambda _: queue.GetGlobalConcurrency())
on_queue(0.4, lambda g: queue.SetGlobalRateLimit(max=g.rng.choice((1, 3)), duration_ms=g.rng.choice((10_000, 30_000))))
on_queue(0.6, lambda _: queue.RemoveGlobalRateLimit())
on_queue(0.3, lambda _: queue.GetGlobalRateLimit())
on_queue(0.3, lambda g: queue.SetRateLimit(expire_ms=g.rng.choice((10_000, 50_000))))
on_queue(0.5, lambda _: queue.RemoveRateLimitKey())
on_queue(0.5, lambda g: queue.GetRateLimitTtl(max_jobs=g.rng.choice((None, 1, 2, 0))))
on_queue(0.5, lambda _: queue.IsMaxed())
on_queue(0.2, lambda _: queue.GetVersion())
on_queue(0.5, lambda g: queue.GetDeduplicationJobId(id=g.rng.choice(("d1", "d2"))))
on_queue(0.5, lambda g: queue.RemoveDeduplicationKey(id=g.rng.choice(("d1", "d2"))))
on_queue(0.2, lambda _: queue.GetWorkers())
on_queue(0.2, lambda _: queue.GetWorkersCount())
