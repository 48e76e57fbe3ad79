"""The time that the tap adds to a command.

    python benchmarks/tap.py [--rounds 40] [--commands 250]

A client in a separate process, like every driver, uses one private Redis, in turns directly and through a tap in
this process, so that a slow moment of the machine hits both. Shown per kind of command: the median time of a round trip
(ms) on either way, and the median of the differences between neighbouring turns.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from conformance.observe.tap.resp import encode_command
from conformance.observe.tap.rules import Trigger, Watch
from conformance.observe.tap.tap import Tap
from conformance.servers import open_server

LIMIT_MS = 0.2
_SCRIPT = "return redis.call('HSET', KEYS[12], 'a', ARGV[2])"
_KEYS = [f"bench:q:{name}" for name in "abcdefghijklmn"]
_ARGV = ["bench:q:", "1700000000000", "x" * 300, *("1" for _ in range(6))]

KINDS: dict[str, list[list[str]]] = {
    "PING": [["PING"]],
    "HSET, 200 bytes": [["HSET", "bench:h", "field", "x" * 200]],
    "EVAL, 14 keys, 9 arguments": [["EVAL", _SCRIPT, str(len(_KEYS)), *_KEYS, *_ARGV]],
    "LRANGE, 100 values": [["LRANGE", "bench:l", "0", "99"]],
    "pipeline of 20 HSET": [["HSET", f"bench:h{index}", "field", "x" * 200] for index in range(20)],
    "GET, 1 MiB": [["GET", "bench:big"]],
}
PREPARATION = [["RPUSH", "bench:l", *(f"value {index}" for index in range(100))], ["SET", "bench:big", "x" * 2**20]]


def main() -> None:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--commands", type=int, default=250, help="round trips per turn")
    parser.add_argument("--client", nargs=2, metavar="ADDRESS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        print(json.dumps(_measure(options.client, options.rounds, options.commands)))
        return
    with open_server(None, announce=print) as server, Tap(server.nodes[0]) as tap:
        Console().print(_table("no rule", _in_child(server.nodes[0], tap.address, options)))
        with tap.when(Trigger(script=None, command="NEVER"), Watch()):
            Console().print(_table("one rule in force", _in_child(server.nodes[0], tap.address, options)))


def _in_child(direct: str, tapped: str, options: argparse.Namespace) -> dict[str, list[list[float]]]:
    command = [sys.executable, __file__, "--client", direct, tapped]
    command += ["--rounds", str(options.rounds), "--commands", str(options.commands)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    measured: dict[str, list[list[float]]] = json.loads(done.stdout)
    return measured


def _measure(addresses: list[str], rounds: int, commands: int) -> dict[str, list[list[float]]]:
    """Median ms per round trip of every turn: for every kind, pairs of direct and tapped."""
    connections = [_connect(address) for address in addresses]
    for words in PREPARATION:
        _exchange(connections[0], encode_command(words))
    return {
        kind: [[_turn(connection, words, commands) for connection in connections] for _ in range(rounds)]
        for kind, words in KINDS.items()
    }


def _turn(connection: socket.socket, words: list[list[str]], commands: int) -> float:
    data = b"".join(encode_command(command) for command in words)
    size = _exchange(connection, data)
    count = max(1, commands // (20 if size > 100_000 else len(words)))
    return statistics.median(_timings(connection, data, size, count))


def _timings(connection: socket.socket, data: bytes, size: int, count: int) -> Iterator[float]:
    for _ in range(count):
        started = time.perf_counter()
        connection.sendall(data)
        left = size
        while left:
            left -= len(connection.recv(min(left, 2**20)))
        yield (time.perf_counter() - started) * 1000


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _exchange(connection: socket.socket, data: bytes) -> int:
    """Send commands whose replies all have the same size from now on, and return that size."""
    connection.sendall(data + encode_command(["ECHO", "end of replies"]))
    received = b""
    end = b"$14\r\nend of replies\r\n"
    while not received.endswith(end):
        received += connection.recv(2**20)
    return len(received) - len(end)


def _table(title: str, measured: dict[str, list[list[float]]]) -> Table:
    table = Table(title=f"one round trip, ms ({title}); the aim is to add less than {LIMIT_MS} per command")
    for column in ("command", "direct", "tapped", "added", "per command"):
        table.add_column(column, justify="left" if column == "command" else "right")
    for kind, pairs in measured.items():
        direct = statistics.median(pair[0] for pair in pairs)
        tapped = statistics.median(pair[1] for pair in pairs)
        added = statistics.median(pair[1] - pair[0] for pair in pairs)
        per_command = added / len(KINDS[kind])
        table.add_row(kind, f"{direct:.3f}", f"{tapped:.3f}", f"{added:.3f}", f"{per_command:.3f}")
    return table


if __name__ == "__main__":
    main()
