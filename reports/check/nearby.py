"""The keys around suspicious places of a live store: small reads, each of one instant if one node has the keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from redis.exceptions import ResponseError

from conformance.observe.keyspace import RawKey
from conformance.protocol.keys import hashed_part
from conformance.protocol.states import LIST_CONTAINERS, QUEUE_KEYS, ZSET_CONTAINERS
from conformance.servers.connection import connect
from reports.snapshot.plan import RedisSource, node_of
from reports.snapshot.replies import NodeSocket
from reports.snapshot.rows import as_bytes, as_text

Words: TypeAlias = "tuple[str | int, ...]"

ENDS = 2000
"""Elements at each end of a list among which Redis looks for a job (LPOS); what is between is read in slices."""

SLICE = 2000
"""Elements of a list in one reply."""

JOBS_AT_ONCE = 2
"""Jobs that are asked for in one write, each at its own instant: Redis takes a tenth of a millisecond for each."""

FIRST_EVENTS = 2000
"""Events of one ms that are read."""

SAMPLE = 500
"""Prioritized jobs that are read from each end."""

_HEAD_OF_ZSETS = {"delayed": 1, "completed": 1, "failed": 1, "waiting-children": 1, "prioritized": SAMPLE}
_STRINGS = ("limiter", "stalled-check", "id", "pc")
_SUFFIXES = ("dependencies", "processed", "failed", "unsuccessful")


Question: TypeAlias = "tuple[str, Sequence[Words]]"
"""Commands that are to be of one instant, and a key in the slot of all their keys."""


class Asking:
    """Sends commands to a store; those of one question are of one instant, if one node has all keys."""

    def __init__(self, source: RedisSource) -> None:
        self.source = source
        self.asked = 0
        self._client: Any = connect(source.address)
        self._nodes: dict[str, NodeSocket] = {}

    def close(self) -> None:
        """Close all connections."""
        self._client.close()
        for node in self._nodes.values():
            node.__exit__()

    def ask(self, key: str, commands: Sequence[Words]) -> list[Any]:
        """The replies to one question; a command that fails for the type of its key has None."""
        return self.ask_all([(key, commands)])[0]

    def ask_all(self, questions: Sequence[Question]) -> list[list[Any]]:
        """The replies to each question. Raises redis errors and OSError."""
        self.asked += sum(len(commands) for _, commands in questions)
        if self.source.address.mode == "cluster" and not _has_hash_tag(questions[0][0]):
            return [[self._single(words) for words in commands] for _, commands in questions]
        node = self._node_of(questions[0][0])
        written = [words for _, commands in questions for words in (("MULTI",), *commands, ("EXEC",))]
        replies = iter(node.exchange([_encoded(words) for words in written]))
        found = []
        for _, commands in questions:
            whole = [next(replies) for _ in range(len(commands) + 2)]
            if isinstance(whole[-1], Exception):
                raise ResponseError(str(next(reply for reply in whole if isinstance(reply, Exception))))
            found.append([None if isinstance(reply, Exception) else reply for reply in whole[-1]])
        return found

    def _single(self, words: Words) -> Any:
        (reply,) = self._node_of(str(words[1])).exchange([_encoded(words)])
        return None if isinstance(reply, Exception) else reply

    def _node_of(self, key: str) -> NodeSocket:
        """The connection to the node of a key. All keys of a queue are below one base, so few are asked for."""
        node = node_of(self._client, self.source.address, key)
        if node not in self._nodes:
            self._nodes[node] = NodeSocket(self.source.address, node)
        return self._nodes[node]

    def now_ms(self) -> int:
        """Redis' clock, Unix ms."""
        seconds, microseconds = self._client.time()
        return int(seconds) * 1000 + int(microseconds) // 1000


def _has_hash_tag(key: str) -> bool:
    return hashed_part(as_bytes(key)) != as_bytes(key)


def _encoded(words: Words) -> list[bytes]:
    return [as_bytes(word) if isinstance(word, str) else b"%d" % word for word in words]


def _text(value: Any) -> str:
    return as_text(value) if isinstance(value, bytes) else str(value)


def _pairs(reply: Any) -> list[tuple[str, float]]:
    """Members with their scores, which Redis returns in turns."""
    flat = reply or []
    return [(_text(member), float(score)) for member, score in zip(flat[0::2], flat[1::2], strict=True)]


def _mapping(reply: Any) -> dict[str, str]:
    """Names with their values, which Redis returns in turns."""
    flat = reply or []
    return {_text(name): _text(value) for name, value in zip(flat[0::2], flat[1::2], strict=True)}


