"""What is to be read by whom: the parts of a store, cut so that any number of executors can read them at once.

Three kinds of part. A *scan* part walks a share of a node's keyspace and reads every key there that belongs to a job
(or to nothing): jobs that no container knows are found too, which ranges of ids would miss. *Queue* parts read the keys
that a queue has once; *slice* parts a range of one of its long containers. Together they read every key once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from conformance.observe.keyspace import split_key
from conformance.problems import UsageProblem
from conformance.protocol.keys import glob_escaped
from conformance.protocol.states import LIST_CONTAINERS, QUEUE_KEYS, ZSET_CONTAINERS
from conformance.servers.connection import Client, connect, connect_node, explained
from conformance.servers.setting import RedisUrl, parse_setting
from reports.snapshot.format import power_of_two

SLICE = 250_000
"""Elements of a container that one part reads."""

SMALLEST_TO_SLICE = 2_000
"""A container with fewer elements is read with the other keys of its queue."""

KEYS_PER_SHARE = 131_072
FEWEST_SHARES, MOST_SHARES = 4, 32
"""Shares into which a large node's keyspace is cut; powers of two."""

SMALLEST_TO_SHARE = 20_000
"""A node with fewer keys is walked by one part."""

SCAN_COUNT = 5000
"""Hint to SCAN: how many keys to collect per round trip."""


@dataclass(frozen=True, kw_only=True)
class RedisSource:
    """What a reader is asked for. `queue` empty: every queue under the prefix."""

    redis: str
    prefix: str
    queue: str = ""

    @property
    def address(self) -> RedisUrl:
        """The address of the Redis. Raises UsageProblem where `redis` is not a URL."""
        setting = parse_setting(self.redis)
        if not isinstance(setting, RedisUrl):
            raise UsageProblem(
                f"{self.redis!r} is no address of a Redis", hint="a snapshot needs a URL, as in redis://127.0.0.1:6379"
            )
        return setting


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """All parts of a store, and keys and memory of its nodes together, what belongs to others included."""

    parts: list[KeyspacePart]
    keys: int
    used_bytes: int


@dataclass(frozen=True, kw_only=True)
class KeyspacePart:
    """A part of the store.

    `scan`: `node` and share `index` of `shares`. `queue`: the keys that `queue` has once, and its scheduler records,
    without the containers cut into slices (`elsewhere`). `slice`: `key` from `start` to `stop`, inclusive: ranks, or
    stream ids in ms.
    `queues` are all queues that have a `queue` part, `expires`: any key of the node has a time to live.
    """

    kind: str
    taken_ms: int
    node: str = ""
    index: int = 0
    shares: int = 1
    expires: bool = True
    queues: frozenset[str] = frozenset()
    schedulers: frozenset[str] = frozenset()
    queue: str = ""
    name: str = ""
    start: int = 0
    stop: int = -1
    elsewhere: frozenset[str] = field(default=frozenset())


def plan_reading(source: RedisSource) -> ReadPlan:
    """Cut the store into parts. Raises redis errors."""
    address = source.address
    with connect(address) as client:
        taken_ms = _now_ms(client)
        nodes = nodes_of(client, address)
        queues = frozenset([source.queue] if source.queue else _queues(client, source.prefix))
        schedulers = frozenset(_scheduler_keys(client, source.prefix, queues))
        parts = [part for queue in sorted(queues) for part in _queue_parts(client, source.prefix, queue)]
    keyspaces = [_keyspace(address, node) for node in nodes]
    scans = [
        replace(part, queues=queues, schedulers=schedulers)
        for keyspace in keyspaces
        for part in _scan_parts(address, keyspace)
    ]
    taken = [replace(part, taken_ms=taken_ms) for part in [*scans, *parts]]
    return ReadPlan(
        parts=taken,
        keys=sum(keyspace.keys for keyspace in keyspaces),
        used_bytes=sum(keyspace.used_bytes for keyspace in keyspaces),
    )


def nodes_of(client: Any, address: RedisUrl) -> list[str]:
    """Every node that holds keys: the primaries of a cluster."""
    if address.mode == "standalone":
        return address.nodes
    return [f"{node.host}:{node.port}" for node in client.get_primaries()]


def node_of(client: Any, address: RedisUrl, key: str) -> str:
    """The node that holds a key. Raises redis errors."""
    if address.mode == "standalone":
        return address.nodes[0]
    node = client.get_node_from_key(key)
    return f"{node.host}:{node.port}"


def scan_words(source: RedisSource) -> Sequence[bytes]:
    """The words of SCAN after the cursor that say which keys are wanted."""
    below = f"{glob_escaped(source.prefix)}:{glob_escaped(source.queue) + ':' if source.queue else ''}*"
    return (b"MATCH", below.encode("utf-8", "surrogateescape"))


def in_share(cursor: int, part: KeyspacePart) -> bool:
    """Whether the next cursor is still in the part's share.

    SCAN counts its cursor in reversed bits (Redis `dict.c`, dictScan): the low bits of the bucket number change last.
    All cursors with the same low bits are therefore visited one after the other, and these low bits are a share.
    """
    return cursor != 0 and cursor % part.shares == part.index


