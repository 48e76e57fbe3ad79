"""The headline run: one workload through two clients, once each way round, and the diff of what they leave.

    python -m benchmarks.headline [--jobs 1000000] [--out /tmp/headline] [--keep docs/sample-report]

`load --producer reference --worker node`, the mirror image, and `diff` of the two final states, with the very commands
that users type. `--keep` takes over the reports (snapshots and Parquet stay in `--out`) and writes a page about the
run. Ends with the exit code of the diff. A million jobs need some 4 GB of memory, 3 GB of disk, and a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import sessions

ROUNDS: Final = (("reference", "node"), ("node", "reference"))
REPORTS: Final = ("*.html", "*.md", "*.json", "*.xml")


@dataclass(frozen=True)
class Step:
    """A command that was carried out: how long it took, and the load of the machine (1 min) before and after it."""

    command: str
    seconds: float
    load_before: float
    load_after: float
    code: int


def main() -> None:
    """Run all, print what it took, and end with the outcome of the diff."""
    options = _options()
    out: Path = options.out
    steps = [_load(options, producer, worker) for producer, worker in ROUNDS]
    sides = [str(out / f"{producer}-{worker}" / "snapshot") for producer, worker in ROUNDS]
    steps.append(carried_out(["diff", *sides, "--out", str(out / "diff")]))
    if options.keep is not None:
        _keep(out, options.keep)
        (options.keep / "README.md").write_text(page(options.jobs, steps, out), "utf-8")
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
    """Carry out a verb of the program, with what it prints."""
    before, began = os.getloadavg()[0], time.monotonic()
    code = subprocess.run([sys.executable, "-m", "conformance", *words], check=False).returncode
    command = shlex.join(["bullmq-conformance", *words])
    return Step(command, time.monotonic() - began, before, os.getloadavg()[0], code)


def _keep(out: Path, keep: Path) -> None:
    """Take over the reports of all runs, and the index."""
    for name in (*(f"{producer}-{worker}" for producer, worker in ROUNDS), "diff"):
        (keep / name).mkdir(parents=True, exist_ok=True)
        for pattern in REPORTS:
            for path in (out / name).glob(pattern):
                shutil.copy(path, keep / name / path.name)
    shutil.copy(out / "index.html", keep / "index.html")


def page(jobs: int, steps: list[Step], out: Path) -> str:
    """The page about the run, from what it has left."""
    loads = [json.loads((out / f"{producer}-{worker}" / "load.json").read_text()) for producer, worker in ROUNDS]
    total = json.loads((out / "diff" / "diff.json").read_text())["total"]
    rows = [_row(found) for found in loads]
    commands = "\n".join(step.command for step in steps)
    return f"""# Sample reports

Real output of the headline run with {jobs:,} jobs, on {os.cpu_count()} cores with Redis on the same machine
(`python -m benchmarks.headline --jobs {jobs}`): one workload, added by the reference and worked off by Node in
`reference-node/`, the other way round in `node-reference/`, and `diff/` of the two final states: {_differences(total)}.
`index.html` lists them.

```
{commands}
```

| run | added | finished | whole command | load of the machine |
|---|---|---|---|---|
| added by reference, worked off by Node | {rows[0]} | {took(steps[0])} |
| added by Node, worked off by reference | {rows[1]} | {took(steps[1])} |
| diff | | | {took(steps[2])} |

The load of the machine is what `uptime` showed for one minute before and after; the run itself makes 2 to 3 of it on
two cores. With more, the times say nothing about speed.
"""


def _row(found: dict[str, Any]) -> str:
    phases = (found["produced"], found["finished"])
    return " | ".join(f"{phase['jobs']:,} in {phase['seconds']:.1f} s" for phase in phases)


def took(step: Step) -> str:
    """Two cells of a table: the seconds, and the load of the machine."""
    return f"{step.seconds:.0f} s | {step.load_before:.1f} to {step.load_after:.1f}"


def _differences(total: int) -> str:
    return f"{total:,} differences" if total else "no differences"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=sessions.positive, default=1_000_000, help="jobs of each load (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("/tmp/headline"), help="folder for everything (%(default)s)")  # noqa: S108
    parser.add_argument("--keep", type=Path, default=None, help="folder that takes over the reports")
    return parser.parse_args()


if __name__ == "__main__":
    main()
