"""Queue-wide settings: concurrency, rate limits, deduplication keys. They live in `meta` and in keys of their own."""

from __future__ import annotations

from typing import Final

from conformance.protocol import keys as names
from conformance.reference_impl.connection.connection import maybe_text
from conformance.reference_impl.queues.base import QueueBase

_LARGEST_SAFE_INTEGER: Final = 2**53 - 1


class QueueLimits(QueueBase):
    """The limiting half of Queue."""

    async def setGlobalConcurrency(self, concurrency: int) -> None:
        """At most this many jobs are active at a time, over all workers."""
        await self.connection.command("HSET", self._meta, "concurrency", concurrency)

    async def removeGlobalConcurrency(self) -> None:
        """No limit on active jobs."""
        await self.connection.command("HDEL", self._meta, "concurrency")

    async def getGlobalConcurrency(self) -> float | None:
        """Answer the limit on active jobs, None without one."""
        return _number(await self.connection.command("HGET", self._meta, "concurrency"))

    async def setGlobalRateLimit(self, max_jobs: int, duration: int) -> None:
        """At most `max_jobs` starts per `duration` ms, over all workers."""
        await self.connection.command("HSET", self._meta, "max", max_jobs, "duration", duration)

    async def removeGlobalRateLimit(self) -> None:
        """No queue-wide rate limit."""
        await self.connection.command("HDEL", self._meta, "max", "duration")

    async def getGlobalRateLimit(self) -> dict[str, float] | None:
        """`max` and `duration` (ms), None where one of them is not set."""
        max_jobs, duration = map(_number, await self.connection.command("HMGET", self._meta, "max", "duration"))
        return {"max": max_jobs, "duration": duration} if max_jobs is not None and duration is not None else None

    async def rateLimit(self, expireTimeMs: int) -> None:
        """Start nothing for so many ms; only workers that know a limit obey."""
        await self.connection.command("SET", self._limiter, _LARGEST_SAFE_INTEGER, "PX", expireTimeMs)

    async def removeRateLimitKey(self) -> int:
        """Forget the current rate window; answers the number of keys removed."""
        return int(await self.connection.command("DEL", self._limiter))

    async def getRateLimitTtl(self, maxJobs: int | None = None) -> int:
        """Ms until the next start is allowed; -2 where no window is open and no limit is known."""
        return await self.scripts.get_rate_limit_ttl(maxJobs)

    async def isMaxed(self) -> bool:
        """Whether the queue-wide concurrency is used up."""
        return await self.scripts.is_maxed()

    async def getDeduplicationJobId(self, deduplication_id: str) -> str | None:
        """Id of the job that owns a deduplication id."""
        key = self.keys.deduplication(deduplication_id)
        return maybe_text(await self.connection.command("GET", key))

    async def removeDeduplicationKey(self, deduplication_id: str) -> int:
        """Free a deduplication id; answers the number of keys removed."""
        return int(await self.connection.command("DEL", self.keys.deduplication(deduplication_id)))

    @property
    def _meta(self) -> str:
        return self.keys.key(names.META)

    @property
    def _limiter(self) -> str:
        return self.keys.key(names.LIMITER)


def _number(reply: bytes | None) -> float | None:
    return float(reply) if reply else None
