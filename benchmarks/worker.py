"""Speed and memory of the reference client's worker.

    python -m benchmarks.worker [--rounds 5] [--jobs 5000] [--memory-jobs 100000] [--peers node,reference,...]

Compared with Node.js and the official clients for Python and Rust: every peer processes empty jobs at
concurrency 10 and at 100, in turns, in one session, on one private Redis; the ratio is the median over the rounds.
The processor time of a job, in the process of the peer, is measured in the same rounds: unlike rates it depends little
on what else the machine does.
Then: how long an idle worker needs to pick up a job (from the call of `add` to the processor), how long the stalled
check of 10,000 active jobs with live locks takes, and how large a fresh process is before and after the jobs that it
adds and processes.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks import sessions
from benchmarks.peers import NODE, OFFICIAL, PURE_REFERENCE, RUST_OFFICIAL
from benchmarks.sessions import Peer, Rates, Session

CONCURRENCIES: Final = (10, 100)
QUEUE: Final = "q"
MEGABYTE: Final = 1_000_000
WARM_UP_JOBS: Final = 1000
PORTION: Final = 10_000

LEAST_OF_NODE: Final = 1.0
LEAST_OF_NODE_PURE: Final = 0.72
"""Without hiredis: the rate that the reference had with it before it was optimised."""

LEAST_OF_OFFICIAL: Final = 4.0
LONGEST_PICKUP_MS: Final = 10.0
LONGEST_CHECK_MS: Final = 100.0
LARGEST_GROWTH_MB: Final = 20.0


@dataclass(frozen=True)
class Resident:
    """Resident memory (MB) of a fresh process: once it has warmed up, and after all its jobs."""

    before_mb: float
    after_mb: float

    @property
    def growth_mb(self) -> float:
        """The growth with the jobs (MB)."""
        return self.after_mb - self.before_mb


def main() -> None:
    """Measure, and print a table per question and one of targets."""
    options = _options()
    with sessions.session(sessions.names_of(options), options.redis) as session:
        measured_at = {
            number: session.in_turns(options.rounds, works(session, options.jobs, number), options.jobs)
            for number in CONCURRENCIES
        }
        rates = {number: rates for number, (rates, _) in measured_at.items()}
        pickups = {peer.name: pickup_times(session, peer, options.pickups) for peer in session.peers}
        checks = {peer.name: check_times(session, peer, options.active) for peer in session.references()}
        memories = {peer.name: memory(session, peer.name, options.memory_jobs) for peer in session.peers}
    console = Console()
    for number, (measured, costs) in measured_at.items():
        title = f"{options.jobs} empty jobs, concurrency {number}, median of {options.rounds} rounds"
        console.print(sessions.rate_table(title, "jobs/s", measured, [NODE, OFFICIAL, RUST_OFFICIAL]))
        console.print(sessions.cost_table(costs, [NODE, OFFICIAL, RUST_OFFICIAL]))
    console.print(_pickup_table(pickups))
    console.print(_memory_table(memories, options.memory_jobs))
    console.print(_verdicts(rates, pickups, checks, memories, options))


def works(session: Session, jobs: int, concurrency: int) -> Callable[[Peer], float]:
    """Return the function that measures a peer."""
    return lambda peer: jobs_per_second(session, peer, jobs, concurrency)


def jobs_per_second(session: Session, peer: Peer, jobs: int, concurrency: int = CONCURRENCIES[0]) -> float:
    """Let a peer process this number of empty jobs, added before its worker starts."""
    with session.place() as place:
        # All jobs are added before the worker starts, so that adding them is not measured.
        peer.do("addBulk", place, QUEUE, jobs=jobs)
        return jobs / float(peer.do("work", place, QUEUE, jobs=jobs, concurrency=concurrency))


def pickup_times(session: Session, peer: Peer, jobs: int) -> list[float]:
    """Ms from the call of `add` to the processor of a worker that was waiting."""
    with session.place() as place:
        return [seconds * 1000 for seconds in peer.do("pickup", place, QUEUE, jobs=jobs)]


def check_times(session: Session, peer: Peer, active: int) -> list[float]:
    """Ms of stalled checks while this number of jobs is active and locked."""
    with session.place() as place:
        peer.do("addBulk", place, QUEUE, jobs=active)
        return [seconds * 1000 for seconds in peer.do("stalled", place, QUEUE, jobs=active, checks=10)]


def memory(session: Session, name: str, jobs: int) -> Resident:
    """Memory of a fresh process after a few jobs, and after this number of further jobs."""
    # A fresh process, because one that has measured before has grown already.
    with session.fresh_peer(name) as peer:
        # After a warm-up, so that loading code and filling caches does not count as growth.
        jobs_per_second(session, peer, WARM_UP_JOBS)
        before = peer.resident_bytes()
        # In portions, so that the waiting jobs themselves stay few.
        for start in range(0, jobs, PORTION):
            jobs_per_second(session, peer, min(PORTION, jobs - start))
        return Resident(before / MEGABYTE, peer.resident_bytes() / MEGABYTE)


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


def _memory_table(memories: dict[str, Resident], jobs: int) -> Table:
    table = Table(title=f"resident memory of a fresh process, before and after {jobs:,} jobs")
    for heading in ("client", "before MB", "after MB", "growth MB"):
        table.add_column(heading, justify="left" if heading == "client" else "right")
    for name, one in memories.items():
        table.add_row(name, *(f"{number:.1f}" for number in (one.before_mb, one.after_mb, one.growth_mb)))
    return table


def _verdicts(
    rates: dict[int, Rates],
    pickups: dict[str, list[float]],
    checks: dict[str, list[float]],
    memories: dict[str, Resident],
    options: argparse.Namespace,
) -> Table:
    table = sessions.verdict_table("targets of the reference client")
    for name, times in checks.items():
        of_node = LEAST_OF_NODE_PURE if name == PURE_REFERENCE else LEAST_OF_NODE
        for concurrency, measured in rates.items():
            for other, least in ((NODE, of_node), (OFFICIAL, LEAST_OF_OFFICIAL)):
                if other in measured:
                    found = sessions.ratio(measured[name], measured[other])
                    what = f"{name}: jobs/s x {other} at concurrency {concurrency}"
                    sessions.verdict_row(table, what, f"{found:.2f}", f"at least {least}", holds=found >= least)
        pickup_ms = sessions.percentile(pickups[name], 99)
        if NODE in memories:
            pairs = (
                ("pickup p99 ms", pickup_ms, sessions.percentile(pickups[NODE], 99)),
                (f"memory after {options.memory_jobs:,} jobs MB", memories[name].after_mb, memories[NODE].after_mb),
            )
            for what, mine, nodes in pairs:
                wanted = f"at most {NODE}'s {nodes:.1f}"
                sessions.verdict_row(table, f"{name}: {what}", f"{mine:.1f}", wanted, holds=mine <= nodes)
        limits = (
            ("pickup p99 ms", pickup_ms, LONGEST_PICKUP_MS),
            (f"stalled check of {options.active:,} ms", statistics.median(times), LONGEST_CHECK_MS),
            (f"growth after {options.memory_jobs:,} jobs MB", memories[name].growth_mb, LARGEST_GROWTH_MB),
        )
        for what, found, most in limits:
            sessions.verdict_row(table, f"{name}: {what}", f"{found:.1f}", f"under {most:g}", holds=found < most)
    return table


if __name__ == "__main__":
    sessions.run(main)
