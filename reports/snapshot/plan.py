"""The parts of a store, cut so that any number of executors can read them at the same time.

Three kinds of part. A *scan* part walks a share of a node's keyspace and reads every key there that belongs to a job
(or to nothing): jobs that no container knows are found too, which ranges of ids would miss. A share is all cursors of
SCAN with the same low bits, or a range of slots where these bits are the slot. *Queue* parts read the keys that a queue
has once; *slice* parts a range of one of its long containers. Together they read every key once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from conformance.observe.keyspace import split_key
from conformance.problems import UsageProblem
from conformance.protocol.keys import SLOTS, glob_escaped, slot_of
from conformance.protocol.states import LIST_CONTAINERS, QUEUE_KEYS, ZSET_CONTAINERS
from conformance.servers.binary import read_version
from conformance.servers.connection import Client, ServerFacts, connect, connect_node, explained, read_facts
from conformance.servers.setting import RedisUrl, parse_setting
from reports.snapshot import pace
from reports.snapshot.format import buckets_for, lots_for, power_of_two
from reports.snapshot.pace import PageSizes

SLICE = 250_000
"""Elements of a container that one part reads; as many times more as `lots_for` says."""

QUEUES_OF_A_PART = 64
"""Queues whose single keys are read together."""

SMALLEST_TO_SLICE = 2_000
"""A container with fewer elements is read with the other keys of its queue."""

KEYS_PER_SHARE = 131_072
"""As many times more as `lots_for` says."""

FEWEST_SHARES, MOST_SHARES = 4, 256
"""Shares into which a large node's keyspace is cut; powers of two."""

SLOTTED_SINCE = {"Redis": (7, 4, 0), "valkey": (8, 0, 0)}
"""Servers whose nodes of a cluster have a dictionary for each slot, and count the slot in the low bits of a cursor."""

SMALLEST_TO_SHARE = 20_000
"""A node with fewer keys is walked by one part."""


@dataclass(frozen=True, kw_only=True)
class RedisSource:
    """A live store to read. `queue` empty: every queue under the prefix.

    `keys_per_s`: how many keys all readers together may read, in small pieces (a tenth of a key for each element of a
    list, a sorted set or a stream). 0: as fast as possible. None: in small pieces as well, and a process works only for
    a share of the time while other clients use the store.
    """

    redis: str
    prefix: str
    queue: str = ""
    keys_per_s: float | None = 0

    @property
    def address(self) -> RedisUrl:
        """The address of the Redis. Raises UsageProblem where `redis` is not a URL."""
        setting = parse_setting(self.redis)
        if not isinstance(setting, RedisUrl):
            raise UsageProblem(
                f"invalid address of a Redis: {self.redis!r}",
                hint="a snapshot needs a URL, as in redis://127.0.0.1:6379",
            )
        return setting

    @property
    def sizes(self) -> PageSizes:
        """Small pages for a store whose clients must not wait."""
        return pace.GENTLE if self.is_shared else pace.FAST

    @property
    def is_shared(self) -> bool:
        """Whether other clients must not wait."""
        return self.keys_per_s != 0


TABLES_OF_QUEUE_KEYS = frozenset(
    {"memberships", "events", "metas", "markers", "limiters", "stalled_checks", "counters", "metrics"}
)
"""Tables that the keys which a queue has once fill alone, so that a queue that is named needs no walk for them."""

TABLES_OF_JOB_KEYS = frozenset({"jobs", "expiries", "unknown"})
"""Tables that a key named like a job can be a row of: also one of another type, or with a time to live."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The rows that a query asks for; None: all. `containers` only concern those of `memberships`, `ids` of `jobs`.

    Only an outline: rows that do not belong to it may be read too.
    """

    tables: frozenset[str] | None = None
    containers: frozenset[str] | None = None
    ids: frozenset[str] | None = None

    def jobs_alone(self, source: RedisSource) -> frozenset[str] | None:
        """The ids, if their hashes are all that is asked for: in a known queue they need no search."""
        return self.ids if self.tables == frozenset({"jobs"}) and source.queue else None

    def needs(self, part: KeyspacePart, source: RedisSource) -> bool:
        """Whether the part can have rows of the wanted tables."""
        if self.tables is None:
            return True
        if part.kind == "scan":
            return not (source.queue and self.tables <= TABLES_OF_QUEUE_KEYS)
        if part.kind == "queue":
            return bool(self.tables & (TABLES_OF_QUEUE_KEYS | {"schedulers", "expiries", "unknown"}))
        if part.name == "events":
            return bool(self.tables & {"events", "expiries"})
        is_wanted = self.containers is None or part.name in self.containers
        return "expiries" in self.tables or ("memberships" in self.tables and is_wanted)

    def needs_job_keys(self) -> bool:
        """Whether keys that are named like jobs have to be read."""
        return self.tables is None or bool(self.tables & TABLES_OF_JOB_KEYS)


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """All parts of a store, and into how many buckets its rows go: by its keys and memory, those of others included."""

    parts: list[KeyspacePart]
    buckets: int
    keys: int


