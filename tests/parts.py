"""Everything that `make test` leaves out, in parts: `make test-all` runs all of it, CI a share that the commit draws.

    python -m tests.parts [--commit HASH --run-s SECONDS]

CI has 40 minutes on a machine on which `make run` takes two, and 75 on any other. A commit draws the same tests every
time, unless a machine is so slow that 75 minutes are not enough for them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import groupby, takewhile
from pathlib import Path

from conformance.protocol.versions import SUPPORTED_ORACLES

RUN_S = 120
"""How long `make run` takes, in s, on the machine for which the shares are chosen."""
SLOWEST = 75 / 40
"""On slower machines, relative to that one, the shares are smaller."""
SHOWN_LINES = 150
FAILED_ONES = ("SLOW=--last-failed",)
WHOLE_RUNS = (
    *(f"full-{client}" for client in ("reference", "node", "node-without-clock", "reference-cluster", "node-cluster")),
    *(f"oracle-{version}" for version in SUPPORTED_ORACLES[1:]),
)


@dataclass(frozen=True)
class Part:
    """A target of `make` with its variables. Parts of one lane run one after the other, the lanes at the same time.

    `again`: the variables of a second try, for parts in which a busy machine can hide the defect that they plant.
    """

    target: str
    lane: int
    variables: Sequence[str] = ()
    again: Sequence[str] | None = None

    def __str__(self) -> str:
        return " ".join(["make", self.target, *map(repr, self.variables)])


def everything() -> list[Part]:
    return [
        Part("chaos", 0, again=["CHAOS=--last-failed"]),
        Part("hunt", 0),
        Part("steady", 0),
        Part("test-slow", 1, again=FAILED_ONES),
        *(Part(target, 1) for target in WHOLE_RUNS),
        Part("site", 2),
        Part("bugs", 2, again=()),
        Part("mutants", 2, ["SAMPLE=100000"]),
        Part("telemetry", 2),
    ]


def drawn(commit: str, run_s: float) -> list[Part]:
    """The parts that CI runs for a commit on a machine on which `make run` took `run_s` seconds."""
    share = min(1.0, SLOWEST * RUN_S / run_s)
    number = int(sha256(commit.encode()).hexdigest()[:8], 16)
    chaos = f"--chaos-clients reference --chaos-seed {commit} --chaos-sample {round(24 * share)} -n 2"
    bugs = f"--sample {round(12 * share)} --seed {commit} --jobs 2"
    return [
        Part("chaos", 0, [f"CHAOS={chaos}"], again=["CHAOS=--last-failed -n 1"]),
        Part("test-slow", 1, [f"SLOW=--slow-share {0.25 * share:.3f} --slow-seed {commit}"], again=FAILED_ONES),
        Part(WHOLE_RUNS[number % len(WHOLE_RUNS)], 2, ["TIER=core", "JOBS=2"]),
        Part("site", 2),
        Part("bugs", 2, [f"BUGS={bugs}"], again=[f"BUGS={bugs}"]),
        Part("mutants", 2, [f"SAMPLE={round(20 * share)}", f"SEED={number}"]),
    ]


@dataclass
class Outcome:
    """The parts that failed, and those that passed only the second time. `folder`: their output."""

    folder: Path
    failed: list[str] = field(default_factory=list)
    second_try: list[str] = field(default_factory=list)

    def run(self, parts: Sequence[Part]) -> None:
        """Run the parts of one lane; their output goes into files."""
        for part in parts:
            started = time.monotonic()
            passed = self._passes(part, part.variables)
            if not passed and part.again is not None:
                passed = self._passes(part, part.again)
                self.second_try += [part.target] if passed else []
            self.failed += [] if passed else [part.target]
            print(f"{'passed' if passed else 'FAILED'} after {time.monotonic() - started:4.0f} s: {part}", flush=True)

    def _passes(self, part: Part, variables: Sequence[str]) -> bool:
        with self.output(part.target).open("a") as file:
            command = ["make", "--silent", part.target, *variables]
            ended = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, check=False
            )
        return ended.returncode == 0

    def output(self, target: str) -> Path:
        return self.folder / target

    def lines(self, target: str) -> list[str]:
        """The output of a part, without the lines of its progress."""
        lines = self.output(target).read_text("utf-8", "replace").splitlines()
        return [line for line in lines if line.strip() and not line.split()[0].rpartition("/")[0].isdigit()]


def run(parts: Sequence[Part]) -> int:
    """Run all parts and print how they ended, the tests last. Returns the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = Outcome(Path(folder))
        lanes = [list(lane) for _, lane in groupby(parts, key=lambda part: part.lane)]
        with ThreadPoolExecutor(len(lanes)) as pool:
            list(pool.map(outcome.run, lanes))
        for target in outcome.failed:
            print(f"== failed: {target}", *outcome.lines(target)[-SHOWN_LINES:], sep="\n")
        for part in parts:
            print(f"{part.target}: {next(reversed(outcome.lines(part.target)), 'no output')}")
        print(f"passed only the second time: {len(outcome.second_try)} {outcome.second_try}")
        if any(part.target == "test-slow" for part in parts):
            print(*not_run_and_closing(outcome.lines("test-slow")), sep="\n")
    return 1 if outcome.failed else 0


def not_run_and_closing(lines: Sequence[str]) -> list[str]:
    """The names of the tests that were not drawn, once although a second try repeats them, and pytest's last line."""
    first = next((number for number, line in enumerate(lines) if line.strip("= ") == "not run"), len(lines))
    names = takewhile(lambda line: not line.startswith("="), lines[first + 1 : -1])
    return [*lines[first : first + 1], *names, *lines[-1:]]


def main() -> int:
    """Run everything, or what a commit draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", metavar="HASH", help="run the share that this commit draws; default: everything")
    parser.add_argument("--run-s", type=float, default=RUN_S, metavar="SECONDS", help="how long `make run` took here")
    options = parser.parse_args()
    return run(drawn(options.commit, options.run_s) if options.commit else everything())


if __name__ == "__main__":
    sys.exit(main())
