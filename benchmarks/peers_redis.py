"""Snapshots and diffs compared with RedisFullCheck, on the same two stores, and the planted changes that each finds.

    python -m benchmarks.peers_redis [--jobs 1000000] [--full-check CHECKOUT-OR-PROGRAM] [--memory 2g] [--out FOLDER]
                                    [--times-only]

Two Redis servers hold the same finished jobs with all their events. Measured are the commands that users type: the diff
of the two live stores, the same by replication (`--replicate`), and RedisFullCheck with full values and one round
(`--comparemode 1 --comparetimes 1`), which is built from a checkout with Go. Then every change of `benchmarks.planted`
is made in one store: each must be found and located, or counted under the rule that hides it, live and through RDB,
without any other finding. After they are undone, the stores must be equal again. Ends with 1 if any of this fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread
from typing import Final, NoReturn

import psutil
import pyarrow.parquet as pq
from rich.console import Console

from benchmarks import sessions
from benchmarks.planted import CHANGES, Found, expected_differences, expected_hidden, planted
from benchmarks.stores import copy_store, fill
from conformance.problems import EnvironmentProblem
from conformance.servers import RedisInstance, open_server

CONSOLE: Final = Console(stderr=True)
PREFIX: Final = "bull"
# Five samples a second are enough for a peak that lasts for seconds.
SAMPLE_S: Final = 0.2

LIVE_BARS: Final = {100_000: 4.0, 1_000_000: 1.0}
"""By the number of jobs: the largest multiple of RedisFullCheck's time for two live snapshots and the diff."""

RDB_BAR: Final = 0.5
"""The same through RDB, for a million jobs."""

LONGEST_DIFF_S: Final = 12.0
"""A million jobs against a million, once the snapshots are there."""


@dataclass(frozen=True)
class Ran:
    """A finished command. `peak_mb`: the peak resident memory of all its processes together (MB)."""

    seconds: float
    peak_mb: float
    code: int
    output: str


@dataclass(frozen=True)
class Compared:
    """One way to compare the two stores. `seconds`: the whole command; `diff_s`: the diff of two existing snapshots."""

    seconds: float
    diff_s: float
    peak_mb: float
    code: int
    found: set[Found]
    hidden: Counter[str]


@dataclass(frozen=True)
class Stores:
    """The two servers, and the other arguments of the commands."""

    expected: RedisInstance
    actual: RedisInstance
    memory: str
    out: Path


def main() -> None:
    """Measure, plant, undo; print the tables."""
    options = _options()
    with ExitStack() as stack:
        out = options.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        out.mkdir(parents=True, exist_ok=True)
        full_check = program_of(options.full_check, out) if options.full_check else None
        expected, actual = (stack.enter_context(open_server(None, announce=_say)) for _ in range(2))
        stores = Stores(expected, actual, options.memory, out)
        fill(expected, PREFIX, options.jobs)
        # Copied and not filled a second time: times to live and stream ids must be equal.
        copy_store(expected, actual)
        peer = full_check_run(full_check, stores) if full_check else None
        equal = {name: way(stores) for name, way in WAYS.items()}
        _print_times(equal, peer, options.jobs)
        if options.times_only:
            _end_with(wrong_when_equal(equal))
        with planted(actual, PREFIX, CHANGES):
            changed = {name: way(stores) for name, way in WAYS.items()}
            seen = full_check_findings(full_check, stores) if full_check else None
        # After undoing, equal stores show that the planted changes were the only cause.
        undone = {name: way(stores) for name, way in WAYS.items()}
    problems = [*wrong_when_equal(equal), *wrong_with_changes(equal, changed), *wrong_when_equal(undone)]
    if seen is not None:
        print(f"of {len(CHANGES)} changes, RedisFullCheck reports {seen} keys")
    print(
        f"{len(expected_differences(CHANGES))} differences and {expected_hidden(CHANGES).total()} hidden values planted"
    )
    _end_with(problems)


def _end_with(problems: Sequence[str]) -> NoReturn:
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


