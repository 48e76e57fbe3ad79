"""`check` on a large live store under load: what it finds, its processor time, its memory, and what the load feels.

    python -m benchmarks.live_check --jobs 1000000 --rate 500 --runs 20

A script in Redis writes the jobs, and Node.js loads four further queues. The sound store is checked several times, then
damaged (`tests/reports/live/damages.py`), checked again, and read from its RDB file. Exit code 1: a false or a missing
finding. The delay of clients is measured by single commands, in turns with and without a check.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.commands import Ran, ran
from benchmarks.stores import QUEUE, fill
from conformance.servers import RedisInstance, open_server
from reports.check.summary import CheckSummary
from tests.reports.live.damaged_store import damage, node_load
from tests.reports.live.damages import DAMAGES

PREFIX = "b"
PROBE_EVERY_S = 0.002
ALONE_S = 10.0


def check(store: str, out: Path) -> tuple[CheckSummary, Ran]:
    """Check a store in a process of its own; returns its report, and what it took."""
    done = ran([sys.executable, "-m", "conformance", "check", store, "--out", str(out)])
    assert done.code in (0, 1), done.output
    return msgspec.json.decode((out / "check.json").read_bytes(), type=CheckSummary), done


@contextmanager
def probe(server: RedisInstance) -> Iterator[list[float]]:
    """Delays (ms) of single commands in this block."""
    delays: list[float] = []
    ended = threading.Event()

    def ask() -> None:
        with server.connect() as client:
            while not ended.wait(PROBE_EVERY_S):
                started = time.perf_counter()
                client.exists("probe")
                delays.append((time.perf_counter() - started) * 1000)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield delays
    finally:
        ended.set()
        thread.join()


def quantile(delays: Sequence[float], share: float) -> float:
    """A quantile of delays."""
    ordered = sorted(delays)
    return ordered[int(len(ordered) * share)] if ordered else 0.0


def missing(summary: CheckSummary) -> list[str]:
    """Damages whose findings are not exactly those of the table."""
    found: dict[str, set[str]] = {}
    for example in summary.examples:
        queue = example.key.removeprefix(f"{PREFIX}:").partition(":")[0]
        found.setdefault(queue, set()).add(example.cause)
    return [case.name for case in DAMAGES if found.get(case.name, set()) != set(case.findings)]


def _text(took: Ran) -> str:
    return f"{took.seconds:.1f} s, {took.cpu_s:.1f} s of processor time, {took.peak_mb:.0f} MB"


def main() -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=500, help="jobs/s of the load; 0: none")
    parser.add_argument("--runs", type=int, default=20, help="checks of the sound store")
    options = parser.parse_args()
    wrong = 0
    with open_server(None, announce=print) as server, tempfile.TemporaryDirectory() as folder:
        fill(server, PREFIX, options.jobs)
        store, out = f"{server.url}#{PREFIX}", Path(folder)
        with server.connect() as client:
            client.hset(f"{PREFIX}:{QUEUE}:meta", "opts.maxLenEvents", 10 * options.jobs)
            for other in ("live", "idle"):  # their jobs are years old
                client.delete(*client.scan_iter(f"{PREFIX}:{other}:*", count=1000))
        with node_load(server, PREFIX, [case.name for case in DAMAGES], rate=options.rate):
            growth = []
            for run in range(options.runs):
                # Before each run again: the machine changes from minute to minute.
                with probe(server) as alone:
                    time.sleep(ALONE_S)
                with probe(server) as beside:
                    summary, took = check(store, out / str(run))
                wrong += summary.total
                growth.append(quantile(beside, 0.99) / quantile(alone, 0.99))
                late = f"p99 {quantile(beside, 0.99):.2f} ms, alone {quantile(alone, 0.99):.2f} ms"
                found = f"{summary.total} places, {summary.fleeting} fleeting"
                print(f"run {run}: {summary.jobs} jobs, {found}; {_text(took)}; {late}", flush=True)
            if growth:
                print(f"the p99 is {statistics.median(growth):.2f} times that alone (median of {len(growth)})")
            damage(server, PREFIX, DAMAGES)
            summary, took = check(store, out / "damaged")
            counts = {cause.cause: cause.count for cause in summary.causes}
            print(f"damaged: {len(DAMAGES)} damages, wrong: {missing(summary)}; {_text(took)}; {counts}")
            wrong += len(missing(summary))
        with server.connect() as client:
            client.save()
            settings = client.config_get("d*")
        summary, took = check(f"{settings['dir']}/{settings['dbfilename']}#{PREFIX}", out / "rdb")
        print(f"RDB file: {summary.jobs} jobs, {summary.total} places; {_text(took)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
