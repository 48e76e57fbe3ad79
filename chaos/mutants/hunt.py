"""`python -m chaos.mutants.hunt`: measures how long a user's default campaign takes to find each broken client.

The tests run a mutant under the fault that reveals it; here the campaign must find that fault.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Timer

import click

from chaos.mutants.catalogue import CHAOS_MUTANTS, ChaosMutant
from conformance.interruption import EXIT_CODE, handled
from conformance.problems import Problem

WITHIN_S = 600
"""How long a campaign may take until it has named the invariant."""
RUN_ENDED = ("✓", "✗", "?", "·")
"""The mark of a run in the output of `chaos`; it is followed by the client, the fault, and the topology in brackets."""
NO_FINDINGS = frozenset({"reproduce", "not run", "never reached"})
"""Other indented lines of a run in the output of `chaos`, besides findings."""
CLOSING_S = 60
"""How long an interrupted campaign may take to end."""


@dataclass
class Hunt:
    """The outcome of a campaign.

    `seconds`: until the right invariant was reported, None if it was not. `run`: the fault (or crash point) that
    revealed it. `others`: invariants that were reported before. `runs`: how many runs had ended by then.
    """

    mutant: ChaosMutant
    seconds: float | None = None
    run: str = ""
    others: list[str] = field(default_factory=list)
    runs: int = 0
    _current: str = ""

    @property
    def row(self) -> list[str]:
        """As the table shows it."""
        found = "not found" if self.seconds is None else f"{self.seconds:.0f} s"
        return [f"`{self.mutant.name}`", f"`{self.mutant.kills}`", found, self.run, ", ".join(self.others)]

    def hear(self, line: str, seconds: float) -> None:
        """Read a line of the campaign: a run that has ended, or one of its findings, which is indented."""
        if line.startswith(RUN_ENDED):
            self.runs += 1
            _, _, self._current = line.partition(" [")[0].split(maxsplit=2)
        if not line.startswith("    "):
            return
        name, _, found = line.strip().partition(": ")
        if name == self.mutant.kills and not found.startswith("unknown: "):
            self.seconds, self.run = seconds, self._current
        elif name not in {*NO_FINDINGS, *self.others} and not found.startswith("unknown: "):
            self.others.append(name)


def hunt(mutant: ChaosMutant, campaigns: list[subprocess.Popen[str]], seed: int = 0) -> Hunt:
    """Run the default campaign until it reports the invariant, ends, or takes too long. It is added to `campaigns`."""
    started, sought = time.monotonic(), Hunt(mutant)
    command = [sys.executable, "-m", "conformance", "chaos", "--seed", str(seed), *mutant.launch.words]
    with (
        tempfile.TemporaryDirectory(prefix="bullmq-conformance-hunt-") as folder,
        _campaign(command, folder) as campaign,
    ):
        campaigns.append(campaign)
        deadline = Timer(WITHIN_S, partial(_interrupt, campaign))
        deadline.start()
        for line in campaign.stdout or ():
            sought.hear(line.rstrip(), time.monotonic() - started)
            if sought.seconds is not None:
                break
        deadline.cancel()
    return sought


@contextmanager
def _campaign(command: Sequence[str], folder: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as campaign:
        try:
            yield campaign
        finally:
            _interrupt(campaign)
            with suppress(subprocess.TimeoutExpired):
                campaign.communicate(timeout=CLOSING_S)
            campaign.kill()


def _interrupt(campaign: subprocess.Popen[str]) -> None:
    if campaign.poll() is None:
        campaign.terminate()


@click.command()
@click.option("--jobs", type=click.IntRange(1), default=3, show_default=True, help="How many campaigns at a time.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the campaigns.")
@click.argument("names", nargs=-1)
def main(jobs: int, seed: int, names: Sequence[str]) -> None:
    """Hunt the broken clients NAMES (default: all). Exit code 1: the expected invariant was not reported in time."""
    try:
        mutants = [CHAOS_MUTANTS.find(name) for name in names] or list(CHAOS_MUTANTS.values())
    except Problem as problem:
        click.echo(str(problem), err=True)
        sys.exit(problem.exit_code)
    hunts: list[Hunt] = []
    campaigns: list[subprocess.Popen[str]] = []
    with handled(), ThreadPoolExecutor(jobs) as pool:
        try:
            for ended in pool.map(partial(hunt, campaigns=campaigns, seed=seed), mutants):
                hunts.append(ended)
                click.echo(f"{' '.join(ended.row)} (runs: {ended.runs})")
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for campaign in campaigns:
                _interrupt(campaign)
            sys.exit(EXIT_CODE)
    heads = ["broken client", "found by", "after", "in", "named before"]
    for row in (heads, ["---"] * len(heads), *(ended.row for ended in hunts)):
        click.echo(f"| {' | '.join(row)} |")
    sys.exit(any(ended.seconds is None for ended in hunts))


if __name__ == "__main__":
    main()