def is_end_of_share(cursor: int, part: KeyspacePart) -> bool:
    """Whether the next cursor is the very first one after the share: then nothing of another share was visited."""
    return cursor == _next_share(part.index, part.shares)


def _next_share(index: int, shares: int) -> int:
    """Add one to the reversed bits: clear the leading ones, and set the zero after them. After the last comes 0."""
    bit = shares >> 1
    while bit and index & bit:
        index ^= bit
        bit >>= 1
    return index | bit


@dataclass(frozen=True, kw_only=True)
class NodeKeyspace:
    """What a node holds. `expires`: any of its keys has a time to live."""

    node: str
    keys: int
    used_bytes: int
    expires: bool


def _keyspace(address: RedisUrl, node: str) -> NodeKeyspace:
    with connect_node(address, node) as client:
        facts: Any = client.info()
        keys: Any = client.dbsize()
    expires = bool(facts.get(f"db{address.db}", {}).get("expires", 1))
    return NodeKeyspace(node=node, keys=int(keys), used_bytes=int(facts.get("used_memory", 0)), expires=expires)


def keys_of(address: RedisUrl) -> int:
    """How many keys all nodes hold together, those of others included. Raises EnvironmentProblem."""
    with explained(address):
        with connect(address) as client:
            nodes = nodes_of(client, address)
        return sum(_keyspace(address, node).keys for node in nodes)


def _scan_parts(address: RedisUrl, keyspace: NodeKeyspace) -> Iterator[KeyspacePart]:
    # In a cluster a newer Redis counts the slot in the low bits of its cursor, so a node is one share there.
    shares = shares_for(keyspace.keys) if address.mode == "standalone" else 1
    for index in range(shares):
        yield KeyspacePart(
            kind="scan", taken_ms=0, node=keyspace.node, index=index, shares=shares, expires=keyspace.expires
        )


def shares_for(keys: int) -> int:
    """Into how many shares so many keys are cut."""
    if keys < SMALLEST_TO_SHARE:
        return 1
    return min(MOST_SHARES, max(FEWEST_SHARES, power_of_two(keys // KEYS_PER_SHARE)))


def _queues(client: Any, prefix: str) -> Iterator[str]:
    """Queues that have `meta`. Others lose nothing: the scan reads their keys."""
    for key in client.scan_iter(match=f"{glob_escaped(prefix)}:*:meta", count=SCAN_COUNT):
        queue, rest = split_key(prefix, key.decode("utf-8", "surrogateescape"))
        if rest == "meta":
            yield queue


def _scheduler_keys(client: Any, prefix: str, queues: frozenset[str]) -> Iterator[str]:
    """Keys of the scheduler records that `repeat` announces."""
    for queue in sorted(queues):
        key = f"{prefix}:{queue}:repeat"
        for member in client.zrange(key, 0, -1) if client.type(key) == b"zset" else ():
            yield f"{key}:{member.decode('utf-8', 'surrogateescape')}"


def _queue_parts(client: Client, prefix: str, queue: str) -> Iterator[KeyspacePart]:
    slices = [part for name in QUEUE_KEYS for part in _slices(client, prefix, queue, name)]
    yield KeyspacePart(kind="queue", taken_ms=0, queue=queue, elsewhere=frozenset(part.name for part in slices))
    yield from slices


def _slices(client: Any, prefix: str, queue: str, name: str) -> Iterator[KeyspacePart]:
    """The slices of one container; none where it is short, or not of the type that it should have."""
    key = f"{prefix}:{queue}:{name}"
    counters = {
        **dict.fromkeys(LIST_CONTAINERS, client.llen),
        **dict.fromkeys(ZSET_CONTAINERS, client.zcard),
        "events": client.xlen,
    }
    if name not in counters or client.type(key).decode() != QUEUE_KEYS[name]:
        return
    length = int(counters[name](key))
    if length < SMALLEST_TO_SLICE:
        return
    edges = _stream_edges(client, key, length) if name == "events" else _rank_edges(length)
    for start, stop in edges:
        yield KeyspacePart(kind="slice", taken_ms=0, queue=queue, name=name, start=start, stop=stop)


def _rank_edges(length: int) -> Iterator[tuple[int, int]]:
    """Ranks; the last slice is open, because a container may have grown meanwhile."""
    starts = range(0, length, SLICE)
    for start in starts:
        yield start, -1 if start == starts[-1] else start + SLICE - 1


def _stream_edges(client: Any, key: str, length: int) -> Iterator[tuple[int, int]]:
    """Stream ids in ms, from the first entry to the last in equal steps of time."""
    ends = (client.xrange(key, count=1), client.xrevrange(key, count=1))
    first, last = (int(entries[0][0].split(b"-")[0]) for entries in ends)
    step = max(1, (last - first + 1) // -(-length // SLICE))
    starts = range(first, last + 1, step)
    for start in starts:
        yield start, -1 if start == starts[-1] else start + step - 1


def _now_ms(client: Any) -> int:
    seconds, microseconds = client.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


def key_of(source: RedisSource, part: KeyspacePart) -> str:
    """The key that a slice is of."""
    return f"{source.prefix}:{part.queue}:{part.name}"
