"""The cost of adding jobs with the reference client, compared with Node.js and the official Python and Rust clients.

    python -m benchmarks.producer [--rounds 5] [--jobs 5000] [--pairs 2000] [--round-trip-ms 1]

`addBulk` (batches of 1000) and `add` (one after the other) in turns, in one session, on one private Redis; the ratio
is the median over the rounds. The processor time of a job, in the process of the peer, is measured in the same rounds.
Another row has the rate of one connection with the EVALSHA commands of `addBulk`,
prepared beforehand and sent by hand: no client can be faster. Then `Queue.add` of the reference against the same
EVALSHA with the same arguments, prepared and sent by hand with redis-py: both in turns in one process, on the bare
loopback and through a proxy that makes a round trip take 1 ms. The cost is the median of the differences of the pairs.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks import sessions
from benchmarks.peers import NODE, OFFICIAL, PURE_REFERENCE, RUST_OFFICIAL
from benchmarks.sessions import Peer, Place, Rates, Session, slow_proxy

QUEUE: Final = "q"

LEAST_BULK_OF_NODE: Final = 1.0
LEAST_BULK_OF_NODE_PURE: Final = 0.83
"""Without hiredis: the rate that the reference had with it before it was optimised."""

BY_HAND: Final = "EVALSHA by hand"
LARGEST_SHARE_AT_1_MS: Final = 0.05
LARGEST_COST_US: Final = 30.0


@dataclass(frozen=True)
class Cost:
    """Medians in µs: `Queue.add`, the same command by hand, and the difference of each pair."""

    add_us: float
    by_hand_us: float
    difference_us: float

    @property
    def share(self) -> float:
        """The difference as a part of the time by hand."""
        return self.difference_us / self.by_hand_us


def main() -> None:
    """Measure, and print a table per question and one of targets."""
    options = _options()
    with sessions.session(sessions.names_of(options), options.redis) as session:
        bulk, bulk_costs = session.in_turns(
            options.rounds, lambda peer: jobs_per_second(session, peer, "addBulk", options.jobs), options.jobs
        )
        if session.references():
            bulk[BY_HAND] = rates_by_hand(session, options)
        single, single_costs = session.in_turns(
            options.rounds, lambda peer: jobs_per_second(session, peer, "add", options.adds), options.adds
        )
        near = {peer.name: cost_nearby(session, peer, options.pairs) for peer in session.references()}
        far = {peer.name: cost_far_away(session, peer, options) for peer in session.references()}
    console = Console()
    against = [NODE, OFFICIAL, RUST_OFFICIAL]
    console.print(sessions.rate_table(f"addBulk, {options.jobs} jobs in batches of 1000", "jobs/s", bulk, against))
    console.print(sessions.cost_table(bulk_costs, against))
    console.print(sessions.rate_table(f"add, {options.adds} jobs one after the other", "jobs/s", single, against))
    console.print(sessions.cost_table(single_costs, against))
    console.print(_cost_table(near, far, options))
    console.print(_verdicts(bulk, near, far, options))


def jobs_per_second(session: Session, peer: Peer, task: str, jobs: int) -> float:
    """Let a peer add this number of jobs to an empty queue."""
    with session.place() as place:
        return jobs / float(peer.do(task, place, QUEUE, jobs=jobs))


def rates_by_hand(session: Session, options: argparse.Namespace) -> list[float]:
    """Jobs per second of the bare commands, in the same number of rounds as the peers."""
    reference = session.references()[0]
    return [jobs_per_second(session, reference, "byHand", options.jobs) for _ in range(options.rounds)]


def cost_nearby(session: Session, peer: Peer, pairs: int) -> Cost:
    """Measure the cost of `add` on the bare loopback."""
    with session.place() as place:
        return _cost(peer, place, pairs)


def cost_far_away(session: Session, peer: Peer, options: argparse.Namespace) -> Cost:
    """Measure the cost of `add` through a slow network."""
    host, _, port = session.server.nodes[0].rpartition(":")
    with slow_proxy(host, int(port), options.round_trip_ms / 1000) as slow_port, session.place(slow_port) as place:
        return _cost(peer, place, options.pairs)


def _cost(peer: Peer, place: Place, pairs: int) -> Cost:
    measured = [(added * 1e6, by_hand * 1e6) for added, by_hand in peer.do("overhead", place, QUEUE, jobs=pairs)]
    return Cost(
        add_us=statistics.median(added for added, _ in measured),
        by_hand_us=statistics.median(by_hand for _, by_hand in measured),
        difference_us=statistics.median(added - by_hand for added, by_hand in measured),
    )


def _options() -> argparse.Namespace:
    parser = sessions.parser(__doc__)
    parser.add_argument("--jobs", type=sessions.positive, default=5000, help="jobs per addBulk (%(default)s)")
    parser.add_argument(
        "--adds", type=sessions.positive, default=1000, help="jobs per measurement of add (%(default)s)"
    )
    parser.add_argument("--pairs", type=sessions.positive, default=2000, help="pairs for the cost (%(default)s)")
    parser.add_argument("--round-trip-ms", type=float, default=1.0, help="the slow network (%(default)s)")
    return parser.parse_args()


def _cost_table(near: dict[str, Cost], far: dict[str, Cost], options: argparse.Namespace) -> Table:
    table = Table(title=f"Queue.add and the same EVALSHA by hand, median of {options.pairs} pairs")
    for heading in ("client", "network", "add µs", "by hand µs", "difference µs", "difference %"):
        table.add_column(heading, justify="left" if heading in {"client", "network"} else "right")
    for network, costs in (("loopback", near), (f"{options.round_trip_ms:g} ms", far)):
        for name, cost in costs.items():
            numbers = (cost.add_us, cost.by_hand_us, cost.difference_us, cost.share * 100)
            table.add_row(name, network, *(f"{number:.1f}" for number in numbers))
    return table


def _verdicts(bulk: Rates, near: dict[str, Cost], far: dict[str, Cost], options: argparse.Namespace) -> Table:
    table = sessions.verdict_table("targets of the reference client")
    for name, nearby in near.items():
        if NODE in bulk:
            found = sessions.ratio(bulk[name], bulk[NODE])
            least = LEAST_BULK_OF_NODE_PURE if name == PURE_REFERENCE else LEAST_BULK_OF_NODE
            what = f"{name}: addBulk x {NODE}"
            sessions.verdict_row(table, what, f"{found:.2f}", f"at least {least}", holds=found >= least)
        cost, share = nearby.difference_us, far[name].share
        what = f"{name}: cost of add on loopback"
        wanted = f"at most {LARGEST_COST_US:g} µs"
        sessions.verdict_row(table, what, f"{cost:.1f} µs", wanted, holds=cost <= LARGEST_COST_US)
        what = f"{name}: cost of add at {options.round_trip_ms:g} ms"
        wanted = f"less than {LARGEST_SHARE_AT_1_MS:.0%}"
        sessions.verdict_row(table, what, f"{share:.1%}", wanted, holds=share < LARGEST_SHARE_AT_1_MS)
    return table


if __name__ == "__main__":
    sessions.run(main)
