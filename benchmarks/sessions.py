"""Shared parts of the benchmarks: a slow network, processor time, Node.js as a peer, and tables of targets."""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from conformance.problems import EnvironmentProblem, Problem
from conformance.servers import RedisInstance
from conformance.upstream.node import find_node
from conformance.upstream.package import MODULES_VARIABLE, ensure_package


@contextmanager
def slow_proxy(host: str, port: int, round_trip_s: float) -> Iterator[int]:
    """Return the port of a proxy to this address, which takes connections as long as the block lasts."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # Half of the round trip in each direction.
        arguments = (listener, (host, port), round_trip_s / 2)
        threading.Thread(target=_serve, args=arguments, daemon=True).start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, target: tuple[str, int], delay_s: float) -> None:
    """Take connections until the listener is shut down. Both threads of a connection end with it."""
    with contextlib.suppress(OSError):
        while True:
            near, _ = listener.accept()
            far = socket.create_connection(target)
            for source, sink in ((near, far), (far, near)):
                # Without Nagle's algorithm, which would add delays of its own to small commands.
                sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_pass_on, args=(source, sink, delay_s), daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket, delay_s: float) -> None:
    with contextlib.suppress(OSError):
        while heard := source.recv(2**16):
            # Before passing it on, so that the whole piece arrives late; its order is kept.
            time.sleep(delay_s)
            sink.sendall(heard)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def processor_s() -> float:
    """Processor time (s) of this process and its running descendants so far."""
    mine = psutil.Process()
    total = 0.0
    for process in [mine, *mine.children(recursive=True)]:
        # A child may end between listing it and reading its times.
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


@contextmanager
def prefix_on(server: RedisInstance) -> Iterator[str]:
    """Provide an empty prefix for one measurement."""
    prefix = server.fresh_prefix()
    yield prefix
    server.remove_prefix(prefix)


def seconds_of_node(server: RedisInstance, prefix: str, queue: str, jobs: int) -> float:
    """Add jobs with `addBulk` of Node.js in a fresh process; returns the time that this took, without the start."""
    node = find_node(None)
    package = ensure_package(node, announce=_announce)
    host, _, port = server.nodes[0].rpartition(":")
    command = [str(node.path), str(Path(__file__).parent / "add_bulk.mjs"), host, port, prefix, queue, str(jobs)]
    environment = {**os.environ, MODULES_VARIABLE: str(package.root)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EnvironmentProblem(f"Node.js could not add jobs: {done.stderr.strip()[-1000:]}")
    return float(done.stdout)


def positive(text: str) -> int:
    """Read a number of the command line that must be 1 or more."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def run(main: Callable[[], None]) -> None:
    """Run a benchmark. A problem that the user can fix is one line without a traceback."""
    try:
        main()
    except Problem as problem:
        print(problem, file=sys.stderr)
        sys.exit(problem.exit_code)


def ratio(measured: Sequence[float], other: Sequence[float]) -> float:
    """Return the median of the ratios of each round: both sides of a ratio were measured at nearly the same time."""
    # Ratios of the same round, because rates of different rounds are from different moments.
    return statistics.median(mine / theirs for mine, theirs in zip(measured, other, strict=True))


def verdict_row(table: Table, what: str, measured: str, target: str, *, holds: bool) -> None:
    """Add a row that says whether a target is met."""
    table.add_row(what, measured, target, "[green]met[/]" if holds else "[red]missed[/]")


def verdict_table(title: str) -> Table:
    """Make a table for `verdict_row`."""
    table = Table(title=title)
    for heading in ("target", "measured", "wanted", ""):
        table.add_column(heading)
    return table


def _announce(line: str) -> None:
    Console(stderr=True).print(line, style="dim")
