"""A Redis that answers: its address, what it is, and the kit's own corner in it."""

from __future__ import annotations

import random
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from conformance.servers import connection
from conformance.servers.setting import Address

_GLOB = re.compile(r"([*?\[\]^\\-])")
_SCAN_COUNT = 1000


@dataclass(frozen=True, kw_only=True)
class Server(Address):
    """An address that answered, and what is known about it.

    `source`: where it came from, for people ("redis-server 7.0.15 from PATH"). `version`: the number that clients see.
    `settings`: the CONFIG values that matter to BullMQ, each "unavailable" if Redis does not tell. `own`: the kit
    started it and will end it; False: it belongs to the user, and the kit touches nothing but its own prefixes.
    """

    source: str
    version: str
    settings: dict[str, str]
    own: bool

    def connect(self, *, timeout_s: float = connection.COMMAND_TIMEOUT_S) -> connection.Client:
        """Make a client of the kit's own; replies are bytes. Close it (`with`) when done. Raises redis errors."""
        return connection.connect(self, timeout_s=timeout_s)

    def fresh_prefix(self, rng: random.Random | None = None) -> str:
        """Make a key prefix that nobody uses: `bc` and 8 hex digits, in a cluster as a hash tag (`{bc0f3a9c11}`).

        Leave `rng` away outside of tests: runs with equal seeds may share one Redis.
        """
        number = secrets.randbits(32) if rng is None else rng.getrandbits(32)
        prefix = f"bc{number:08x}"
        return f"{{{prefix}}}" if self.mode == "cluster" else prefix

    def remove_prefix(self, prefix: str) -> int:
        """Unlink all keys `PREFIX:...` and nothing else. Returns how many there were. Raises redis errors.

        Keys are found by SCAN: what other clients write meanwhile under the prefix may stay.
        """
        if not prefix:
            raise ValueError("an empty prefix would remove everything")
        with self.connect() as client:
            # RedisCluster scans all primaries, and sends one UNLINK per slot.
            found = client.scan_iter(match=f"{escape_glob(prefix)}:*", count=_SCAN_COUNT)
            return sum(client.unlink(*keys) for keys in _batches(found, _SCAN_COUNT))


def escape_glob(text: str) -> str:
    """Write a MATCH pattern that matches this text only."""
    return _GLOB.sub(r"\\\1", text)


def _batches(keys: Iterator[bytes], size: int) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    for key in keys:
        batch.append(key)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
