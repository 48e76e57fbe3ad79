"""Shared parts of the benchmarks: peer processes, a session of peers on one Redis, and tables."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO, Any, Final

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.peers import REFERENCES, ROOT, Announce, chosen_names, command_of
from conformance.problems import EnvironmentProblem, Problem, UsageProblem
from conformance.servers import RedisInstance, open_server

_LAST_LINES: Final = 6
TICK_S: Final = 0.01
"""How exact the processor time of another process is (Linux)."""


@dataclass(frozen=True)
class Place:
    """The address of a peer's queue. All peers of a session share `prefix`, but not queues."""

    host: str
    port: int
    prefix: str


class Peer:
    """A running child process. Raises EnvironmentProblem, with the end of its stderr, when it does not answer."""

    def __init__(self, name: str, process: subprocess.Popen[str], errors: IO[str]) -> None:
        self.name = name
        self._process = process
        self._errors = errors
        self.spent_s = 0.0
        """Processor time (s) of the last task."""

    def do(self, task: str, place: Place, queue: str, **args: Any) -> Any:
        """Run a task on a queue; returns its measurement."""
        where = {"host": place.host, "port": place.port, "prefix": place.prefix, "queue": queue}
        before = self.processor_s()
        line = self._exchange(json.dumps({"task": task, "args": {**where, **args}}))
        # A task that is shorter than a tick of that clock counts as one.
        self.spent_s = max(self.processor_s() - before, TICK_S) if line else TICK_S
        answer = json.loads(line) if line else {"error": self._last_words()}
        if "error" in answer:
            raise EnvironmentProblem(f"peer {self.name} could not {task}: {answer['error'].strip()}")
        return answer["value"]

    def resident_bytes(self) -> int:
        """Resident memory of the process, as the system counts it."""
        command = ["ps", "-o", "rss=", "-p", str(self._process.pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EnvironmentProblem(f"ps does not know peer {self.name}", hint="see its last output above")
        return int(done.stdout) * 1024

    def processor_s(self) -> float:
        """Processor time (s) of the process so far."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def stop(self) -> None:
        """End the process: it leaves when its stdin ends."""
        # Closing stdin is the signal for every peer; a kill would hide errors at its end.
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()

    def _exchange(self, request: str) -> str:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        try:
            requests.write(f"{request}\n")
            requests.flush()
        except BrokenPipeError:
            return ""
        return answers.readline()

    def _last_words(self) -> str:
        self._errors.seek(0)
        return " | ".join(self._errors.read().strip().splitlines()[-_LAST_LINES:]) or "it ended without a word"


def place_on(server: RedisInstance, port: int | None = None) -> Place:
    """Return a fresh prefix on this Redis, reached directly or by another port of this machine (a proxy's)."""
    host, _, own_port = server.nodes[0].rpartition(":")
    return Place(host, port or int(own_port), server.fresh_prefix())


@contextmanager
def running(names: Sequence[str], announce: Announce) -> Iterator[list[Peer]]:
    """Start peers, and end them after the block. Installs what is missing."""
    with ExitStack() as stack:
        yield [stack.enter_context(_started(name, announce)) for name in names]


@contextmanager
def _started(name: str, announce: Announce) -> Iterator[Peer]:
    command = command_of(name, announce)
    environment = {**os.environ, **command.environment}
    # A file and no pipe: a peer that logs much would block on a full pipe.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(
            command.words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        peer = Peer(name, process, errors)
        try:
            yield peer
        finally:
            peer.stop()


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


CONSOLE: Final = Console(stderr=True)

Rates = dict[str, list[float]]
"""The measurement of each round, by the name of the peer; more is better."""


@dataclass(frozen=True)
class Session:
    """A Redis and the peers that run on it."""

    server: RedisInstance
    peers: Sequence[Peer]

    def references(self) -> list[Peer]:
        """Return the variants of the reference client."""
        return [peer for peer in self.peers if peer.name in REFERENCES]

    @contextmanager
    def fresh_peer(self, name: str) -> Iterator[Peer]:
        """Start a fresh process of a peer."""
        with running([name], _announce) as (peer,):
            yield peer

    @contextmanager
    def place(self, port: int | None = None) -> Iterator[Place]:
        """Provide an empty prefix for one measurement, through another port if one is given."""
        place = place_on(self.server, port)
        yield place
        self.server.remove_prefix(place.prefix)

    def in_turns(self, rounds: int, measure: Callable[[Peer], float], jobs: int) -> tuple[Rates, Rates]:
        """Measure every peer once per round, after one round that is not counted: a slow moment hits all of them.

        Returns the measurements, and the processor time (µs) of each job in the last task of each measurement: unlike
        a rate it depends little on what else the machine does.
        """
        costs: Rates = {peer.name: [] for peer in self.peers}
        rates: Rates = {peer.name: [] for peer in self.peers}
        # One round more, which is not counted: it warms up processes, scripts and caches.
        for number in range(rounds + 1):
            # Peers in turns, so that a slow moment of the machine hits all of them.
            for peer in self.peers:
                CONSOLE.print(f"  round {number} of {rounds}: {peer.name}", style="dim")
                rate = measure(peer)
                if number:
                    rates[peer.name].append(rate)
                    costs[peer.name].append(peer.spent_s / jobs * 1e6)
        return rates, costs


@contextmanager
def session(names: Sequence[str], setting: str | None) -> Iterator[Session]:
    """Start a Redis and the peers for the duration of the block."""
    with open_server(setting, announce=_announce) as server:
        if server.mode != "standalone":
            raise UsageProblem("the benchmarks need a single Redis, not a cluster", hint="leave --redis away")
        with running(names, _announce) as started:
            yield Session(server, started)


def parser(description: str | None) -> argparse.ArgumentParser:
    """Make a parser with the options that every benchmark has."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--peers", default=None, help="which peers, separated by commas; default: all")
    made.add_argument("--redis", default=None, help="where Redis comes from; default: a private one")
    made.add_argument("--rounds", type=positive, default=5, help="measurements of each peer (%(default)s)")
    return made


def positive(text: str) -> int:
    """Read a number of the command line that must be 1 or more."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def names_of(options: argparse.Namespace) -> list[str]:
    """The peers that the user chose; prints a line for each one that is left out, with the reason."""
    return chosen_names(options.peers, _announce)


def run(main: Callable[[], None]) -> None:
    """Run a benchmark. A problem that the user can fix is one line without a traceback."""
    try:
        main()
    except Problem as problem:
        print(problem, file=sys.stderr)
        sys.exit(problem.exit_code)


def rate_table(title: str, unit: str, rates: Rates, against: Sequence[str]) -> Table:
    """Make a table of medians, with the median ratio to each of the peers in `against`."""
    table = Table(title=title)
    table.add_column("client")
    for heading in (unit, "lowest", "highest", *(f"x {name}" for name in against if name in rates)):
        table.add_column(heading, justify="right")
    for name, measured in rates.items():
        ratios = [f"{ratio(measured, rates[other]):.2f}" for other in against if other in rates]
        numbers = (statistics.median(measured), min(measured), max(measured))
        table.add_row(name, *(f"{number:,.0f}" for number in numbers), *ratios)
    return table


def cost_table(costs: Rates, against: Sequence[str]) -> Table:
    """Make a table of the processor time of a job; less is better, also in the ratios."""
    return rate_table("processor time of a job in the process of the client", "µs", costs, against)


def ratio(measured: Sequence[float], other: Sequence[float]) -> float:
    """Return the median of the ratios of each round: both sides of a ratio were measured at nearly the same time."""
    # Ratios of the same round, because rates of different rounds are from different moments.
    return statistics.median(mine / theirs for mine, theirs in zip(measured, other, strict=True))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that `percent` percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]


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
    CONSOLE.print(line, style="dim")