@dataclass(frozen=True, kw_only=True)
class KeyspacePart:
    """A part of the store.

    `scan`: `node` and share `index` of `shares`, or from `first_slot` to `last_slot`, inclusive. `queue`: the keys that
    `queue` has once, and its scheduler records, without the containers cut into slices (`elsewhere`). `slice`: `key`
    from `start` to `stop`, inclusive: ranks, or stream ids in ms. `is_first`: the first slice of its container.
    `jobs`: the hashes of these `ids` of `queue`. `parts`: of several queues, each without a long container of its own,
    which are read and written together. `queues` are all queues that have a `queue` part, `expires`: any key of the
    node has a time to live, `job_keys`: keys that are named like jobs are read too.
    """

    kind: str
    taken_ms: int
    node: str = ""
    index: int = 0
    shares: int = 1
    first_slot: int = 0
    last_slot: int = -1
    expires: bool = True
    job_keys: bool = True
    ids: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    schedulers: frozenset[str] = frozenset()
    queue: str = ""
    name: str = ""
    start: int = 0
    stop: int = -1
    is_first: bool = False
    elsewhere: frozenset[str] = field(default=frozenset())
    parts: tuple[KeyspacePart, ...] = ()


EVERYTHING = Wanted()


def plan_reading(source: RedisSource, wanted: Wanted = EVERYTHING) -> ReadPlan:
    """Cut what is wanted of the store into parts. Raises redis errors."""
    address = source.address
    ids = wanted.jobs_alone(source)
    with connect(address) as client:
        taken_ms = _now_ms(client)
        if ids is not None:
            part = KeyspacePart(kind="jobs", taken_ms=taken_ms, queue=source.queue, ids=ids)
            return ReadPlan(parts=[part], buckets=1, keys=len(ids))
        nodes = nodes_of(client, address)
        keyspaces = [replace(_keyspace(address, node), slots=_slots_of(client, address, node)) for node in nodes]
        keys, used_bytes = (sum(getattr(each, what) for each in keyspaces) for what in ("keys", "used_bytes"))
        buckets = buckets_for(keys, used_bytes)
        queues = frozenset([source.queue] if source.queue else _queues(client, source))
        schedulers = frozenset(_scheduler_keys(client, source.prefix, queues))
        length = SLICE * lots_for(buckets)
        parts = [part for queue in sorted(queues) for part in _queue_parts(client, source.prefix, queue, length)]
        parts = _together(parts)
    scans = [
        replace(part, queues=queues, schedulers=schedulers, job_keys=wanted.needs_job_keys())
        for keyspace in keyspaces
        for part in _scan_parts(keyspace, lots_for(buckets))
    ]
    needed = [replace(part, taken_ms=taken_ms) for part in [*scans, *parts] if wanted.needs(part, source)]
    return ReadPlan(parts=needed, buckets=buckets, keys=keys)


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
    """The keyspace of a node. `expires`: any of its keys has a time to live.

    `slots`: of a node of a cluster. `slotted`: it has a dictionary for each of them; None: unknown.
    """

    node: str
    keys: int
    used_bytes: int
    expires: bool
    slotted: bool | None = False
    slots: Sequence[int] = ()


def _keyspace(address: RedisUrl, node: str) -> NodeKeyspace:
    with connect_node(address, node) as client:
        info: Any = client.info()
        keys: Any = client.dbsize()
        slotted = False if address.mode == "standalone" else is_slotted(read_facts(client))
    return NodeKeyspace(
        node=node,
        keys=int(keys),
        used_bytes=int(info.get("used_memory", 0)),
        expires=bool(info.get(f"db{address.db}", {}).get("expires", 1)),
        slotted=slotted,
    )


def _slots_of(client: Any, address: RedisUrl, node: str) -> list[int]:
    """The slots of a node of a cluster, in order."""
    owners = {} if address.mode == "standalone" else client.nodes_manager.slots_cache
    return sorted(slot for slot, (first, *_) in owners.items() if f"{first.host}:{first.port}" == node)


def is_slotted(facts: ServerFacts) -> bool | None:
    """Whether a node of a cluster has a dictionary for each slot; None where its product is another one."""
    product, _, own = facts.product.partition(" ")
    version = read_version(own or facts.version)
    since = SLOTTED_SINCE.get(product)
    return None if since is None or version is None else version >= since


def keys_of(address: RedisUrl) -> int:
    """How many keys all nodes hold together, those of others included. Raises EnvironmentProblem."""
    with explained(address):
        with connect(address) as client:
            nodes = nodes_of(client, address)
        return sum(_keyspace(address, node).keys for node in nodes)


