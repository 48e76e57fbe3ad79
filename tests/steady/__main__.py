"""Run clients that are right on a machine that is disturbed; exits with 1 where a run says that something is wrong.

    python -m tests.steady [--clients node,reference] [--disturb stopped-drivers,busy-cores] [--tier full] [--runs 1]

No scenario may fail, and none may become an error. One that stayed open because the machine starved again and again
(`inconclusive`) is counted and shown, and does not fail: no client was blamed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.steady.disturbances import DISTURBANCES
from tests.steady.outcome import Outcome, outcome_of


def disturbed_run(client: str, disturbance: str, words: list[str]) -> Outcome:
    """One run of the program under a disturbance."""
    # A run has a pytest of its own, which must not take itself for a worker of another.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "conformance", "run", "--client", client, *words]
        command += ["--out", folder, "--format", "json"]
        started = time.monotonic()
        with (
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
            ) as run,
            DISTURBANCES[disturbance](run.pid),
        ):
            output, _ = run.communicate()
        return outcome_of(Path(folder) / "run.jsonl", output, seconds=time.monotonic() - started)


def main() -> int:
    """Do all runs, one after the other, and say of each how it ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="node,reference")
    parser.add_argument("--disturb", default=",".join(DISTURBANCES))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--tier", default="full")
    parser.add_argument("--select", action="append", default=[])
    options = parser.parse_args()
    words = ["--tier", options.tier, *(word for glob in options.select for word in ("--select", glob))]
    steady = True
    for _ in range(options.runs):
        for disturbance in options.disturb.split(","):
            for client in options.clients.split(","):
                outcome = disturbed_run(client, disturbance, words)
                print(f"{client}, {disturbance}: {outcome}", flush=True)
                steady = steady and outcome.steady
    return 0 if steady else 1


if __name__ == "__main__":
    sys.exit(main())
