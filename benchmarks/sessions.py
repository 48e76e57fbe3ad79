"""What the benchmarks share: one private Redis, the peers in turns, and medians with their ratios."""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks import peers
from benchmarks.peers import Peer, Place
from conformance.problems import Problem, UsageProblem
from conformance.servers import RedisInstance, open_server

CONSOLE: Final = Console(stderr=True)

Rates = dict[str, list[float]]
"""What was measured in each round, by the name of the peer; more is better."""


@dataclass(frozen=True)
class Session:
    """A Redis and the peers that run on it."""

    server: RedisInstance
    peers: Sequence[Peer]

    def references(self) -> list[Peer]:
        """Answer the reference client with each of its event loops."""
        return [each for each in self.peers if each.name in {peers.REFERENCE, peers.FAST_REFERENCE}]

    @contextmanager
    def fresh_peer(self, name: str) -> Iterator[Peer]:
        """Start a process of a peer that has done nothing yet."""
        with peers.running([name], _announce) as (peer,):
            yield peer

    @contextmanager
    def place(self, port: int | None = None) -> Iterator[Place]:
        """Provide an empty corner of the Redis for one measurement, reached through another port if one is given."""
        place = peers.place_on(self.server, port)
        yield place
        self.server.remove_prefix(place.prefix)

    def in_turns(self, rounds: int, measure: Callable[[Peer], float]) -> Rates:
        """Measure every peer once per round, after one round that is not counted: a slow moment hits all of them."""
        rates: Rates = {peer.name: [] for peer in self.peers}
        for number in range(rounds + 1):
            for peer in self.peers:
                CONSOLE.print(f"  round {number} of {rounds}: {peer.name}", style="dim")
                rate = measure(peer)
                if number:
                    rates[peer.name].append(rate)
        return rates


@contextmanager
def session(names: Sequence[str], setting: str | None) -> Iterator[Session]:
    """Start a Redis and the peers for the duration of the block."""
    with open_server(setting, announce=_announce) as server:
        if server.mode != "standalone":
            raise UsageProblem("the benchmarks need a single Redis, not a cluster", hint="leave --redis away")
        with peers.running(names, _announce) as running:
            yield Session(server, running)


def parser(description: str | None) -> argparse.ArgumentParser:
    """Make a parser with the options that every benchmark has."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--peers", default=",".join(peers.default_names()), help="which peers, separated by commas")
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
    """Which peers the user chose."""
    return list(dict.fromkeys(str(options.peers).split(",")))


def run(main: Callable[[], None]) -> None:
    """Run a benchmark. A problem that the user can mend is one line and no traceback."""
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


def ratio(measured: Sequence[float], other: Sequence[float]) -> float:
    """Answer the median of the ratios of each round: both sides of a ratio saw the same moment of the machine."""
    return statistics.median(mine / theirs for mine, theirs in zip(measured, other, strict=True))


def percentile(values: Sequence[float], percent: float) -> float:
    """Answer the smallest value that so many percent do not exceed."""
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