def _scan_parts(keyspace: NodeKeyspace, lots: int) -> Iterator[KeyspacePart]:
    whole = KeyspacePart(kind="scan", taken_ms=0, node=keyspace.node, expires=keyspace.expires)
    shares = 1 if keyspace.slotted is None else shares_for(keyspace.keys, lots)
    if keyspace.slotted and shares > 1:
        yield from (
            replace(whole, first_slot=first, last_slot=last) for first, last in slot_edges(keyspace.slots, shares)
        )
    else:
        yield from (replace(whole, index=index, shares=shares) for index in range(shares))


def shares_for(keys: int, lots: int = 1) -> int:
    """The number of shares for a number of keys."""
    if keys < SMALLEST_TO_SHARE:
        return 1
    return min(MOST_SHARES, max(FEWEST_SHARES, power_of_two(keys // (lots * KEYS_PER_SHARE))))


def slot_edges(owned: Sequence[int], shares: int) -> Iterator[tuple[int, int]]:
    """Ranges of slots, inclusive, among which the slots of a node are shared out; together they are all slots."""
    starts = sorted({0, *(owned[len(owned) * share // shares] for share in range(1, shares) if owned)})
    yield from zip(starts, [*(start - 1 for start in starts[1:]), SLOTS - 1], strict=True)


def in_slots(cursor: int, part: KeyspacePart) -> bool:
    """Whether the next cursor is still in the part's range of slots: the slot is in its low bits (`kvstore.c`)."""
    return cursor != 0 and cursor % SLOTS <= part.last_slot


def of_slots(keys: Sequence[bytes], part: KeyspacePart) -> list[bytes]:
    """The keys whose slots are in the part's range. SCAN goes on with the next slot until it has collected enough."""
    return [key for key in keys if slot_of(key) <= part.last_slot]


def _queues(client: Any, source: RedisSource) -> Iterator[str]:
    """Queues that have `meta`. Others lose nothing: the scan reads their keys."""
    for key in client.scan_iter(match=f"{glob_escaped(source.prefix)}:*:meta", count=source.sizes.keys):
        queue, rest = split_key(source.prefix, key.decode("utf-8", "surrogateescape"))
        if rest == "meta":
            yield queue


def _together(parts: Sequence[KeyspacePart]) -> list[KeyspacePart]:
    """The parts with those of single queues in lots: files for each queue would take most of the time."""
    single = [part for part in parts if part.kind == "queue"]
    lots = [tuple(single[start : start + QUEUES_OF_A_PART]) for start in range(0, len(single), QUEUES_OF_A_PART)]
    others = [part for part in parts if part.kind != "queue"]
    return [*others, *(KeyspacePart(kind="queue", taken_ms=0, parts=lot) for lot in lots)]


def _scheduler_keys(client: Any, prefix: str, queues: frozenset[str]) -> Iterator[str]:
    """Keys of the scheduler records that `repeat` announces."""
    for queue in sorted(queues):
        key = f"{prefix}:{queue}:repeat"
        for member in client.zrange(key, 0, -1) if client.type(key) == b"zset" else ():
            yield f"{key}:{member.decode('utf-8', 'surrogateescape')}"


def _queue_parts(client: Client, prefix: str, queue: str, at_once: int) -> Iterator[KeyspacePart]:
    slices = [part for name in QUEUE_KEYS for part in _slices(client, prefix, queue, name, at_once)]
    yield KeyspacePart(kind="queue", taken_ms=0, queue=queue, elsewhere=frozenset(part.name for part in slices))
    yield from slices


def _slices(client: Any, prefix: str, queue: str, name: str, at_once: int) -> Iterator[KeyspacePart]:
    """The slices of one container; none if it is short, or of another type."""
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
    edges = _stream_edges(client, key, length, at_once) if name == "events" else _rank_edges(length, at_once)
    for number, (start, stop) in enumerate(edges):
        yield KeyspacePart(
            kind="slice", taken_ms=0, queue=queue, name=name, start=start, stop=stop, is_first=number == 0
        )


def _rank_edges(length: int, at_once: int) -> Iterator[tuple[int, int]]:
    """Ranks; the last slice is open, because a container may have grown meanwhile."""
    starts = range(0, length, at_once)
    for start in starts:
        yield start, -1 if start == starts[-1] else start + at_once - 1


def _stream_edges(client: Any, key: str, length: int, at_once: int) -> Iterator[tuple[int, int]]:
    """Stream ids in ms, from the first entry to the last in equal steps of time."""
    ends = (client.xrange(key, count=1), client.xrevrange(key, count=1))
    first, last = (int(entries[0][0].split(b"-")[0]) for entries in ends)
    step = max(1, (last - first + 1) // -(-length // at_once))
    starts = range(first, last + 1, step)
    for start in starts:
        yield start, -1 if start == starts[-1] else start + step - 1


def _now_ms(client: Any) -> int:
    seconds, microseconds = client.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


def key_of(source: RedisSource, part: KeyspacePart) -> str:
    """The key that a slice is of."""
    return f"{source.prefix}:{part.queue}:{part.name}"
