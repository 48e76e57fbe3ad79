"""How fast the fuzzer plays.

    python benchmarks/fuzz.py [--seconds 30] [--client reference] [--mode differential]

Shown: steps per second by the wall clock, and the processor time that one step takes in all processes together (the
kit, both drivers, Redis). On a machine that does something else meanwhile, only the second number means anything: two
cores can play `2000 / (ms per step)` steps per second at most, and less where one of them waits for the other.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import ExitStack

from rich.console import Console
from rich.table import Table

from benchmarks.processor import processor_s
from conformance.fuzz.campaign import Campaign, FuzzFinding
from conformance.fuzz.steps import MODES
from conformance.fuzz.target import open_target

GOAL = 60.0
"""Steps per second in differential mode on two cores."""


class Silence:
    """A watcher that says nothing."""

    def stepped(self, campaign: Campaign) -> None:
        """Nothing."""

    def found(self, finding: FuzzFinding) -> None:
        """Nothing."""


def main() -> None:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--client", default="reference")
    parser.add_argument("--mode", choices=MODES, default="differential")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with ExitStack() as stack:
        stage = open_target(stack, options.mode, client=options.client, announce=print)
        campaign = Campaign(stage, options.seconds, options.seed, Silence())
        _ = stage.operations  # starts both drivers
        before = processor_s()
        campaign.run()
        elapsed, busy = time.monotonic() - campaign.started, processor_s() - before
    table = Table("client", "mode", "sequences", "steps", "steps/s", "CPU ms/step", "load")
    table.add_row(
        options.client,
        options.mode,
        str(campaign.sequences),
        str(campaign.steps),
        f"{campaign.steps / elapsed:.0f} (goal {GOAL:.0f})",
        f"{1000 * busy / max(campaign.steps, 1):.1f}",
        f"{os.getloadavg()[0]:.1f}",
    )
    Console().print(table)


if __name__ == "__main__":
    main()
