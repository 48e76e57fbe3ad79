"""Letting the fuzzer loose on a planted defect.

`python -m tests.fuzz.hunting [NAME …]` hunts each defect anew (two minutes at most) and writes its replay file into
`tests/fuzz/replays/`; that is how these files were made.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.processor import processor_s
from conformance.environment.clients import Launch, find_toolchain
from conformance.environment.drivers import RestartableDriver
from conformance.fuzz.campaign import Campaign, Finding
from conformance.fuzz.folder import as_replay
from conformance.fuzz.modes import Mode
from conformance.fuzz.replay_file import write_replay
from conformance.fuzz.stage import Stage
from conformance.fuzz.steps import told
from conformance.mutants.matrix import MutantSeat
from conformance.mutants.registry import Mutant
from conformance.reference_impl.scripts.official import official_scripts
from conformance.servers import Server, open_server

from .planted import PLANTED

REPLAYS = Path(__file__).parent / "replays"
LONGEST_HUNT_S = 120.0


class Silence:
    """A watcher that says nothing."""

    def stepped(self, campaign: Campaign) -> None:
        """Nothing."""

    def found(self, finding: Finding) -> None:
        """Nothing."""


def oracle_of_this_machine() -> Launch:
    """How the Node driver is started."""
    return find_toolchain("", print).oracle


@contextmanager
def stage_for(mutant: Mutant, server: Server, oracle: Launch, mode: Mode = "differential") -> Iterator[Stage]:
    """A stage whose client is a mutant in this process."""
    client = MutantSeat(Launch(mutant.name, []), 0, mutant=mutant, scripts=official_scripts())
    stage = Stage(server, RestartableDriver(oracle, 0), client, mode)
    try:
        yield stage
    finally:
        stage.leave()


def hunt(stage: Stage, seed: int, budget_s: float = LONGEST_HUNT_S) -> tuple[Finding | None, Campaign]:
    """Look until something is found, or the time is up."""
    campaign = Campaign(stage, budget_s, seed, Silence(), most_findings=1)
    findings = campaign.run()
    return (findings[0] if findings else None), campaign


def main() -> None:
    """Hunt the defects and write their files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*PLANTED, []], metavar="NAME")
    parser.add_argument("--seconds", type=float, default=LONGEST_HUNT_S, help="for each defect")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with ExitStack() as stack:
        server = stack.enter_context(open_server(None, announce=print))
        oracle = oracle_of_this_machine()
        for name in options.names or PLANTED:
            started, before = time.monotonic(), processor_s()
            with stage_for(PLANTED[name], server, oracle) as stage:
                finding, campaign = hunt(stage, options.seed, options.seconds)
                busy = f"{processor_s() - before:.0f} s of processor time, load {os.getloadavg()[0]:.0f}"
                taken = f"{time.monotonic() - started:.0f} s ({busy}), {campaign.steps} steps"
                if finding is None:
                    print(f"{name}: not found in {taken}")
                    continue
                print(f"{name}: met after {finding.seconds:.0f} s, done after {taken}: {finding.calls} calls")
                for step in finding.steps:
                    print(f"    {told(step)}")
                print("\n".join(f"      {one}" for one in finding.differences), flush=True)
                write_replay(as_replay(finding, stage), REPLAYS / f"{name}.jsonl")


if __name__ == "__main__":
    main()
