"""Snapshots and diffs compared with RedisFullCheck, on the same two stores, and the planted changes that each finds.

    python -m benchmarks.peers_redis [--jobs 1000000] [--mixed] [--rounds 3] [--full-check CHECKOUT-OR-PROGRAM]
                                    [--memory 2g] [--out FOLDER] [--times-only]

Two Redis servers hold the same finished jobs with all their events: uniform ones, or with `--mixed` those of a load
with flows, priorities, delays, retries and failures. Measured are the commands that users type: the diff of the two
live stores, the same by replication (`--replicate`), the diff of the two snapshots, and RedisFullCheck with full values
and one round (`--comparemode 1 --comparetimes 1`), which is built from a checkout with Go. All take turns in every
round, in the opposite order every second time. Then every change of `benchmarks.planted` is made in one store: each
must be found and located, or counted under the rule that hides it, in every way and without any other finding. After
they are undone, the stores must be equal again. Ends with 1 if any of this fails.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import pyarrow.parquet as pq
from rich.console import Console

from benchmarks import sessions
from benchmarks.commands import CONSOLE, Ran, ran
from benchmarks.planted import CHANGES, Found, expected_differences, expected_hidden, planted
from benchmarks.stores import copy_store, fill
from conformance.problems import EnvironmentProblem
from conformance.servers import RedisInstance, open_server

PREFIX: Final = "bull"

LIVE, REPLICATED, STORED, PEER = "live", "through RDB", "two snapshots", "RedisFullCheck"

TIME_BARS: Final = {
    100_000: {LIVE: 1.2, REPLICATED: 0.5, STORED: 0.3},
    1_000_000: {LIVE: 0.6, REPLICATED: 0.35, STORED: 0.14},
}
"""By the number of uniform jobs: the largest multiple of RedisFullCheck's time."""

MIXED_BAR: Final = 1.0
"""The largest multiple of RedisFullCheck's processor time for any way to compare two mixed stores."""

UNIFORM_AMONG_MIXED: Final = 1000
"""Uniform jobs in a mixed store, for the planted changes."""

MIXED_LOAD: Final = {
    "queues": 4,
    "payload": {"distribution": "exponential", "least": 64, "most": 4096},
    "priority": {"share": 0.1, "levels": 10},
    "delay": {"share": 0.1, "least": 100, "most": 2000},
    "lifo": 0.05,
    "attempts": 3,
    "backoff": {"type": "fixed", "delay": 20},
    "failures": {"once": 0.05, "always": 0.01},
    "flows": {"share": 0.02, "children": 3},
}


@dataclass(frozen=True)
class Compared:
    """The result of one way to compare the two stores."""

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
        for server in (expected, actual):
            _begin_syncs_at_once(server)
        stores = Stores(expected, actual, options.memory, out)
        if options.mixed:
            fill_mixed(stores, options.jobs)
        else:
            fill(expected, PREFIX, options.jobs)
        # Copied and not filled a second time: times to live and stream ids must be equal.
        copy_store(expected, actual)
        equal = _found(stores)
        measured = measure(stores, full_check, options.rounds)
        _print_times(measured, options.jobs, mixed=options.mixed)
        if options.times_only:
            _end_with(wrong_when_equal(equal))
        with planted(actual, PREFIX, CHANGES):
            changed = _found(stores)
            seen = full_check_findings(full_check, stores) if full_check else None
        # After undoing, equal stores show that the planted changes were the only cause.
        undone = _found(stores)
    problems = [*wrong_when_equal(equal), *wrong_with_changes(equal, changed), *wrong_when_equal(undone)]
    if seen is not None:
        print(f"of {len(CHANGES)} changes, RedisFullCheck reports {seen} keys")
    print(
        f"{len(expected_differences(CHANGES))} differences and {expected_hidden(CHANGES).total()} hidden values planted"
    )
    _end_with(problems)


def _begin_syncs_at_once(server: RedisInstance) -> None:
    """Redis waits 5 s for other replicas before it sends its data to a new one: its time, not that of the diff."""
    with server.connect() as redis:
        redis.config_set("repl-diskless-sync-delay", 0)


def _end_with(problems: Sequence[str]) -> NoReturn:
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


def fill_mixed(stores: Stores, jobs: int) -> None:
    """Fill the expected store with the jobs of a mixed load, all finished, and a few uniform ones."""
    fill(stores.expected, PREFIX, UNIFORM_AMONG_MIXED)
    workload = stores.out / "mixed.yaml"
    workload.write_text(json.dumps({**MIXED_LOAD, "jobs": jobs}), "utf-8")
    place = ["--redis", stores.expected.url, "--prefix", PREFIX]
    clients = ["--producer", "reference", "--worker", "reference"]
    words = _verb("load", "--workload", str(workload), *place, *clients, "--out", str(stores.out / "load"))
    _succeeded(ran([*words, "--memory", stores.memory]))


