"""Stores in every encoding that Redis has for them, and RDB files written by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any

from conformance.observe.tables import Snapshot
from reports.snapshot.rdb.library import PAGE_BYTES, open_rdb
from reports.snapshot.rdb.meaning import RowsOfKeys
from reports.snapshot.rows import WideRow, batch_of, rows_of, wide_rows

NUMBERS = [
    number
    for bits in (3, 7, 12, 13, 15, 16, 23, 24, 31, 32, 63)
    for number in (2**bits - 1, 2 ** min(bits, 62), -(2**bits), -(2**bits) + 1)
]
"""Integers at the edges of all widths in which they are packed."""

TEXTS = [
    *(bytes(str(number), "ascii") for number in NUMBERS),
    *(b"", b"007", b"-0", b"1.5", b"\xff\xfe", b"\x00\r\n", "ü".encode()),
    *(letter * size for letter, size in ((b"a", 63), (b"b", 64), (b"ab", 200), (b"xyz", 1366), (b"q", 20_000))),
]

SETTINGS: dict[str, tuple[int | str, ...]] = {
    "hash-max-ziplist-entries": (512, 3),
    "hash-max-ziplist-value": (64, 5000),
    "list-max-ziplist-size": (-2, 3),
    "list-compress-depth": (0, 1),
    "set-max-intset-entries": (512, 3),
    "zset-max-ziplist-entries": (128, 3),
    "zset-max-ziplist-value": (64, 5000),
    "stream-node-max-entries": (100, 3),
    "rdbcompression": ("yes", "no"),
}
"""Settings that decide about encodings, by their names in Redis 6.2, which newer versions still know."""

KEYS = {
    "hash": ("1", "job-7", "meta", "repeat:daily", "repeat:daily:1700000000000", "1:processed", "metrics:completed"),
    "list": ("wait", "active", "paused", "1:logs", "metrics:completed:data", "9"),
    "set": ("stalled", "1:dependencies", "ordinary:set"),
    "zset": ("completed", "delayed", "repeat", "marker", "1:unsuccessful"),
    "stream": ("events", "1:stream"),
    "string": ("id", "pc", "1:lock", "de:once", "limiter", "2"),
}
"""Keys of a queue by type: those that BullMQ uses, and some that it does not."""

FAR_AWAY_MS = 10_000_000


def fill(client: Any, prefix: str, seed: int) -> set[str]:
    """Fill a store at random, under settings chosen at random; returns the encodings that Redis chose."""
    chance = random.Random(seed)
    for name, values in SETTINGS.items():
        client.config_set(name, chance.choice(values))
    encodings: set[str] = set()
    for kind, names in KEYS.items():
        for name in names:
            key = f"{prefix}:q{chance.randrange(2)}:{name}"
            _FILLERS[kind](client, key, chance)
            encodings.add(f"{kind} {client.object('encoding', key).decode()}")
            if chance.random() < 0.2:
                client.pexpire(key, FAR_AWAY_MS)
    return encodings


def _texts(chance: random.Random) -> list[bytes]:
    """Texts of which no two are equal; sometimes nothing but integers."""
    known = [b"%d" % number for number in NUMBERS] if chance.random() < 0.4 else TEXTS
    return list(dict.fromkeys(chance.choices(known, k=chance.choice((1, 3, 30)))))


def _fill_hash(client: Any, key: str, chance: random.Random) -> None:
    client.hset(key, mapping={text: chance.choice(TEXTS) for text in _texts(chance)})
    if chance.random() < 0.5:
        client.hset(key, "timestamp", "1700000000000")


def _fill_zset(client: Any, key: str, chance: random.Random) -> None:
    scores = (0.0, -0.5, 1.0, 1e300, float("inf"), float("-inf"), 1700000000000.0 * 4096, 2.0**53, 0.1)
    client.zadd(key, {text: chance.choice(scores) for text in _texts(chance)})


def _fill_stream(client: Any, key: str, chance: random.Random) -> None:
    entries = []
    for number in range(chance.choice((1, 12, 40))):
        names = chance.choice(([b"event", b"jobId"], [b"event"], [b"event", b"jobId", b"prev", b"7"]))
        fields = {name: chance.choice(TEXTS) for name in names}
        entries.append(client.xadd(key, fields, id=f"{1700000000000 + number // 3}-{number % 3 + 1}"))
    for entry in entries[1:]:
        if chance.random() < 0.1:
            client.xdel(key, entry)
    if chance.random() < 0.5:
        client.xgroup_create(key, "readers", id="0")
        client.xreadgroup("readers", "one", {key: ">"}, count=3)


_FILLERS: dict[str, Callable[[Any, str, random.Random], object]] = {
    "hash": _fill_hash,
    "list": lambda client, key, chance: client.rpush(key, *_texts(chance), *_texts(chance)),
    "set": lambda client, key, chance: client.sadd(key, *_texts(chance)),
    "zset": _fill_zset,
    "stream": _fill_stream,
    "string": lambda client, key, chance: client.set(key, chance.choice(TEXTS)),
}


def saved(client: Any) -> Path:
    """The file into which the server saves what it holds."""
    client.save()
    folder, name = (client.config_get(setting)[setting] for setting in ("dir", "dbfilename"))
    return Path(str(folder), str(name))


def rows_in(path: Path, prefix: str, taken_ms: int, page_bytes: int = PAGE_BYTES) -> list[str]:
    """Every row in a file as a text, sorted."""
    rows = RowsOfKeys(prefix, taken_ms)
    with open_rdb(path, f"{prefix}:".encode(), 0) as reader:
        batches = [batch for page in reader.pages(page_bytes) for batch in rows.batches(page)]
    return sorted(shown(wide) for batch in (*batches, rows.rest()) for wide in rows_of(batch))


def rows_read(snapshot: Snapshot) -> list[str]:
    """The same of a snapshot that the gate has read."""
    return sorted(shown(wide) for wide in rows_of(batch_of(wide_rows(snapshot))))


def shown(wide: WideRow) -> str:
    """A row as a text: fields of a hash have no order, and a time to live is another one a moment later.

    The gate does not ask for the moment at which a key ends.
    """
    fields = wide["fields"]
    if fields is not None and wide["table"] != "events":
        fields = sorted(fields)
    return repr({**wide, "fields": fields, "ttl_ms": wide["ttl_ms"] and "some", "expires_ms": None})


def file_of(path: Path, *items: bytes, version: bytes = b"0011") -> Path:
    """A file of items that are written by hand, without a checksum."""
    path.write_bytes(b"REDIS" + version + b"".join(items) + b"\xff" + bytes(8))
    return path


def string(text: bytes) -> bytes:
    """A short string as it is in a file."""
    assert len(text) < 64
    return bytes([len(text)]) + text


def listpack(*elements: bytes | int) -> bytes:
    """Short texts and small numbers as Redis packs them since version 7."""
    packed = b"".join(
        bytes([element, 1]) if isinstance(element, int) else bytes([0x80 | len(element), *element, 1 + len(element)])
        for element in elements
    )
    return (len(packed) + 7).to_bytes(4, "little") + len(elements).to_bytes(2, "little") + packed + b"\xff"


def module_id(name: str) -> bytes:
    """The number by which a file calls a type of a module: six bits a letter, and ten of its version."""
    number = 0
    for letter in name:
        number = number << 6 | (ascii_uppercase + ascii_lowercase + digits + "-_").index(letter)
    return (number << 10).to_bytes(8, "big")
