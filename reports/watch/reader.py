"""Reads the queues of a live store: no write, no command that blocks, and bounded parts of everything long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import NoPermissionError, ResponseError

from conformance.checkers.production import may_have_ended
from conformance.checkers.queue_looks import QueueLook, WorkerConnection
from conformance.observe.keyspace import split_key
from conformance.protocol import keys
from conformance.protocol.keys import QueueKeys, glob_escaped, is_queue_name
from conformance.protocol.states import DELAY_FACTOR, LIST_CONTAINERS, STATE_CONTAINERS, due_time
from conformance.servers.connection import Client, connect_node
from conformance.servers.setting import RedisUrl
from reports.watch.connections import workers_by_queue
from reports.watch.event_reader import EventReader

MOST_LOCKS = 200
"""Active jobs whose locks are read."""

MOST_SCHEDULES = 1000
"""Schedules of a queue that are checked, those with the earliest iterations."""

SCAN_COUNT = 1000
SCANS_A_LOOK = 100
"""Calls of SCAN between two looks; a large store is searched for new queues in several looks."""


@dataclass(frozen=True, kw_only=True)
class ReadingLimits:
    """`overdue_ms`: grace of delayed jobs. `settle_ms`: how long the time of an ended schedule has passed at least."""

    overdue_ms: int
    settle_ms: int


class LookReader:
    """Reads looks through one client. `only`: this queue; empty: all that have keys or workers under the prefix."""

    def __init__(self, client: Client, address: RedisUrl, prefix: str, only: str, limits: ReadingLimits) -> None:
        self._client: Any = client
        self._prefix = prefix
        self._only = only
        self._limits = limits
        self._nodes = {node: connect_node(address, node) for node in _nodes_of(self._client, address)}
        self._events: dict[str, EventReader] = {}
        self._queues: set[str] = {only} if only else set()
        self._search: Iterator[None] | None = None

    def close(self) -> None:
        """Close the connections to single nodes."""
        for node in self._nodes.values():
            node.close()

    def read(self) -> dict[str, QueueLook]:
        """One look for every queue. Raises redis errors."""
        now_ms = _now_ms(self._client)
        workers = workers_by_queue(self._prefix, {name: _connections(node) for name, node in self._nodes.items()})
        self._search_queues()
        self._queues |= set() if self._only else set(workers)
        return {queue: self._look(queue, now_ms, tuple(workers.get(queue, ()))) for queue in sorted(self._queues)}

    def _search_queues(self) -> None:
        """Continue the search for queues; the first one is complete."""
        if self._only:
            return
        if self._search is None:
            for _ in self._scan():
                pass
        elif next(self._search, self) is not self:
            return
        self._search = self._scan()

    def _scan(self) -> Iterator[None]:
        """Note all queues that have `meta`; yields after every SCANS_A_LOOK calls."""
        pattern, calls = f"{glob_escaped(self._prefix)}:*:{keys.META}", 0
        for node in self._nodes.values():
            cursor = -1
            while cursor != 0:
                untyped: Any = node
                cursor, found = untyped.scan(max(cursor, 0), match=pattern, count=SCAN_COUNT)
                for key in found:
                    queue, rest = split_key(self._prefix, key.decode("utf-8", "surrogateescape"))
                    if rest == keys.META and is_queue_name(queue):
                        self._queues.add(queue)
                calls += 1
                if calls % SCANS_A_LOOK == 0:
                    yield

    def _look(self, queue: str, now_ms: int, workers: tuple[WorkerConnection, ...]) -> QueueLook:
        names = QueueKeys(self._prefix, queue)
        events = self._events.setdefault(queue, EventReader(self._prefix, queue)).read(self._client)
        sizes, facts = self._facts(names, now_ms)
        active = sizes[keys.ACTIVE]
        return QueueLook(
            at_ms=now_ms,
            sizes=sizes,
            exists=facts.settings > 0,
            is_paused=facts.is_paused,
            is_held=facts.is_paused or facts.is_limited or facts.is_full(active),
            has_marker=facts.markers > 0,
            next_jobs=facts.next_jobs,
            events=events,
            workers=workers,
            holders=self._holders(names, facts.active, active) if active and workers else frozenset(),
            overdue=facts.overdue,
            overdue_ms=max(0, now_ms - int(due_time(facts.first_due))) if facts.overdue else 0,
            dead_schedules=self._dead_schedules(names, facts.schedules, now_ms),
        )

    def _facts(self, names: QueueKeys, now_ms: int) -> tuple[dict[str, int], _Facts]:
        pipeline = self._pipeline()
        for name in STATE_CONTAINERS:
            (pipeline.llen if name in LIST_CONTAINERS else pipeline.zcard)(_key(names, name))
        pipeline.hmget(_key(names, keys.META), "paused", "concurrency", "max")
        pipeline.hlen(_key(names, keys.META))
        pipeline.pttl(_key(names, keys.LIMITER))
        pipeline.get(_key(names, keys.LIMITER))
        pipeline.zcard(_key(names, keys.MARKER))
        pipeline.lindex(_key(names, keys.WAIT), -1)
        pipeline.zrange(_key(names, keys.PRIORITIZED), 0, 0)
        pipeline.zrange(_key(names, keys.DELAYED), 0, 0, withscores=True)
        pipeline.zcount(_key(names, keys.DELAYED), "-inf", (now_ms - self._limits.overdue_ms) * DELAY_FACTOR)
        pipeline.lrange(_key(names, keys.ACTIVE), 0, MOST_LOCKS - 1)
        pipeline.zrange(_key(names, keys.REPEAT), 0, MOST_SCHEDULES - 1, withscores=True)
        replies = _without_wrong_types(pipeline.execute(raise_on_error=False))
        sizes = {name: int(reply or 0) for name, reply in zip(STATE_CONTAINERS, replies, strict=False)}
        meta, settings, limited_ms, taken, markers, last, first, due, overdue, active, schedules = replies[
            len(STATE_CONTAINERS) :
        ]
        return sizes, _Facts(
            meta=tuple(map(_text, meta or (None, None, None))),
            settings=int(settings or 0),
            limited_ms=int(limited_ms or 0),
            taken=_text(taken),
            markers=int(markers or 0),
            next_jobs=(_text(last), *map(_text, first or ())),
            first_due=float(due[0][1]) if due else 0.0,
            overdue=int(overdue or 0),
            active=[_text(job) for job in active or ()],
            schedules=[(_text(member), int(score)) for member, score in schedules or ()],
        )

    def _holders(self, names: QueueKeys, active: Sequence[str], number: int) -> frozenset[str] | None:
        """Which workers hold locks: the first halves of the tokens (`WORKER:NUMBER`)."""
        if number > MOST_LOCKS:
            return None
        pipeline = self._pipeline()
        for job in active:
            pipeline.get(_key(names, f"{job}:{keys.LOCK}"))
        tokens = [_text(token) for token in _without_wrong_types(pipeline.execute(raise_on_error=False)) if token]
        return frozenset(token.rpartition(":")[0] or token for token in tokens)

    def _dead_schedules(
        self, names: QueueKeys, schedules: Sequence[tuple[str, int]], now_ms: int
    ) -> frozenset[tuple[str, int]]:
        """Schedules whose next iteration is gone, or has finished without another one after it."""
        if not schedules:
            return frozenset()
        pipeline = self._pipeline()
        for name, next_ms in schedules:
            pipeline.exists(_key(names, f"{keys.REPEAT}:{name}:{next_ms}"))
        exist = _without_wrong_types(pipeline.execute(raise_on_error=False))
        suspects = [
            each
            for each, exists in zip(schedules, exist, strict=True)
            if not exists or each[1] < now_ms - self._limits.settle_ms
        ]
        return frozenset(self._ended(names, suspects, now_ms))

    def _ended(self, names: QueueKeys, suspects: Sequence[tuple[str, int]], now_ms: int) -> Iterator[tuple[str, int]]:
        pipeline = self._pipeline()
        for name, next_ms in suspects:
            job = f"{keys.REPEAT}:{name}:{next_ms}"
            member = job.encode("utf-8", "surrogateescape")
            pipeline.hmget(_key(names, f"{keys.REPEAT}:{name}"), *_RECORD)
            pipeline.exists(_key(names, job))
            pipeline.zscore(_key(names, keys.COMPLETED), member)
            pipeline.zscore(_key(names, keys.FAILED), member)
        replies = _without_wrong_types(pipeline.execute(raise_on_error=False)) if suspects else []
        for number, (name, next_ms) in enumerate(suspects):
            record, exists, completed, failed = replies[number * 4 : number * 4 + 4]
            is_over = not exists or completed is not None or failed is not None
            fields = dict(zip(_RECORD, map(_text, record or ()), strict=False))
            if is_over and not may_have_ended(name, fields, next_ms, now_ms):
                yield name, next_ms

    def _pipeline(self) -> Any:
        is_cluster = hasattr(self._client, "get_primaries")
        return self._client.pipeline() if is_cluster else self._client.pipeline(transaction=False)


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """Replies about one queue, decoded. `meta`: paused, concurrency and max. `taken`: jobs in the limit's time."""

    meta: tuple[str, ...]
    settings: int
    limited_ms: int
    taken: str
    markers: int
    next_jobs: tuple[str, ...]
    first_due: float
    overdue: int
    active: list[str]
    schedules: list[tuple[str, int]]

    @property
    def is_paused(self) -> bool:
        """Whether the queue is paused."""
        return bool(self.meta[0])

    @property
    def is_limited(self) -> bool:
        """Whether the rate limit is reached. Workers may have a limit that is not in Redis: then it may be reached."""
        most = self.meta[2]
        is_below = _is_number(most) and _is_number(self.taken) and float(self.taken) < float(most)
        return self.limited_ms > 0 and not is_below

    def is_full(self, active: int) -> bool:
        """Whether the concurrency of the queue is reached."""
        concurrency = self.meta[1]
        return _is_number(concurrency) and active >= float(concurrency)


