"""Facts that a manifest records besides the rows: which Redis, which scripts, and whether anything moved meanwhile."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from redis.exceptions import ResponseError

from conformance.servers.connection import Client, connect, connect_node, read_facts
from conformance.upstream.manifest import load_manifest
from reports.snapshot.plan import Part, Source


def script_facts() -> tuple[str, str]:
    """Version of the pinned BullMQ, and one SHA-256 over the SHA-1 of all of its scripts, in the order of names."""
    manifest = load_manifest()
    digests = "".join(manifest.scripts[name].sha1 for name in sorted(manifest.scripts))
    return manifest.version, hashlib.sha256(digests.encode()).hexdigest()


def redis_facts(source: Source) -> tuple[str, dict[str, str]]:
    """Version of the Redis and the settings that matter to BullMQ. Raises redis errors."""
    address = source.address
    with connect_node(address, address.nodes[0]) as client:
        facts = read_facts(client)
    return facts.version, facts.settings


def last_events(source: Source, queues: Iterable[str]) -> dict[str, str]:
    """Id of the last entry ever written to each event stream; it changes with whatever happens in a queue."""
    with connect(source.address) as client:
        return {queue: _last_event(client, f"{source.prefix}:{queue}:events") for queue in sorted(queues)}


def _last_event(client: Client, key: str) -> str:
    untyped: Any = client
    try:
        return str(untyped.xinfo_stream(key)["last-generated-id"])
    except ResponseError:
        return ""


def queues_of(parts: Iterable[Part]) -> list[str]:
    """Names of the queues that a plan knows."""
    return sorted({part.queue for part in parts if part.kind == "queue"})
