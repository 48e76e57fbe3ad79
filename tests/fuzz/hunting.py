"""Letting the fuzzer loose on a planted defect.

`python -m tests.fuzz.hunting [NAME …]` hunts each defect again (two minutes at most) and writes its replay file into
`tests/fuzz/replays/`; that is how these files were made. A defect that only shows together with another client
(`skew.…`) is hunted in turns with Node, and its file is in `tests/fuzz/skewed/`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.sessions import processor_s
from conformance.environment.clients import Launch, find_toolchain
from conformance.environment.drivers import RestartableDriver
from conformance.fuzz.campaign import Campaign, CampaignOptions, FuzzFinding
from conformance.fuzz.replay import write_replay
from conformance.fuzz.session import as_replay
from conformance.fuzz.setup import FuzzedDrivers
from conformance.fuzz.target import FuzzTarget, Mode
from conformance.mutants.matrix import MutantDriver
from conformance.mutants.registry import MUTANTS, Mutant
from conformance.reference_impl.scripts.runner import official_scripts
from conformance.servers import RedisInstance, open_server
from conformance.steps.records import step_line

from .planted import PLANTED

REPLAYS = Path(__file__).parent / "replays"
NEWER = Path(__file__).parent / "newer"
SKEWED = Path(__file__).parent / "skewed"
SKEWS = {name: mutant for name, mutant in MUTANTS.items() if name.startswith("skew.")}
LONGEST_HUNT_S = 120.0


def oracle_of_this_machine(version: str = "") -> Launch:
    """How the Node driver is started; `version`: of BullMQ, "" for the pinned one."""
    return find_toolchain("", print, version).oracle


@contextmanager
def target_for(
    mutant: Mutant, server: RedisInstance, oracle: Launch, mode: Mode = "differential"
) -> Iterator[FuzzTarget]:
    """A target whose client is a mutant in this process."""
    client = MutantDriver(Launch(mutant.name, []), 0, mutant=mutant, scripts=official_scripts())
    environment = FuzzedDrivers(server, RestartableDriver(oracle, 0), None if mode == "model" else client)
    target = FuzzTarget(environment, mode)
    try:
        yield target
    finally:
        target.close()


def hunt(target: FuzzTarget, seed: int, budget_s: float = LONGEST_HUNT_S) -> tuple[FuzzFinding | None, Campaign]:
    """Look until something is found, or the time is up."""
    campaign = Campaign(target, CampaignOptions(budget_s, seed, most_findings=1))
    findings = campaign.run()
    return (findings[0] if findings else None), campaign


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*PLANTED, *SKEWS, []], metavar="NAME")
    parser.add_argument("--seconds", type=float, default=LONGEST_HUNT_S, help="for each defect")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with ExitStack() as stack:
        server = stack.enter_context(open_server(None, announce=print))
        oracle = oracle_of_this_machine()
        for name in options.names or PLANTED:
            started, before = time.monotonic(), processor_s()
            mode: Mode = "interop" if name in SKEWS else "differential"
            with target_for({**PLANTED, **SKEWS}[name], server, oracle, mode) as target:
                finding, campaign = hunt(target, options.seed, options.seconds)
                busy = f"{processor_s() - before:.0f} s of processor time, load {os.getloadavg()[0]:.0f}"
                taken = f"{time.monotonic() - started:.0f} s ({busy}), {campaign.progress.steps} steps"
                if finding is None:
                    print(f"{name}: not found in {taken}")
                    continue
                print(f"{name}: met after {finding.seconds:.0f} s, done after {taken}: {finding.calls} calls")
                for step in finding.steps:
                    print(f"    {step_line(step)}")
                print("\n".join(f"      {difference}" for difference in finding.differences), flush=True)
                write_replay(as_replay(finding, target), (SKEWED if name in SKEWS else REPLAYS) / f"{name}.jsonl")


if __name__ == "__main__":
    main()
