"""Walk a share of a node's keyspace: the hashes of jobs, which are nearly everything, and keys that nobody announced.

Job hashes take a fast way from the socket into Arrow; the other keys are few, and `conformance.observe` tells what they
mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from redis.exceptions import RedisError

from conformance.observe.keyspace import QUEUE_KEYS, RawKey, is_reserved
from conformance.observe.reader import read_keys
from conformance.servers.connection import connect_node
from reports.snapshot.hashes import hashes_of
from reports.snapshot.plan import SCAN_COUNT, Part, Source, in_share, is_end_of_share, scan_words
from reports.snapshot.rows import as_bytes, as_text, assembled, batch_with, repeated_text, texts
from reports.snapshot.wire import NodeSocket

_HASH_COMMAND = b"*2\r\n$7\r\nHGETALL\r\n$%d\r\n%s\r\n"
_TTL_COMMAND = b"*2\r\n$4\r\nPTTL\r\n$%d\r\n%s\r\n"


class JobKeys(NamedTuple):
    """Keys of jobs, and the queue and the id in each."""

    keys: list[bytes]
    queues: list[bytes]
    ids: list[bytes]

    def at(self, places: Iterable[int]) -> JobKeys:
        """Those at these places."""
        chosen = list(places)
        return JobKeys(*([column[place] for place in chosen] for column in self))


def read_share(source: Source, part: Part) -> Iterator[pa.RecordBatch]:
    """Walk a share of one node's keyspace. Keys that SCAN repeats are read once. Raises redis errors and OSError."""
    closely: list[bytes] = []
    address = source.address
    with (
        NodeSocket(address, part.node) as walking,
        NodeSocket(address, part.node) as reading,
        connect_node(address, part.node) as client,
    ):
        pages = _pages_of_jobs(walking, source, part, closely)
        for batch in chain(_job_batches(reading, pages, closely), (None,)):
            if batch is not None:
                yield batch
            if closely:
                raw = [_without_announced(key, part) for key in read_keys(client, closely)]
                yield assembled(source.prefix, part.taken_ms, [key for key in raw if key is not None])
                closely.clear()


def _pages_of_jobs(node: NodeSocket, source: Source, part: Part, closely: list[bytes]) -> Iterator[JobKeys]:
    """Pages of keys that can only be jobs if they are hashes; what must be looked at closely goes there."""
    seen: set[bytes] = set()
    for keys in _pages(node, source, part):
        fresh = [key for key in dict.fromkeys(keys) if key not in seen]
        seen.update(fresh)
        jobs = _sorted_out(source.prefix, fresh, part, closely)
        if part.expires and (expiring := _expiring(node, jobs.keys)):
            closely += expiring
            jobs = jobs.at(place for place, key in enumerate(jobs.keys) if key not in expiring)
        if jobs.keys:
            yield jobs


def _pages(node: NodeSocket, source: Source, part: Part) -> Iterator[list[bytes]]:
    """Pages of keys, to the very end of the share.

    SCAN walks until it has collected enough, and may so run into the next share. Then the same step is taken again with
    half the count; with a count of 1 it ends with the first bucket that holds a key, and that bucket tells whose it is.
    """
    words, cursor, count = scan_words(source), part.index, SCAN_COUNT
    while True:
        reply = node.exchange([(b"SCAN", b"%d" % cursor, *words, b"COUNT", b"%d" % count)])[0]
        if isinstance(reply, Exception):
            raise RedisError(str(reply))
        after, keys = int(reply[0]), reply[1]
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


def _sorted_out(prefix: str, keys: Sequence[bytes], part: Part, closely: list[bytes]) -> JobKeys:
    """The keys that can only be jobs if they are hashes; those to look at closely are added there.

    Keys that the `queue` and `slice` parts read are in neither.
    """
    start = len(as_bytes(prefix)) + 1
    jobs = JobKeys([], [], [])
    for key in keys:
        queue, _, rest = key[start:].partition(b":")
        if rest.isdigit() or _may_be_an_id(rest):
            jobs.keys.append(key)
            jobs.queues.append(queue)
            jobs.ids.append(rest)
        elif as_text(rest) not in QUEUE_KEYS or as_text(queue) not in part.queues:
            closely.append(key)
    return jobs


def _may_be_an_id(rest: bytes) -> bool:
    text = as_text(rest)
    return bool(rest) and b":" not in rest and text not in QUEUE_KEYS and not is_reserved(text)


def _without_announced(key: RawKey, part: Part) -> RawKey | None:
    """Nothing for a scheduler's record that `repeat` announces: the queue's own part reads it."""
    is_record = key.key in part.schedulers and key.type == "hash" and "timestamp" not in (key.value or {})
    return None if is_record else key


def _job_batches(node: NodeSocket, pages: Iterator[JobKeys], closely: list[bytes]) -> Iterator[pa.RecordBatch]:
    """The hashes of these keys as rows of `jobs`; what is no hash is to be looked at closely.

    Redis works on the next page while this one is made into rows.
    """
    asked: JobKeys | None = None
    for page in chain(pages, (None,)):
        replies = node.replies() if asked else None
        if page is not None:
            node.ask(_for_each(_HASH_COMMAND, page.keys))
        if asked is not None and replies is not None:
            yield _job_batch(asked, *hashes_of(replies, len(asked.keys)), closely)
        asked = page


def _job_batch(jobs: JobKeys, sizes: Any, names: pa.Array, values: pa.Array, closely: list[bytes]) -> pa.RecordBatch:
    if sizes.min() <= 0:  # some are no hashes, or were there a moment ago
        closely += [jobs.keys[place] for place in np.flatnonzero(sizes < 0)]
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
    lifetimes = node.exchange_packed(_for_each(_TTL_COMMAND, keys), len(keys))
    return frozenset(key for key, lifetime in zip(keys, lifetimes, strict=True) if lifetime >= 0)


def _for_each(command: bytes, keys: Sequence[bytes]) -> bytes:
    return b"".join([command % (len(key), key) for key in keys])
