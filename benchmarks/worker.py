"""How fast the reference client works through a queue, and what it needs for that.

    python -m benchmarks.worker [--rounds 5] [--jobs 5000] [--memory-jobs 100000] [--peers node,reference,...]

Node and the official Python client are measured beside it: every peer processes empty jobs at concurrency 10 and at
100, in turns, in one session, on one private Redis; the ratio is the median over the rounds. Then: how long an idle
worker needs to pick up a job (from the call of `add` to the processor), how long the stalled check of 10,000 active
jobs with live locks takes, and by how much a fresh process grows with the jobs that it adds and processes.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks import sessions
from benchmarks.sessions import Peer, Rates, Session

CONCURRENCIES: Final = (10, 100)
QUEUE: Final = "q"
MEGABYTE: Final = 1_000_000
WARM_UP_JOBS: Final = 1000
PORTION: Final = 10_000

LEAST_OF_NODE: Final = 1.0
LEAST_OF_OFFICIAL: Final = 4.0
LONGEST_PICKUP_MS: Final = 10.0
LONGEST_CHECK_MS: Final = 100.0
LARGEST_GROWTH_MB: Final = 20.0


def main() -> None:
    """Measure, and print a table per question and one of targets."""
    options = _options()
    with sessions.session(sessions.names_of(options), options.redis) as session:
        rates = {number: rates_at(session, number, options) for number in CONCURRENCIES}
        pickups = {peer.name: pickup_times(session, peer, options.pickups) for peer in session.peers}
        checks = {peer.name: check_times(session, peer, options.active) for peer in session.references()}
        growths = {peer.name: growth(session, peer.name, options.memory_jobs) for peer in session.references()}
    console = Console()
    for number, measured in rates.items():
        title = f"{options.jobs} empty jobs, concurrency {number}, median of {options.rounds} rounds"
        console.print(sessions.rate_table(title, "jobs/s", measured, [sessions.NODE, sessions.OFFICIAL]))
    console.print(_pickup_table(pickups))
    console.print(_verdicts(rates, pickups, checks, growths, options))


def rates_at(session: Session, concurrency: int, options: argparse.Namespace) -> Rates:
    """Jobs per second of every peer at this concurrency."""
    return session.in_turns(options.rounds, lambda peer: jobs_per_second(session, peer, options.jobs, concurrency))


def jobs_per_second(session: Session, peer: Peer, jobs: int, concurrency: int = CONCURRENCIES[0]) -> float:
    """Let a peer process so many empty jobs that are there when its worker starts."""
    with session.place() as place:
        peer.do("addBulk", place, QUEUE, jobs=jobs)
        return jobs / float(peer.do("work", place, QUEUE, jobs=jobs, concurrency=concurrency))


def pickup_times(session: Session, peer: Peer, jobs: int) -> list[float]:
    """Ms from the call of `add` to the processor of a worker that was waiting."""
    with session.place() as place:
        return [seconds * 1000 for seconds in peer.do("pickup", place, QUEUE, jobs=jobs)]


def check_times(session: Session, peer: Peer, active: int) -> list[float]:
    """Ms of stalled checks while so many jobs are active and locked."""
    with session.place() as place:
        peer.do("addBulk", place, QUEUE, jobs=active)
        return [seconds * 1000 for seconds in peer.do("stalled", place, QUEUE, jobs=active, checks=10)]


def growth(session: Session, name: str, jobs: int) -> float:
    """MB by which a fresh process that has processed a few jobs is larger after so many more."""
    with session.fresh_peer(name) as peer:
        jobs_per_second(session, peer, WARM_UP_JOBS)
        before = peer.resident_bytes()
        for begun in range(0, jobs, PORTION):
            jobs_per_second(session, peer, min(PORTION, jobs - begun))
        return (peer.resident_bytes() - before) / MEGABYTE


def _options() -> argparse.Namespace:
    parser = sessions.parser(__doc__)
    parser.add_argument("--jobs", type=sessions.positive, default=5000, help="jobs per measurement (%(default)s)")
    parser.add_argument("--pickups", type=sessions.positive, default=200, help="jobs for an idle worker (%(default)s)")
    parser.add_argument("--active", type=sessions.positive, default=10_000, help="jobs to be checked (%(default)s)")
    parser.add_argument(
        "--memory-jobs", type=sessions.positive, default=10_000, help="jobs for the growth of memory (%(default)s)"
    )
    return parser.parse_args()


def _pickup_table(pickups: dict[str, list[float]]) -> Table:
    table = Table(title="an idle worker picks up a job")
    for heading in ("client", "p50 ms", "p99 ms", "longest ms"):
        table.add_column(heading, justify="left" if heading == "client" else "right")
    for name, times in pickups.items():
        shown = (statistics.median(times), sessions.percentile(times, 99), max(times))
        table.add_row(name, *(f"{number:.2f}" for number in shown))
    return table


def _verdicts(
    rates: dict[int, Rates],
    pickups: dict[str, list[float]],
    checks: dict[str, list[float]],
    growths: dict[str, float],
    options: argparse.Namespace,
) -> Table:
    table = sessions.verdict_table("targets of the reference client")
    for name, times in checks.items():
        for concurrency, measured in rates.items():
            for other, least in ((sessions.NODE, LEAST_OF_NODE), (sessions.OFFICIAL, LEAST_OF_OFFICIAL)):
                if other in measured:
                    found = sessions.ratio(measured[name], measured[other])
                    what = f"{name}: jobs/s x {other} at concurrency {concurrency}"
                    sessions.verdict_row(table, what, f"{found:.2f}", f"at least {least}", holds=found >= least)
        limits = (
            ("pickup p99 ms", sessions.percentile(pickups[name], 99), LONGEST_PICKUP_MS),
            (f"stalled check of {options.active:,} ms", statistics.median(times), LONGEST_CHECK_MS),
            (f"growth after {options.memory_jobs:,} jobs MB", growths[name], LARGEST_GROWTH_MB),
        )
        for what, found, most in limits:
            sessions.verdict_row(table, f"{name}: {what}", f"{found:.1f}", f"under {most:g}", holds=found < most)
    return table


if __name__ == "__main__":
    sessions.run(main)
