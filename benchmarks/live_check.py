"""`check` on a large live store under load: what it finds, its processor time, its memory, and what the load feels.

    python -m benchmarks.live_check --jobs 1000000 --rate 500 --runs 20

A script in Redis writes the jobs, and Node.js loads four further queues. The sound store is checked several times, then
damaged (`tests/reports/live/damages.py`), checked again, and read from its RDB file. Exit code 1: a false or a missing
finding. Further checks measure the delays of clients: of single commands, and of the jobs of the load. These checks run
for a second and are stopped for a second in turns, because a machine changes from minute to minute.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil

from benchmarks.commands import Ran, ran
from benchmarks.stores import QUEUE, fill
from conformance.servers import RedisInstance, open_server
from reports.check.summary import CheckSummary
from tests.reports.live.damaged_store import damage, node_load
from tests.reports.live.damages import DAMAGES

PREFIX = "b"
COMMAND_EVERY_S = 0.002
LOOK_EVERY_S = 0.3
TURN_S = 1.0
SHARES = (0.5, 0.9, 0.99)


def check_command(store: str, out: Path, *options: str) -> list[str]:
    """Words of a command that checks a store."""
    return [sys.executable, "-m", "conformance", "check", store, "--out", str(out), *options]


def check(store: str, out: Path, *options: str) -> tuple[CheckSummary, Ran]:
    """Check a store in a process of its own; returns its report, and what it took."""
    done = ran(check_command(store, out, *options))
    assert done.code in (0, 1), done.output
    return msgspec.json.decode((out / "check.json").read_bytes(), type=CheckSummary), done


class Turns:
    """Times (Unix ms) in which a check runs, and in which it does not: `beside` and `alone`."""

    def __init__(self) -> None:
        self.beside: list[tuple[float, float]] = []
        self.alone: list[tuple[float, float]] = []

    @contextmanager
    def turn(self, turns: list[tuple[float, float]]) -> Iterator[None]:
        """Note this block as one of these turns."""
        started_ms = time.time() * 1000
        yield
        turns.append((started_ms, time.time() * 1000))


class Delays:
    """Starts and ends (Unix ms) of single commands, and of jobs of the load without a delay or a retry.

    A job starts when it is added.
    """

    def __init__(self, server: RedisInstance) -> None:
        self.commands: list[tuple[float, float]] = []
        self.jobs: list[tuple[float, float]] = []
        self._server = server
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=act, daemon=True) for act in (self._send_commands, self._look_at_jobs)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Measure no more."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _send_commands(self) -> None:
        with self._server.connect() as client:
            while not self._ended.wait(COMMAND_EVERY_S):
                started_ms = time.time() * 1000
                client.exists("probe")
                self.commands.append((started_ms, time.time() * 1000))

    def _look_at_jobs(self) -> None:
        """The load keeps the last 500 finished jobs, which it finishes within more than a second."""
        seen, base = time.time() * 1000, f"{PREFIX}:mixed:"
        with self._server.connect() as client:
            untyped: Any = client
            while not self._ended.wait(LOOK_EVERY_S):
                found = untyped.zrange(f"{base}completed", f"({seen}", "+inf", byscore=True, withscores=True)
                seen = max([seen, *(finished_ms for _, finished_ms in found)])
                pipe = untyped.pipeline(transaction=False)
                for name, _ in found:
                    pipe.hmget(base + name.decode(), "timestamp", "opts", "atm")
                for (_, finished_ms), (added_ms, opts, attempts) in zip(found, pipe.execute(), strict=True):
                    if added_ms and attempts == b"1" and not msgspec.json.decode(opts).get("delay"):
                        self.jobs.append((float(added_ms), finished_ms))


def within(delays: Sequence[tuple[float, float]], turns: Sequence[tuple[float, float]]) -> list[float]:
    """Durations (ms) of those that started and ended within one turn. `turns`: in the order of their times."""
    starts = [started for started, _ in turns]
    found = []
    for started_ms, ended_ms in delays:
        place = bisect_right(starts, started_ms) - 1
        if place >= 0 and ended_ms <= turns[place][1]:
            found.append(ended_ms - started_ms)
    return found


def check_in_turns(store: str, out: Path, turns: Turns) -> None:
    """Check a store, with the processes stopped every other second."""
    with subprocess.Popen(check_command(store, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            with turns.turn(turns.beside), suppress(subprocess.TimeoutExpired):
                process.wait(TURN_S)
            _whole_tree(process.pid, psutil.Process.suspend)
            with turns.turn(turns.alone):
                time.sleep(TURN_S)
            _whole_tree(process.pid, psutil.Process.resume)
    assert process.returncode == 0, f"a check in turns has ended with {process.returncode}"


def _whole_tree(pid: int, act: Callable[[psutil.Process], None]) -> None:
    """Suspend or resume a process and its children, which may end at any time."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                act(member)


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


def _delays(server: RedisInstance, store: str, out: Path, checks: int) -> Iterator[str]:
    """Format the delays (ms) of commands and jobs, with and without a check. Without a load there are no jobs."""
    delays, turns = Delays(server), Turns()
    for number in range(checks):
        check_in_turns(store, out / f"turns-{number}", turns)
    delays.end()
    for what, measured in (("commands", delays.commands), ("jobs of the load", delays.jobs)):
        alone, beside = within(measured, turns.alone), within(measured, turns.beside)
        if not alone or not beside:
            continue
        texts = [
            f"p{share * 100:.0f} {quantile(alone, share):.2f} to {quantile(beside, share):.2f}" for share in SHARES
        ]
        growth = quantile(beside, 0.99) / quantile(alone, 0.99)
        counts = f"{len(alone)} without a check, {len(beside)} with one"
        yield f"{what} ({counts}): {', '.join(texts)} ms; the p99 is {growth:.2f} times"


def main() -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=500, help="jobs/s of the load; 0: none")
    parser.add_argument("--runs", type=int, default=20, help="checks of the sound store")
    parser.add_argument("--turns", type=int, default=3, help="checks in turns, for the delays of clients")
    parser.add_argument("--max-rate", help="of the checks without turns; default: that of `check`")
    options = parser.parse_args()
    wrong, pace = 0, ["--max-rate", options.max_rate] if options.max_rate else []
    with open_server(None, announce=print) as server, tempfile.TemporaryDirectory() as folder:
        fill(server, PREFIX, options.jobs)
        store, out = f"{server.url}#{PREFIX}", Path(folder)
        with server.connect() as client:
            client.hset(f"{PREFIX}:{QUEUE}:meta", "opts.maxLenEvents", 10 * options.jobs)
            for other in ("live", "idle"):  # their jobs are years old
                client.delete(*client.scan_iter(f"{PREFIX}:{other}:*", count=1000))
        with node_load(server, PREFIX, [case.name for case in DAMAGES], rate=options.rate):
            for run in range(options.runs):
                summary, took = check(store, out / str(run), *pace)
                wrong += summary.total
                found = f"{summary.total} places, {summary.fleeting} fleeting"
                print(f"run {run}: {summary.jobs} jobs, {found}; {_text(took)}", flush=True)
            if options.turns:
                print(*_delays(server, store, out, options.turns), sep="\n", flush=True)
            damage(server, PREFIX, DAMAGES)
            summary, took = check(store, out / "damaged", *pace)
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
