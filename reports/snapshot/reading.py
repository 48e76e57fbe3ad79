"""Read the parts of a store as Arrow batches: shares of the keyspace, queues, and slices of long containers."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from redis.exceptions import RedisError

from conformance.observe.keyspace import RawKey, is_reserved
from conformance.observe.reader import GONE_TTL, read_keys
from conformance.protocol.states import LIST_CONTAINERS, QUEUE_KEYS
from conformance.servers.connection import connect, connect_node, explain, explained
from reports.distribution import processors
from reports.snapshot.hashes import hashes_of
from reports.snapshot.pace import Pace
from reports.snapshot.plan import (
    KeyspacePart,
    RedisSource,
    in_share,
    in_slots,
    is_end_of_share,
    key_of,
    node_of,
    nodes_of,
    of_slots,
    scan_words,
)
from reports.snapshot.replies import NodeSocket, to_resp
from reports.snapshot.rows import as_bytes, as_text, assembled, batch_with, repeated_text, texts
from reports.snapshot.server_use import giving_way, is_used
from reports.snapshot.streams import StreamEntries, entries_of, event_batch

_HASH_COMMAND = b"*2\r\n$7\r\nHGETALL\r\n$%d\r\n%s\r\n"
_TTL_COMMAND = b"*2\r\n$4\r\nPTTL\r\n$%d\r\n%s\r\n"
_NO_TTL = b":-1\r\n"


class JobKeys(NamedTuple):
    """Keys of jobs, and the queue and the id in each."""

    keys: list[bytes]
    queues: list[bytes]
    ids: list[bytes]

    def at(self, places: Iterable[int]) -> JobKeys:
        """Those at these places."""
        chosen = list(places)
        return JobKeys(*([column[place] for place in chosen] for column in self))


def read_share(source: RedisSource, part: KeyspacePart) -> Iterator[pa.RecordBatch]:
    """Walk a share of one node's keyspace: the hashes of jobs, which are nearly everything, and unexpected keys.

    Job hashes take a fast way from the socket into Arrow; the other keys are few. Keys that
    SCAN repeats are read once. Raises redis errors and OSError.
    """
    others: list[bytes] = []
    address = source.address
    with (
        node_socket(source, part.node) as walking,
        node_socket(source, part.node) as reading,
        connect_node(address, part.node) as client,
    ):
        pages = _pages_of_jobs(walking, source, part, others)
        batches = _job_batches(reading, pages, others) if part.job_keys else (None for _ in pages)
        for batch in chain(batches, (None,)):
            if batch is not None:
                yield batch
            if others:
                raw = _read_in_lots(client, others, source)
                found = [_without_announced(key, part) for key in with_moments(raw, client)]
                yield assembled(source.prefix, part.taken_ms, [key for key in found if key is not None])
                others.clear()


def _read_in_lots(client: Any, keys: Sequence[bytes], source: RedisSource) -> list[RawKey]:
    """Read any keys, some at one instant each, because Redis serves no other client meanwhile."""
    at_once = source.sizes.others
    return [key for start in range(0, len(keys), at_once) for key in read_keys(client, keys[start : start + at_once])]


def _pages_of_jobs(node: NodeSocket, source: RedisSource, part: KeyspacePart, others: list[bytes]) -> Iterator[JobKeys]:
    """Pages of keys that can only be jobs if they are hashes; keys that need a closer look are added to `others`."""
    seen: set[bytes] = set()
    for keys in _scan_pages(node, source, part):
        fresh = [key for key in dict.fromkeys(keys) if key not in seen]
        seen.update(fresh)
        jobs = _sorted_out(source.prefix, fresh, part, others)
        if part.expires and part.job_keys and (expiring := _expiring(node, jobs.keys)):
            others += expiring
            jobs = jobs.at(place for place, key in enumerate(jobs.keys) if key not in expiring)
        if jobs.keys:
            yield jobs


def _scan_pages(node: NodeSocket, source: RedisSource, part: KeyspacePart) -> Iterator[list[bytes]]:
    """Pages of keys, to the very end of the share; small ones are put together, because each costs time here."""
    pages = _pages_of_slots if part.last_slot >= 0 else _pages_of_share
    limit = pace_of(source)
    together: list[bytes] = []
    for keys in pages(node, scan_words(source), part, source.sizes.keys):
        limit.take(len(keys))
        together += keys
        if len(together) >= source.sizes.batch:
            yield together
            together = []
    if together:
        yield together


def _pages_of_slots(
    node: NodeSocket, words: Sequence[bytes], part: KeyspacePart, at_once: int
) -> Iterator[list[bytes]]:
    """Pages of the keys in a range of slots; SCAN walks through one slot after the other."""
    cursor = part.first_slot
    while True:
        after, keys = _scanned(node, words, cursor, at_once)
        if not in_slots(after, part):
            yield of_slots(keys, part)
            return
        cursor = after
        yield keys


def _scanned(node: NodeSocket, words: Sequence[bytes], cursor: int, count: int) -> tuple[int, list[bytes]]:
    """The next cursor, and the keys before it."""
    after, keys = _reply_of(node, (b"SCAN", b"%d" % cursor, *words, b"COUNT", b"%d" % count))
    return int(after), keys


def _pages_of_share(
    node: NodeSocket, words: Sequence[bytes], part: KeyspacePart, at_once: int
) -> Iterator[list[bytes]]:
    """Pages of the keys whose cursors have the same low bits.

    SCAN walks until it has collected enough, and may so run into the next share. Then the same step is taken again with
    half the count; with a count of 1 it ends with the first bucket that holds a key, and its cursor shows whose it is.
    """
    cursor, count = part.index, at_once
    while True:
        after, keys = _scanned(node, words, cursor, count)
        if in_share(after, part):
            cursor = after
            yield keys
        elif is_end_of_share(after, part):
            yield keys
            return
        elif count == 1:
            return
        else:
            count //= 2


def _sorted_out(prefix: str, keys: Sequence[bytes], part: KeyspacePart, others: list[bytes]) -> JobKeys:
    """The keys that can only be jobs if they are hashes; keys that need a closer look are added to `others`.

    Keys that the `queue` and `slice` parts read are in neither.
    """
    start = len(as_bytes(prefix)) + 1
    parts = [key[start:].partition(b":") for key in keys]
    # Nearly always all of them are generated ids, and a store has millions.
    if all(rest.isdigit() for _, _, rest in parts):
        return JobKeys(list(keys), [queue for queue, _, _ in parts], [rest for _, _, rest in parts])
    places = []
    for place, (queue, _, rest) in enumerate(parts):
        if rest.isdigit() or may_be_an_id(rest):
            places.append(place)
        elif as_text(rest) not in QUEUE_KEYS or as_text(queue) not in part.queues:
            others.append(keys[place])
    return JobKeys(
        [keys[place] for place in places], [parts[place][0] for place in places], [parts[place][2] for place in places]
    )


def may_be_an_id(rest: bytes) -> bool:
    """Whether a hash whose key ends so can only be a job."""
    text = as_text(rest)
    return bool(rest) and b":" not in rest and text not in QUEUE_KEYS and not is_reserved(text)


def _without_announced(key: RawKey, part: KeyspacePart) -> RawKey | None:
    """Nothing for a scheduler's record that `repeat` announces: the queue's own part reads it."""
    is_record = key.key in part.schedulers and key.type == "hash" and "timestamp" not in (key.value or {})
    return None if is_record else key


def _job_batches(node: NodeSocket, pages: Iterator[JobKeys], others: list[bytes]) -> Iterator[pa.RecordBatch]:
    """The hashes of these keys as rows of `jobs`; keys that are not hashes are added to `others`.

    Redis works on the next page while this one is made into rows.
    """
    asked: JobKeys | None = None
    for page in chain(pages, (None,)):
        replies = node.replies() if asked else None
        if page is not None:
            node.ask([_HASH_COMMAND % (len(key), key) for key in page.keys])
        if asked is not None and replies is not None:
            yield _job_batch(asked, *hashes_of(replies, len(asked.keys)), others)
        asked = page


def _job_batch(jobs: JobKeys, sizes: Any, names: pa.Array, values: pa.Array, others: list[bytes]) -> pa.RecordBatch:
    if sizes.min() <= 0:  # some are not hashes, or have just been removed
        others += [jobs.keys[place] for place in np.flatnonzero(sizes < 0)]
        there = np.flatnonzero(sizes > 0)
        jobs = jobs.at(there)
        sizes = sizes[there]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    fields = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), names, values)
    count = len(jobs.ids)
    columns = {"table": repeated_text("jobs", count), "queue": texts(jobs.queues), "id": texts(jobs.ids)}
    return batch_with(count, {**columns, "fields": fields})


def _expiring(node: NodeSocket, keys: Sequence[bytes]) -> frozenset[bytes]:
    """The keys that have a time to live."""
    if not keys:
        return frozenset()
    node.ask([_TTL_COMMAND % (len(key), key) for key in keys])
    replies = bytes(node.replies())
    if replies == _NO_TTL * len(keys):
        return frozenset()
    lifetimes = replies.split(b"\r\n")
    return frozenset(key for key, lifetime in zip(keys, lifetimes, strict=False) if not lifetime.startswith(b":-"))


def with_moments(raw: Sequence[RawKey], client: Any) -> list[RawKey]:
    """The keys with the moments at which they end, without those that have ended meanwhile. Raises redis errors.

    The server's clock is asked right before each time to live: a store may be read for minutes, so the time at which
    reading started says nothing about when a time to live was read. `client`: of the node that holds the keys.
    """
    expiring = [place for place, key in enumerate(raw) if key.ttl_ms >= 0]
    if not expiring:
        return list(raw)
    replies = []
    for start in range(0, len(expiring), MOMENTS_AT_ONCE):
        pipeline = client.pipeline(transaction=False)
        for place in expiring[start : start + MOMENTS_AT_ONCE]:
            pipeline.time().pttl(as_bytes(raw[place].key))
        replies += pipeline.execute()
    found: list[RawKey | None] = list(raw)
    for place, (seconds, microseconds), ttl_ms in zip(expiring, replies[0::2], replies[1::2], strict=True):
        expires_ms = seconds * 1000 + microseconds // 1000 + ttl_ms
        found[place] = _timed(raw[place], ttl_ms, expires_ms)
    return [key for key in found if key is not None]


def _timed(key: RawKey, ttl_ms: int, expires_ms: int) -> RawKey | None:
    """The key as it was when its time to live was read again; None if it had ended."""
    if ttl_ms == GONE_TTL:
        return None
    return replace(key, ttl_ms=ttl_ms, expires_ms=expires_ms if ttl_ms >= 0 else None)


def _with_moments_by_node(raw: Sequence[RawKey], client: Any, source: RedisSource) -> list[RawKey]:
    """The same for keys of any nodes."""
    found = [key for key in raw if key.ttl_ms < 0]
    by_node: defaultdict[str, list[RawKey]] = defaultdict(list)
    for key in raw:
        if key.ttl_ms >= 0:
            by_node[node_of(client, source.address, key.key)].append(key)
    for node, keys in by_node.items():
        with connect_node(source.address, node) as near:
            found += with_moments(keys, near)
    return found


MOMENTS_AT_ONCE = 100
"""Keys whose time to live is asked in one write."""

ELEMENT_SHARE = 0.1
"""The share of a key that an element counts as."""


def node_socket(source: RedisSource, node: str) -> NodeSocket:
    """A connection for reading, which gives way to other clients where the source says so."""
    return NodeSocket(source.address, node, giving_way() if source.keys_per_s is None else None, source.sizes.hashes)


USE_S = 0.3
"""Time in which a store is watched before it is read."""


def others_use(source: RedisSource) -> bool:
    """Whether other clients use any node. Raises EnvironmentProblem."""
    with explained(source.address), ExitStack() as opened:
        with connect(source.address) as client:
            nodes = nodes_of(client, source.address)
        sockets = [opened.enter_context(NodeSocket(source.address, node)) for node in nodes]
        before = [node.commands_of_others() for node in sockets]
        time.sleep(USE_S)
        return any(
            is_used(count, node.commands_of_others(), USE_S) for count, node in zip(before, sockets, strict=True)
        )


def pace_of(source: RedisSource) -> Pace:
    """The share of one reader in the limit of all."""
    return Pace((source.keys_per_s or 0) / processors())


def read_part(source: RedisSource, part: KeyspacePart) -> Iterator[pa.RecordBatch]:
    """All rows of one part. Raises EnvironmentProblem where Redis cannot be read."""
    readers = {"scan": read_share, "jobs": _read_jobs, "queue": _read_queues, "slice": _read_slice}
    try:
        yield from readers[part.kind](source, part)
    except (RedisError, OSError) as error:
        raise explain(error, source.address, part.node or ", ".join(source.address.nodes)) from error


def _read_jobs(source: RedisSource, part: KeyspacePart) -> Iterator[pa.RecordBatch]:
    """The hashes of the jobs with these ids."""
    keys = [as_bytes(f"{source.prefix}:{part.queue}:{job}") for job in sorted(part.ids - QUEUE_KEYS.keys())]
    with connect(source.address) as client:
        raw = [key for key in read_keys(client, keys) if key.type != "none"]
    yield assembled(source.prefix, part.taken_ms, raw)


def _read_queues(source: RedisSource, part: KeyspacePart) -> Iterator[pa.RecordBatch]:
    """The keys that each queue has once, besides long containers, and the records of its schedulers."""
    with connect(source.address) as client:
        for single in part.parts:
            raw = _single_keys(client, source, single)
            yield assembled(source.prefix, part.taken_ms, raw)


def _single_keys(client: Any, source: RedisSource, part: KeyspacePart) -> list[RawKey]:
    base = f"{source.prefix}:{part.queue}:"
    keys = [as_bytes(base + name) for name in QUEUE_KEYS if name not in part.elsewhere]
    raw = [key for key in _read_in_lots(client, keys, source) if key.type != "none"]
    announced = [f"{base}repeat:{member}" for key in raw if key.key == f"{base}repeat" for member in _members(key)]
    records = _read_in_lots(client, [as_bytes(key) for key in announced], source)
    raw += [key for key in records if key.type == "hash" and "timestamp" not in key.value]
    return _with_moments_by_node(raw, client, source)


def _members(repeat: RawKey) -> list[str]:
    return [member for member, _ in repeat.value] if repeat.type == "zset" else []


def _read_slice(source: RedisSource, part: KeyspacePart) -> Iterator[pa.RecordBatch]:
    """A range of a long container; members and events go straight into columns."""
    key, sizes = key_of(source, part), source.sizes
    with connect(source.address) as client:
        with node_socket(source, node_of(client, source.address, key)) as node:
            if part.name == "events":
                pages = _stream_pages(node, as_bytes(key), part, sizes.events)
                yield from _paced((event_batch(part.queue, page) for page in pages), source)
            else:
                yield from _paced(_member_pages(node, as_bytes(key), part, sizes.members), source)
        ttl: Any = client.pttl(key)
        empty = RawKey(key=key, type=QUEUE_KEYS[part.name], value=[], ttl_ms=ttl)
        expiring = _with_moments_by_node([empty], client, source) if ttl >= 0 and part.is_first else []
    if expiring:
        yield assembled(source.prefix, part.taken_ms, expiring)


def _paced(batches: Iterator[pa.RecordBatch], source: RedisSource) -> Iterator[pa.RecordBatch]:
    limit = pace_of(source)
    for batch in batches:
        limit.take(batch.num_rows * ELEMENT_SHARE)
        yield batch


def _member_pages(node: NodeSocket, key: bytes, part: KeyspacePart, at_once: int) -> Iterator[pa.RecordBatch]:
    """The members from the first to the last of the part, a page at a time.

    An open end is where the container ends now: its clients may add members faster than they are read.
    """
    start, last = part.start, part.stop
    if last == -1:
        last = _reply_of(node, (b"LLEN" if part.name in LIST_CONTAINERS else b"ZCARD", key)) - 1
    while start <= last:
        stop = min(last, start + at_once - 1)
        batch = _member_batch(node, key, replace(part, start=start, stop=stop))
        if batch.num_rows:
            yield batch
        if batch.num_rows <= stop - start:
            return
        start = stop + 1


def _member_batch(node: NodeSocket, key: bytes, part: KeyspacePart) -> pa.RecordBatch:
    """The members of a list with their positions, or of a sorted set with their scores, as rows of `memberships`."""
    ranks = (b"%d" % part.start, b"%d" % part.stop)
    if part.name in LIST_CONTAINERS:
        members = _reply_of(node, (b"LRANGE", key, *ranks))
        known = {"position": pa.array(range(part.start, part.start + len(members)), pa.int64())}
    else:
        flat = _reply_of(node, (b"ZRANGE", key, *ranks, b"WITHSCORES"))
        members = flat[0::2]
        known = {"score": pa.array(list(map(float, flat[1::2])), pa.float64())}
    count = len(members)
    shared = {"table": "memberships", "queue": part.queue, "name": part.name}
    repeated = {name: repeated_text(text, count) for name, text in shared.items()}
    return batch_with(count, {**repeated, **known, "id": texts(members)})


def _reply_of(node: NodeSocket, command: Sequence[bytes]) -> Any:
    (reply,) = node.exchange([command])
    if isinstance(reply, Exception):
        raise RedisError(str(reply))
    return reply


def _stream_pages(node: NodeSocket, key: bytes, part: KeyspacePart, at_once: int) -> Iterator[StreamEntries]:
    """The entries from the first to the last of the part, a page at a time.

    An open end is the last entry now: clients may add entries faster than they are read.
    """
    start, stop = b"%d-0" % part.start, b"%d-18446744073709551615" % part.stop
    if part.stop == -1:
        newest = _reply_of(node, (b"XREVRANGE", key, b"+", b"-", b"COUNT", b"1"))
        if not newest:
            return
        stop = newest[0][0]
    while True:
        node.ask([to_resp((b"XRANGE", key, start, stop, b"COUNT", b"%d" % at_once))])
        page = entries_of(node.replies())
        if not len(page.ids):
            return
        yield page
        start = b"(%s" % page.ids.view(pa.binary())[-1].as_py()