@dataclass
class QueueNearby:
    """The readings of one queue: the keys that it has once, and the surroundings of some jobs."""

    asking: Asking
    queue: str
    raw: list[RawKey] = field(default_factory=list)
    lists: defaultdict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    zsets: defaultdict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    lengths: dict[str, int] = field(default_factory=dict)
    events: int = 0

    @cached_property
    def base(self) -> str:
        """The beginning of its keys."""
        return f"{self.asking.source.prefix}:{self.queue}:"

    def read_singles(self) -> None:
        """Read what the queue has once: settings, counters, markers, and the ends of its containers."""
        base = self.base
        strings = [words for name in _STRINGS for words in (("GET", base + name), ("PTTL", base + name))]
        ends = [words for name in LIST_CONTAINERS for words in self._ends_of_list(name)]
        heads = [
            ("ZRANGE", base + name, *edge, "WITHSCORES")
            for name, count in _HEAD_OF_ZSETS.items()
            for edge in ((0, count - 1), (-count, -1))
        ]
        fixed: list[Words] = [("HGETALL", base + "meta"), ("ZRANGE", base + "marker", 0, 99, "WITHSCORES")]
        commands: list[Words] = [*fixed, ("XLEN", base + "events"), *strings, *ends, *heads]
        replies = iter(self.asking.ask(base + "meta", commands))
        self._add("meta", "hash", _mapping(next(replies)))
        self._add("marker", "zset", _pairs(next(replies)))
        self.events = next(replies) or 0
        for name in _STRINGS:
            value, ttl = next(replies), next(replies)
            self._add(name, "string", None if value is None else _text(value), -1 if ttl is None else ttl)
        for name in LIST_CONTAINERS:
            length, first, last = next(replies) or 0, next(replies) or [], next(replies) or []
            self.lengths[name] = length
            there = {0: first, length - 1: last} if length else {}
            self.lists[name].update({place: _text(jobs[0]) for place, jobs in there.items() if jobs})
        for name in _HEAD_OF_ZSETS:
            self.zsets[name].update([*_pairs(next(replies)), *_pairs(next(replies))])

    def _ends_of_list(self, name: str) -> list[Words]:
        key = self.base + name
        return [("LLEN", key), ("LRANGE", key, 0, 0), ("LRANGE", key, -1, -1)]

    def _add(self, name: str, kind: str, value: Any, ttl_ms: int = -1) -> None:
        if value:
            self.raw.append(RawKey(key=self.base + name, type=kind, value=value, ttl_ms=ttl_ms))

    def forget_samples(self, jobs: Collection[str]) -> None:
        """Forget where jobs were seen at the ends of containers: they are read on their own, at another instant."""
        for found in self.lists.values():
            for place in [place for place, job in found.items() if job in jobs]:
                del found[place]
        for scores in self.zsets.values():
            for job in jobs:
                scores.pop(job, None)

    def middle_of_lists(self, jobs: Collection[str]) -> dict[str, dict[str, list[int]]]:
        """The places of jobs between the ends of long lists, read in slices."""
        found: dict[str, dict[str, list[int]]] = {}
        for name, length in self.lengths.items():
            places: defaultdict[str, list[int]] = defaultdict(list)
            for start in range(ENDS, length - ENDS, SLICE):
                stop = min(start + SLICE, length - ENDS) - 1
                (slice_,) = self.asking.ask(self.base, [("LRANGE", self.base + name, start, stop)])
                for place, job in enumerate(map(_text, slice_ or ()), start):
                    if job in jobs:
                        places[job].append(place)
            found[name] = places
        return found

    def read_jobs(
        self,
        jobs: Sequence[str],
        children: Mapping[str, Collection[str]],
        middles: Mapping[str, Mapping[str, Sequence[int]]],
    ) -> None:
        """Read jobs, their containers and their keys, each at one instant.

        `children`: of special interest, by parent. `middles`: places in long lists that were read before.
        """
        for start in range(0, len(jobs), JOBS_AT_ONCE):
            chosen = jobs[start : start + JOBS_AT_ONCE]
            questions = [(self.base + job, self._about_job(job, sorted(children.get(job, ())))) for job in chosen]
            for job, replies in zip(chosen, self.asking.ask_all(questions), strict=True):
                self._take_job(job, sorted(children.get(job, ())), middles, iter(replies))

    def _about_job(self, job: str, children: Sequence[str]) -> list[Words]:
        key = self.base + job
        zscores: list[Words] = [("ZSCORE", self.base + name, job) for name in ZSET_CONTAINERS]
        lists: list[Words] = [
            ("LPOS", self.base + name, job, "RANK", rank, "COUNT", 0, "MAXLEN", ENDS)
            for name in LIST_CONTAINERS
            for rank in (1, -1)
        ]
        own: list[Words] = [
            ("HGETALL", key),
            ("PTTL", key),
            ("GET", f"{key}:lock"),
            ("PTTL", f"{key}:lock"),
            ("LRANGE", f"{key}:logs", 0, 0),
            ("SRANDMEMBER", f"{key}:dependencies"),
            ("HSCAN", f"{key}:processed", 0, "COUNT", 1),
            ("HSCAN", f"{key}:failed", 0, "COUNT", 1),
            ("ZRANGE", f"{key}:unsuccessful", 0, 0, "WITHSCORES"),
        ]
        return [*own, *zscores, *lists, *(words for child in children for words in _relation(key, child))]

    def _take_job(
        self,
        job: str,
        children: Sequence[str],
        middles: Mapping[str, Mapping[str, Sequence[int]]],
        replies: Iterator[Any],
    ) -> None:
        fields = _mapping(next(replies))
        self._add(job, "hash", fields, next(replies))
        lock, ttl = next(replies), next(replies)
        self._add(f"{job}:lock", "string", None if lock is None else _text(lock), ttl)
        self._add(f"{job}:logs", "list", [_text(row) for row in next(replies) or ()])
        pending, processed, failed, unsuccessful = (next(replies) for _ in _SUFFIXES)
        waited_for = set() if pending is None else {_text(pending)}
        hashes = {"processed": _scanned(processed), "failed": _scanned(failed)}
        scores = dict(_pairs(unsuccessful))
        for name in ZSET_CONTAINERS:
            score = next(replies)
            if score is not None:
                self.zsets[name][job] = float(score)
        for name in LIST_CONTAINERS:
            places = {*(next(replies) or ()), *(next(replies) or ()), *middles.get(name, {}).get(job, ())}
            self.lists[name].update(dict.fromkeys(places, job))
        for child in children:
            is_pending, value, reason, score = (next(replies) for _ in _SUFFIXES)
            waited_for |= {child} if is_pending else set()
            hashes["processed"] |= {} if value is None else {child: _text(value)}
            hashes["failed"] |= {} if reason is None else {child: _text(reason)}
            scores |= {} if score is None else {child: float(score)}
        self._add(f"{job}:dependencies", "set", sorted(waited_for))
        self._add(f"{job}:unsuccessful", "zset", sorted(scores.items()))
        for name, mapping in hashes.items():
            self._add(f"{job}:{name}", "hash", mapping)

    def read_key(self, key: str) -> None:
        """Read the type, the time to live and the beginning of any key."""
        kind, ttl = self.asking.ask(key, [("TYPE", key), ("PTTL", key)])
        kind = _text(kind)
        name = key.removeprefix(self.base)
        if kind == "none" or (kind == QUEUE_KEYS.get(name) and ttl == -1):
            return
        value: Any = "" if kind == "string" else []
        if kind == "hash":
            value = _scanned(self.asking.ask(key, [("HSCAN", key, 0, "COUNT", 10)])[0])
        self.raw.append(RawKey(key=key, type=kind, value=value, ttl_ms=ttl))

    def read_string(self, name: str) -> str:
        """Read a string of the queue with its time to live."""
        key = self.base + name
        value, ttl = self.asking.ask(key, [("GET", key), ("PTTL", key)])
        self._add(name, "string", None if value is None else _text(value), -1 if ttl is None else ttl)
        return "" if value is None else _text(value)

    def read_hash(self, name: str) -> None:
        """Read a hash of the queue."""
        (reply,) = self.asking.ask(self.base + name, [("HGETALL", self.base + name)])
        self._add(name, "hash", _mapping(reply))

    def read_events(self, job: str, at_ms: int) -> None:
        """Read the events of a job at one ms."""
        key = f"{self.base}events"
        (reply,) = self.asking.ask(key, [("XRANGE", key, at_ms, at_ms, "COUNT", FIRST_EVENTS)])
        entries = [(_text(entry), _mapping(fields)) for entry, fields in reply or ()]
        self._add("events", "stream", [entry for entry in entries if entry[1].get("jobId") == job])

    def active_jobs_of(self, deduplication: str) -> list[str]:
        """Active jobs with a deduplication id; only the first thousand are read."""
        (jobs,) = self.asking.ask(self.base, [("LRANGE", f"{self.base}active", 0, 999)])
        names = [_text(job) for job in jobs or ()]
        ids = self.asking.ask(self.base, [("HGET", self.base + job, "deid") for job in names]) if names else []
        return [job for job, name in zip(names, ids, strict=True) if name is not None and _text(name) == deduplication]

    def entry_of(self, scheduler: str) -> float | None:
        """The time of a scheduler in `repeat`."""
        (score,) = self.asking.ask(self.base, [("ZSCORE", f"{self.base}repeat", scheduler)])
        return None if score is None else float(score)

    def collected(self, entries: dict[str, float]) -> list[RawKey]:
        """Everything that was read, as keys. `entries`: those of `repeat`."""
        lists = [
            RawKey(key=self.base + name, type="list", value=[job for _, job in sorted(found.items())])
            for name, found in self.lists.items()
            if found
        ]
        zsets = [
            RawKey(key=self.base + name, type="zset", value=sorted(found.items(), key=lambda pair: (pair[1], pair[0])))
            for name, found in self.zsets.items()
            if found
        ]
        repeat = [RawKey(key=f"{self.base}repeat", type="zset", value=sorted(entries.items()))] if entries else []
        known = {raw.key: raw for raw in (*lists, *zsets, *repeat, *self.raw)}
        return list(known.values())


def _relation(key: str, child: str) -> list[Words]:
    return [
        ("SISMEMBER", f"{key}:dependencies", child),
        ("HGET", f"{key}:processed", child),
        ("HGET", f"{key}:failed", child),
        ("ZSCORE", f"{key}:unsuccessful", child),
    ]


def _scanned(reply: Any) -> dict[str, str]:
    return _mapping(reply[1]) if reply else {}
