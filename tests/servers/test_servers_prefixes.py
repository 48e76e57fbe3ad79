"""A block on a Redis of the user that is interrupted leaves no key of ours, and every other one as it was."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from conformance.servers import open_server
from conformance.servers.opening import RedisInstance

FOREIGN = {
    b"bull:orders:1": b"job",
    b"bc00000000:q:1": b"of another run",
    b"bull:q-bc00000000:1": b"also",
    b"bullmq-conformance:load:bc00000000:digest:2:0": b"a load that its user resumes",
}
ANOTHER_PROCESS = "from conformance.servers import prefixes; prefixes.note('bc12345678')"


def everything(server: RedisInstance) -> dict[bytes, bytes]:
    with server.connect() as client:
        return {key: client.dump(key) for key in client.scan_iter()}


def interrupted_on(server: RedisInstance) -> None:
    with open_server(server.text, announce=print) as users, server.connect() as client:
        mine = users.fresh_prefix()
        subprocess.run([sys.executable, "-c", ANOTHER_PROCESS], check=True)
        for key in (f"{mine}:q:1", f"{mine}:q:meta", f"bull:q-{mine}:1", "bc12345678:q:1", f"{{{mine}}}:q:1"):
            client.set(key, "ours")
        client.set(f"bullmq-conformance:load:{mine}:digest:2:0", "as far as it came")
        raise KeyboardInterrupt


def test_an_interrupted_block_leaves_nothing_but_what_was_there(server: RedisInstance) -> None:
    with server.connect() as client:
        for key, value in FOREIGN.items():
            client.set(key, value)
        before = everything(server)
        with pytest.raises(KeyboardInterrupt):
            interrupted_on(server)
        assert everything(server) == before
    assert "BULLMQ_CONFORMANCE_PREFIXES" not in os.environ


def test_a_block_that_ends_keeps_what_it_wants_to_keep(server: RedisInstance) -> None:
    """`load` leaves its queues on the Redis that the user names."""
    with server.connect() as client:
        with open_server(server.text, announce=print) as users:
            mine = users.fresh_prefix()
            client.set(f"{mine}:q:1", "kept")
        assert client.get(f"{mine}:q:1") == b"kept"
