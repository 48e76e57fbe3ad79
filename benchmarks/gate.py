"""How long the core tier takes per client, and where the time goes.

    python benchmarks/gate.py [--clients node,reference,python-official] [--runs 3] [--jobs N]

Every client is measured in the same session, in turns, so that a slow moment of the machine hits all of them. Shown per
client: wall time of the whole command (s, median), its ratio to the oracle checking itself, and the shares of start-up,
oracle, client and observing in the time that all processes spent; `other` is what scenarios wait for on purpose.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from conformance.report.run_file import Run, read_run

PEER = "node"
PARTS = ("start-up", "oracle", "client", "observe", "other")


@dataclass(frozen=True)
class Measurement:
    """One run: wall time of the command (s), time of each part summed over processes (s), number of scenarios."""

    wall_s: float
    parts_s: dict[str, float]
    scenarios: int


def measure(client: str, jobs: int | None, tier: str) -> Measurement:
    """Run the gate once and read its run file."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "conformance", "run", "--client", client, "--tier", tier]
        command += ["--out", folder, "--format", "json"] + (["--jobs", str(jobs)] if jobs else [])
        started = time.perf_counter()
        subprocess.run(command, check=False, capture_output=True)
        wall_s = time.perf_counter() - started
        run = read_run(Path(folder) / "run.jsonl")
    return Measurement(wall_s, _parts(run), len(run.scenarios))


def _parts(run: Run) -> dict[str, float]:
    spent = {
        name: sum(scenario.timings_ms.get(name, 0.0) for scenario in run.scenarios) / 1000
        for name in ("oracle", "client")
    }
    observe = sum(scenario.timings_ms.get("observe", 0.0) for scenario in run.scenarios) / 1000
    total = sum(scenario.timings_ms.get("total", 0.0) for scenario in run.scenarios) / 1000
    start_up = sum(run.footer.startup_ms.values()) / 1000 if run.footer else 0.0
    # Oracle and client run side by side: what neither of them nor observing explains is waiting of the scenario itself.
    other = max(total - max(spent.values()) - observe, 0.0)
    return {"start-up": start_up, **spent, "observe": observe, "other": other}


def main() -> None:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="node,reference,python-official")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--tier", default="core")
    options = parser.parse_args()
    clients = list(dict.fromkeys([PEER, *options.clients.split(",")]))
    measured: dict[str, list[Measurement]] = {client: [] for client in clients}
    for client in clients:  # installs what is missing, and is not counted
        measure(client, options.jobs, "smoke")
    for _ in range(options.runs):
        for client in clients:
            measured[client].append(measure(client, options.jobs, options.tier))
    Console().print(_table(measured, options.tier, options.runs))


def _table(measured: dict[str, list[Measurement]], tier: str, runs: int) -> Table:
    peer = statistics.median(measurement.wall_s for measurement in measured[PEER])
    table = Table(title=f"{tier} tier, median of {runs} runs, ratio to {PEER} in the same session")
    for title in ("client", "scenarios", "wall s", "ratio", *PARTS):
        table.add_column(title, justify="left" if title == "client" else "right", no_wrap=True)
    for client, runs_of_client in measured.items():
        wall = statistics.median(measurement.wall_s for measurement in runs_of_client)
        parts = [statistics.median(measurement.parts_s[part] for measurement in runs_of_client) for part in PARTS]
        shares = [f"{part / sum(parts):.0%}" for part in parts]
        table.add_row(client, str(runs_of_client[0].scenarios), f"{wall:.1f}", f"{wall / peer:.2f}", *shares)
    return table


if __name__ == "__main__":
    main()
