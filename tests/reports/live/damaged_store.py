"""Stores of `live_store.mjs`: one process of Node.js fills and loads them, and Redis commands damage them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from conformance.servers import RedisInstance
from conformance.servers.setting import split_node
from conformance.upstream.node import find_node
from conformance.upstream.package import ensure_bullmq
from tests.reports.live.damages import LiveDamage

PROGRAM = Path(__file__).with_name("live_store.mjs")
END_S = 60.0


@contextmanager
def node_load(
    server: RedisInstance, prefix: str, queues: Sequence[str], *, rate: int, version: str = "5.62.0"
) -> Iterator[subprocess.Popen[str]]:
    """Fill queues; in this block others are loaded with `rate` jobs/s."""
    node = find_node(None)
    root = ensure_bullmq(node, version, announce=lambda _: None).root
    _, port = split_node(server.nodes[0])
    words = [str(node.path), str(PROGRAM), str(root), str(port), prefix, ",".join(queues), str(rate)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        try:
            _, out = _pipes(program)
            line = out.readline()
            assert line in ("loaded\n", "filled\n"), f"Node.js has not filled the store: {line!r}"
            yield program
        finally:
            _end(program)
    assert program.returncode == 0, "the load has failed"


def _pipes(program: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert program.stdin is not None
    assert program.stdout is not None
    return program.stdin, program.stdout


def _end(program: subprocess.Popen[str]) -> None:
    _pipes(program)[0].close()
    try:
        program.wait(END_S)
    except subprocess.TimeoutExpired:
        program.kill()
        raise


def damage(server: RedisInstance, prefix: str, damages: Sequence[LiveDamage]) -> None:
    with server.connect() as client:
        for each in damages:
            each.inflict(client, f"{prefix}:{each.name}:")
