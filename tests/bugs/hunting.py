"""Letting the fuzzer loose on a bug of the corpus.

`python -m tests.bugs.hunting ID …` searches with the clients of the bug's proof: the release with the bug is compared
with the release of the fix, and a mutant with Node.js. It prints the first findings. The reader decides whether
they show the harm of the row; if so, the seed is the `fuzz` of the row. For a bug of Node.js this is
`bullmq-conformance fuzz --client node@BEFORE --oracle FIXED`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from conformance.bugs.corpus import Bug, load_corpus
from conformance.bugs.proof import clients_of
from conformance.environment.clients import find_toolchain
from conformance.environment.drivers import RestartableDriver
from conformance.fuzz.campaign import Campaign, CampaignOptions
from conformance.fuzz.setup import FuzzedDrivers
from conformance.fuzz.target import FuzzTarget
from conformance.mutants.registry import MUTANTS
from conformance.servers import RedisInstance, open_server
from conformance.steps.records import step_line
from conformance.upstream.scripts import load_scripts
from tests.fuzz.hunting import target_for

LONGEST_HUNT_S = 300.0


@contextmanager
def target_of(bug: Bug, server: RedisInstance) -> Iterator[FuzzTarget]:
    """The client with the bug, and what it is compared with. Raises a Problem if a release is missing."""
    by_node = bug.port == "node" and bug.proof not in MUTANTS
    toolchain = find_toolchain("", print, bug.oracle or (bug.fixed if by_node else ""))
    if bug.proof in MUTANTS:
        with target_for(MUTANTS[bug.proof], server, toolchain.oracle) as target:
            yield target
        return
    (_, before), (_, fixed) = clients_of(bug)
    oracle = toolchain.oracle if by_node else toolchain.launch(fixed, (), ())
    scripts = {name: script.text for name, script in load_scripts(toolchain.package, toolchain.node).items()}
    client = RestartableDriver(toolchain.launch(before, (), ()), 0)
    target = FuzzTarget(FuzzedDrivers(server, RestartableDriver(oracle, 0), client, scripts))
    try:
        yield target
    finally:
        target.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="+", choices=sorted(load_corpus()), metavar="ID")
    parser.add_argument("--seconds", type=float, default=LONGEST_HUNT_S, help="for each bug")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--findings", type=int, default=1, help="for each bug, until the next one is hunted")
    options = parser.parse_args()
    with ExitStack() as stack:
        server = stack.enter_context(open_server(None, announce=print))
        for bug in map(load_corpus().__getitem__, options.ids):
            with target_of(bug, server) as target:
                chosen = CampaignOptions(options.seconds, options.seed, most_findings=options.findings)
                campaign = Campaign(target, chosen)
                campaign.run()
            found = len(campaign.findings)
            print(f"{bug.id} ({bug.harm}): {found} findings in {campaign.progress.steps} steps", flush=True)
            for finding in campaign.findings:
                print(f"  {finding.group}, after {finding.seconds:.0f} s")
                print("\n".join(f"    {step_line(step)}" for step in finding.steps))
                print("\n".join(f"    ! {difference}" for difference in finding.differences), flush=True)


if __name__ == "__main__":
    main()