_RECORD = ("limit", "ic", "every", "endDate")


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def _without_wrong_types(replies: Sequence[Any]) -> list[Any]:
    """None in place of a key that has another type than BullMQ gives it. Raises all other errors."""
    for reply in replies:
        if isinstance(reply, Exception) and not _is_wrong_type(reply):
            raise reply
    return [None if isinstance(reply, Exception) else reply for reply in replies]


def _is_wrong_type(error: Exception) -> bool:
    return (
        isinstance(error, ResponseError)
        and not isinstance(error, NoPermissionError)
        and str(error).removeprefix("WRONGTYPE ").startswith("Operation against a key holding the wrong kind")
    )


def _connections(node: Any) -> Sequence[dict[str, Any]]:
    connections: Sequence[dict[str, Any]] = node.client_list(_type="normal")
    return connections


def _nodes_of(client: Any, address: RedisUrl) -> list[str]:
    if address.mode == "standalone":
        return address.nodes
    return [f"{node.host}:{node.port}" for node in client.get_primaries()]


def _now_ms(client: Any) -> int:
    seconds, microseconds = client.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


def _key(names: QueueKeys, name: str) -> bytes:
    """The key as Redis has it: a foreign name may not be valid UTF-8."""
    return names.key(name).encode("utf-8", "surrogateescape")


def _text(value: Any) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value or "")