def _words(way: str, stores: Stores) -> list[str]:
    """The command of one way to compare the stores. `two snapshots` reads those that `through RDB` has kept."""
    sides = [f"{server.url}#{PREFIX}" for server in (stores.expected, stores.actual)]
    kept = [str(stores.out / REPLICATED / name) for name in ("expected", "actual")]
    words = {LIVE: sides, REPLICATED: ["--replicate", *sides], STORED: kept}[way]
    return _verb("diff", *words, "--memory", stores.memory, "--out", str(stores.out / way))


def _verb(*words: str) -> list[str]:
    return [sys.executable, "-m", "conformance", *words]


def _found(stores: Stores) -> dict[str, Compared]:
    """The result of each way."""
    return {way: _compared(way, stores) for way in (LIVE, REPLICATED, STORED)}


def _compared(way: str, stores: Stores) -> Compared:
    step = _succeeded(ran(_words(way, stores)))
    folder = stores.out / way
    rows = pq.read_table(folder / "differences", columns=["class", "key"]).to_pylist()
    return Compared(
        code=step.code,
        found={(row["class"], row["key"]) for row in rows},
        hidden=Counter(json.loads((folder / "diff.json").read_text("utf-8"))["hidden"]),
    )


def _succeeded(step: Ran) -> Ran:
    """The same command. Raises EnvironmentProblem if it failed; 1 means that there are differences."""
    if step.code not in (0, 1):
        raise EnvironmentProblem(f"exit {step.code}: {step.output.strip()[-500:]}")
    return step


def measure(stores: Stores, full_check: Path | None, rounds: int) -> dict[str, list[Ran]]:
    """Run every way once per round; every second round in the opposite order, so that none is always the first."""
    commands = {way: _words(way, stores) for way in (LIVE, REPLICATED, STORED)}
    if full_check is not None:
        commands[PEER] = full_check_words(full_check, stores)
    measured: dict[str, list[Ran]] = {way: [] for way in commands}
    for number in range(rounds):
        for way in reversed(commands) if number % 2 else commands:
            measured[way].append(_succeeded(ran(commands[way])))
    return measured


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


def full_check_findings(program: Path, stores: Stores) -> int:
    """The number of reported keys; it only searches the second store for keys of the first."""
    result = stores.out / "full-check.txt"
    result.unlink(missing_ok=True)
    _succeeded(ran(full_check_words(program, stores)))
    lines = result.read_text("utf-8", "replace").splitlines() if result.exists() else []
    return len({line.split("\t")[2] for line in lines if line.count("\t") >= 2})


def _print_times(measured: dict[str, list[Ran]], jobs: int, *, mixed: bool) -> None:
    kind = "mixed" if mixed else "uniform"
    table = sessions.verdict_table(f"two stores of {jobs:,} {kind} jobs, medians")
    for way, runs in measured.items():
        seconds, cpu_s, peak_mb = (
            statistics.median(column)
            for column in zip(*((one.seconds, one.cpu_s, one.peak_mb) for one in runs), strict=True)
        )
        table.add_row(way, f"{seconds:.1f} s, {cpu_s:.1f} CPU-s, {peak_mb:.0f} MB", "", "")
    if PEER in measured:
        # The time of the mixed store is that of one thread, so that its bar is about processor time.
        what, bars = ("cpu_s", dict.fromkeys(measured, MIXED_BAR)) if mixed else ("seconds", TIME_BARS.get(jobs, {}))
        for way in measured.keys() & bars.keys() - {PEER}:
            ratio = sessions.ratio(*([getattr(one, what) for one in measured[name]] for name in (way, PEER)))
            wanted = f"at most {bars[way]} x of its {what}"
            sessions.verdict_row(table, f"{way} x {PEER}", f"{ratio:.2f}", wanted, holds=ratio <= bars[way])
    Console(file=sys.stdout).print(table)
    print(f"load of the machine (1 min): {os.getloadavg()[0]:.1f}", flush=True)


def _say(line: str) -> None:
    CONSOLE.print(line, style="dim")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=sessions.positive, default=100_000, help="jobs per store (%(default)s)")
    parser.add_argument("--mixed", action="store_true", help="jobs of a mixed load instead of uniform ones")
    parser.add_argument("--rounds", type=sessions.positive, default=3, help="measurements of each way (%(default)s)")
    parser.add_argument("--full-check", type=Path, default=None, help="RedisFullCheck: its program, or a checkout")
    parser.add_argument("--times-only", action="store_true", help="measure, and plant nothing")
    parser.add_argument("--memory", default="2g", help="of Spark's driver (%(default)s)")
    parser.add_argument("--out", type=Path, default=None, help="folder that keeps what the commands write")
    return parser.parse_args()


if __name__ == "__main__":
    sessions.run(main)