def live(stores: Stores) -> Compared:
    """One command: both stores are read as they are, and compared."""
    folder = stores.out / "live"
    sides = [f"{server.url}#{PREFIX}" for server in (stores.expected, stores.actual)]
    done = ran(_verb("diff", *sides, "--memory", stores.memory, "--out", str(folder)))
    return _compared([done], folder)


def through_rdb(stores: Stores) -> Compared:
    """One command: each store sends its RDB file as to a replica. The kept snapshots are then compared again."""
    folder, again = stores.out / "rdb", stores.out / "rdb-again"
    sides = [f"{server.url}#{PREFIX}" for server in (stores.expected, stores.actual)]
    done = ran(_verb("diff", "--replicate", *sides, "--memory", stores.memory, "--out", str(folder)))
    kept = [str(folder / name) for name in ("expected", "actual")]
    alone = ran(_verb("diff", *kept, "--memory", stores.memory, "--out", str(again)))
    return replace(_compared([done], folder), diff_s=alone.seconds)


WAYS: Final[dict[str, Callable[[Stores], Compared]]] = {"live": live, "through RDB": through_rdb}


def _verb(*words: str) -> list[str]:
    return [sys.executable, "-m", "conformance", *words]


def _compared(steps: Sequence[Ran], folder: Path) -> Compared:
    """The output of these commands. Raises EnvironmentProblem if one of them fails."""
    for step in steps:
        if step.code not in (0, 1):
            raise EnvironmentProblem(f"exit {step.code}: {step.output.strip()[-500:]}")
    rows = pq.read_table(folder / "differences", columns=["class", "key"]).to_pylist()
    return Compared(
        seconds=sum(step.seconds for step in steps),
        diff_s=steps[-1].seconds,
        peak_mb=max(step.peak_mb for step in steps),
        code=steps[-1].code,
        found={(row["class"], row["key"]) for row in rows},
        hidden=Counter(json.loads((folder / "diff.json").read_text("utf-8"))["hidden"]),
    )


def wrong_when_equal(compared: dict[str, Compared]) -> list[str]:
    """The findings on equal stores."""
    return [
        f"equal stores, {name}: exit {one.code}, {sorted(one.found)}"
        for name, one in compared.items()
        if one.code or one.found
    ]


def wrong_with_changes(equal: dict[str, Compared], changed: dict[str, Compared]) -> list[str]:
    """Missing findings, extra findings, and values that should have been counted as hidden.

    Times to live decrease between two readings, so some values are hidden even in equal stores.
    """
    expected, problems = expected_differences(CHANGES), []
    for name, one in changed.items():
        if lacking := sorted(expected - one.found):
            problems.append(f"{name}: not found: {lacking}")
        if surplus := sorted(one.found - expected):
            problems.append(f"{name}: found, and not planted: {surplus}")
        always = equal[name].hidden
        for rule, count in sorted((expected_hidden(CHANGES) | one.hidden).items()):
            wanted = expected_hidden(CHANGES)[rule]
            if one.hidden[rule] < wanted or one.hidden[rule] > wanted + always[rule]:
                problems.append(
                    f"{name}: {rule} hides {count} values, planted {wanted}, in equal stores {always[rule]}"
                )
    return problems


def program_of(path: Path, out: Path) -> Path:
    """The program of RedisFullCheck: given, or built from a checkout. Raises EnvironmentProblem."""
    if path.is_file():
        return path.absolute()
    program = out / "redis-full-check"
    words = ["go", "build", "-o", str(program.absolute()), "."]
    done = subprocess.run(words, cwd=path / "src" / "full_check", capture_output=True, text=True, check=False)
    if done.returncode:
        raise EnvironmentProblem(f"{path} cannot be built: {done.stderr.strip()[-500:]}", hint="it needs Go and gcc")
    return program.absolute()


def full_check_words(program: Path, stores: Stores) -> list[str]:
    """The command that compares the two stores once, with all values, as fast as it can."""
    source, target = (server.nodes[0] for server in (stores.expected, stores.actual))
    files = ["--db", str(stores.out / "full-check.db"), "--result", str(stores.out / "full-check.txt")]
    limits = ["--comparemode", "1", "--comparetimes", "1", "--qps", "1000000"]
    return [str(program), "--source", source, "--target", target, *limits, *files, "--loglevel", "error"]


