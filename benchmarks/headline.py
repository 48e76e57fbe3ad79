"""The headline run: one workload through two clients, once each way round, and the diff of what they leave.

    python -m benchmarks.headline [--jobs 1000000] [--out /tmp/headline] [--keep]

`load --producer reference --worker node`, the mirror image, and `diff` of the two final states, with the commands
that users type. `--keep` writes the data of the sample reports (`website/samples/load.json`). The exit code is that of
the diff. A million jobs need about 4 GB of memory, 3 GB of disk, and a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import sessions
from reports.diff.summary import DiffSummary
from reports.load.result import read_result
from website.samples import LOAD, LoadSample, MeasuredCommand, write_sample

ROUNDS: Final = (("reference", "node"), ("node", "reference"))


class Step(MeasuredCommand, frozen=True, kw_only=True):
    """A command that was run, with its exit code."""

    code: int


def main() -> None:
    """Run all, print the durations, and return the exit code of the diff."""
    options = _options()
    out: Path = options.out
    steps = [_load(options, producer, worker) for producer, worker in ROUNDS]
    sides = [str(out / f"{producer}-{worker}" / "snapshot") for producer, worker in ROUNDS]
    steps.append(carried_out(["diff", *sides, "--out", str(out / "diff")]))
    if options.keep:
        write_sample(LOAD, _sample(options, [step.measured for step in steps]))
    for step in steps:
        load = f"load {step.load_before:.1f} to {step.load_after:.1f}"
        print(f"{step.seconds:8.1f} s  exit {step.code}  {load}  {step.command}")
    sys.exit(steps[-1].code)


def _load(options: argparse.Namespace, producer: str, worker: str) -> Step:
    out = options.out / f"{producer}-{worker}"
    words = ["load", "--jobs", str(options.jobs), "--producer", producer, "--worker", worker, "--out", str(out)]
    step = carried_out(words)
    if step.code:
        sys.exit(step.code)
    return step


def carried_out(words: list[str]) -> Step:
    """Run a command of the program and show its output."""
    before, started = os.getloadavg()[0], time.monotonic()
    code = subprocess.run([sys.executable, "-m", "conformance", *words], check=False).returncode
    command = shlex.join(["bullmq-conformance", *words])
    seconds = time.monotonic() - started
    return Step(command=command, seconds=seconds, load_before=before, load_after=os.getloadavg()[0], code=code)


def _sample(options: argparse.Namespace, commands: list[MeasuredCommand]) -> LoadSample:
    out: Path = options.out
    names = [f"{producer}-{worker}" for producer, worker in ROUNDS]
    return LoadSample(
        jobs=options.jobs,
        cores=os.cpu_count() or 1,
        commands=commands,
        loads={name: read_result(out / name) for name in names},
        diff=msgspec.json.decode((out / "diff" / "diff.json").read_bytes(), type=DiffSummary),
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=sessions.positive, default=1_000_000, help="jobs of each load (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("/tmp/headline"), help="folder for everything (%(default)s)")  # noqa: S108
    parser.add_argument("--keep", action="store_true", help="write the data of the sample reports")
    return parser.parse_args()


if __name__ == "__main__":
    main()
