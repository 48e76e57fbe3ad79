"""Connections of workers and event readers, as CLIENT LIST shows them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from redis.exceptions import ResponseError

from conformance.reference_impl.connection.connection import Connection

_NO_CLIENT_LIST: Final = re.compile("unknown command ['`]\\s*client\\s*['`]", re.IGNORECASE)


async def named_clients(connection: Connection, queue: str, wanted: Callable[[str], bool]) -> list[dict[str, str]]:
    """Return the connections with a wanted name: `name` is the queue's, `rawname` the connection's."""
    try:
        lines = await connection.client_lines()
    except ResponseError as error:
        if not _NO_CLIENT_LIST.search(str(error)):
            raise
        # As Node.js does, with a provider that does this.
        return [{"name": "GCP does not support client list"}]
    found = []
    for line in lines:
        client = _client(line)
        if wanted(client.get("name", "")):
            found.append({**client, "name": queue, "rawname": client["name"]})
    return found


def _client(line: str) -> Mapping[str, str]:
    pairs = (word.partition("=") for word in line.split(" "))
    return {name: value for name, _, value in pairs}