def full_check_run(program: Path, stores: Stores) -> Ran:
    """Run it. Raises EnvironmentProblem if it fails."""
    done = ran(full_check_words(program, stores))
    if done.code:
        raise EnvironmentProblem(f"RedisFullCheck ended with {done.code}: {done.output.strip()[-500:]}")
    return done


def full_check_findings(program: Path, stores: Stores) -> int:
    """The number of reported keys; it only searches the second store for keys of the first."""
    result = stores.out / "full-check.txt"
    result.unlink(missing_ok=True)
    full_check_run(program, stores)
    lines = result.read_text("utf-8", "replace").splitlines() if result.exists() else []
    return len({line.split("\t")[2] for line in lines if line.count("\t") >= 2})


def ran(words: Sequence[str]) -> Ran:
    """Run a command and measure its memory."""
    CONSOLE.print(" ".join(words), style="dim")
    started, peak, ended = time.monotonic(), [0.0], Event()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        watch = Thread(target=_watch, args=(process.pid, peak, ended))
        watch.start()
        output, _ = process.communicate()
        ended.set()
        watch.join()
    done = Ran(time.monotonic() - started, peak[0], process.returncode, output)
    CONSOLE.print(f"  {done.seconds:.1f} s, {done.peak_mb:.0f} MB, exit {done.code}", style="dim")
    return done


def _watch(pid: int, peak: list[float], ended: Event) -> None:
    while not ended.wait(SAMPLE_S):
        peak[0] = max(peak[0], _resident_mb(pid))


def _resident_mb(pid: int) -> float:
    # A process may end between listing it and reading its memory.
    total = 0
    try:
        process = psutil.Process(pid)
        for member in [process, *process.children(recursive=True)]:
            total += member.memory_info().rss
    except psutil.Error:
        pass
    return total / 2**20


def _print_times(equal: dict[str, Compared], peer: Ran | None, jobs: int) -> None:
    table = sessions.verdict_table(f"two stores of {jobs:,} jobs")
    live_bar, rdb_bar = LIVE_BARS.get(jobs), RDB_BAR if jobs >= 1_000_000 else None
    for name, bar in (("live", live_bar), ("through RDB", rdb_bar)):
        one = equal[name]
        if peer is not None and bar is not None:
            ratio = one.seconds / peer.seconds
            measured, wanted, holds = f"{one.seconds:.1f} s, {ratio:.2f} x", f"at most {bar} x", ratio <= bar
            sessions.verdict_row(table, f"{name} x RedisFullCheck", measured, wanted, holds=holds)
        else:
            table.add_row(name, f"{one.seconds:.1f} s", "", "")
    diff_s = equal["through RDB"].diff_s
    allowed = LONGEST_DIFF_S * max(1.0, jobs / 1_000_000)
    sessions.verdict_row(table, "diff of snapshots", f"{diff_s:.1f} s", f"{allowed:.0f} s", holds=diff_s <= allowed)
    for name, one in equal.items():
        table.add_row(f"memory of all processes, {name}", f"{one.peak_mb:.0f} MB", "", "")
    if peer is not None:
        table.add_row("RedisFullCheck", f"{peer.seconds:.1f} s, {peer.peak_mb:.0f} MB", "", "")
    Console(file=sys.stdout).print(table)
    print(f"load of the machine (1 min): {os.getloadavg()[0]:.1f}", flush=True)


def _say(line: str) -> None:
    CONSOLE.print(line, style="dim")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=sessions.positive, default=100_000, help="jobs per store (%(default)s)")
    parser.add_argument("--full-check", type=Path, default=None, help="RedisFullCheck: its program, or a checkout")
    parser.add_argument("--times-only", action="store_true", help="measure, and plant nothing")
    parser.add_argument("--memory", default="2g", help="of Spark's driver (%(default)s)")
    parser.add_argument("--out", type=Path, default=None, help="folder that keeps what the commands write")
    return parser.parse_args()


if __name__ == "__main__":
    sessions.run(main)
