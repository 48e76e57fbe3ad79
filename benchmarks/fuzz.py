"""Speed of the fuzzer.

    python benchmarks/fuzz.py [--seconds 30] [--client reference] [--mode differential]

Shown: steps per second by the wall clock, and the processor time that one step takes in all processes together (the
kit, both drivers, Redis). On a busy machine only the second number is meaningful: two
cores can run at most `2000 / (ms per step)` steps per second, and fewer if one waits for the other.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import ExitStack

from rich.console import Console
from rich.table import Table

from benchmarks.sessions import processor_s
from conformance.environment.prepare import EnvironmentOptions
from conformance.fuzz.campaign import Campaign, CampaignOptions
from conformance.fuzz.target import MODES, open_target

GOAL = 60.0
"""Steps per second in differential mode on two cores."""


def main() -> None:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--client", default="reference")
    parser.add_argument("--mode", choices=MODES, default="differential")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with ExitStack() as stack:
        target = open_target(EnvironmentOptions(client=options.client), stack, options.mode)
        campaign = Campaign(target, CampaignOptions(options.seconds, options.seed))
        _ = target.drivers.operations  # starts both drivers
        before = processor_s()
        campaign.run()
        elapsed, busy = time.monotonic() - campaign.progress.started, processor_s() - before
    table = Table("client", "mode", "sequences", "steps", "steps/s", "CPU ms/step", "load")
    table.add_row(
        options.client,
        options.mode,
        str(campaign.progress.sequences),
        str(campaign.progress.steps),
        f"{campaign.progress.steps / elapsed:.0f} (goal {GOAL:.0f})",
        f"{1000 * busy / max(campaign.progress.steps, 1):.1f}",
        f"{os.getloadavg()[0]:.1f}",
    )
    Console().print(table)


if __name__ == "__main__":
    main()
