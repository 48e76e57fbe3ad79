"""One run as the command line asks for it: earlier findings first, then the campaign, then what came of it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from conformance.fuzz.campaign import Campaign, Finding
from conformance.fuzz.coverage import legal_pairs
from conformance.fuzz.findings import Known
from conformance.fuzz.folder import RunFolder
from conformance.fuzz.modes import Mode
from conformance.fuzz.opening import open_stage
from conformance.fuzz.replaying import play_back
from conformance.fuzz.stage import Stage
from conformance.fuzz.view import RunView, finding_line

SHOWN_PAIRS = 10


@dataclass(frozen=True)
class Wish:
    """What was asked for. `client` and `command` as for `run`; at most one of them is given."""

    mode: Mode
    budget_s: float
    seed: int
    out: Path
    client: str = ""
    command: tuple[str, ...] = ()
    redis: str = ""
    node: str = ""
    ignore: tuple[str, ...] = ()
    """Places (glob) where differences are no findings."""
    without: tuple[str, ...] = ()
    """Operations (glob) that are not called."""


def run_session(wish: Wish, console: Console) -> bool:
    """Run it, show it, write the folder; whether there are findings. Raises a Problem for what a user can mend."""
    folder = RunFolder(wish.out)
    with ExitStack() as stack:
        stage = open_stage(
            stack,
            wish.mode,
            client=wish.client,
            command=wish.command,
            redis=wish.redis,
            node=wish.node,
            announce=_announce,
        )
        view = RunView(console, lambda finding: folder.save(finding, stage))
        rounds = folder.rounds_done(wish.seed)
        known = Known(places=wish.ignore)
        campaign = Campaign(
            stage,
            wish.budget_s,
            wish.seed,
            view,
            folder.examples,
            rounds=rounds,
            known=known,
            left_out=wish.without,
        )
        still = _play_again(folder, stage, campaign, console)
        stack.callback(view.stop)
        view.start()
        try:
            campaign.run()
        finally:
            view.stop()
            folder.note(campaign, campaign.operations)
        _conclude(console, campaign, folder)
    return bool(still) or any(finding.reproduced for finding in campaign.findings)


def _play_again(folder: RunFolder, stage: Stage, campaign: Campaign, console: Console) -> int:
    """Play the findings of earlier runs; those that still show are known and are not looked for again."""
    still = 0
    for path, replay in folder.replays().items():
        if replay.header.mode != stage.mode:
            continue
        shows = play_back(stage, replay).shows(replay)
        still += shows
        if shows:
            campaign.known.groups |= replay.groups
        mark = ("✗ still shows  ", "bold red") if shows else ("✓ no longer shows  ", "green")
        console.print(Text.assemble(mark, str(path)), soft_wrap=True)
    return still


def _conclude(console: Console, campaign: Campaign, folder: RunFolder) -> None:
    elapsed = max(time.monotonic() - campaign.started, 0.001)
    untried = campaign.coverage.never_tried(campaign.operations)
    console.print(
        f"{campaign.sequences} sequences, {campaign.steps} steps ({campaign.steps / elapsed:.0f}/s), "
        f"{len(campaign.coverage.seen)} combinations of operation, state and option",
        soft_wrap=True,
    )
    if untried:
        shown = ", ".join(f"{op} on {state}" for op, state in untried[:SHOWN_PAIRS])
        more = f" and {len(untried) - SHOWN_PAIRS} more (coverage.json)" if len(untried) > SHOWN_PAIRS else ""
        console.print(Text(f"never tried: {shown}{more}"), soft_wrap=True)
    else:
        pairs = len(legal_pairs(campaign.operations))
        console.print(f"all {pairs} pairs of operation and state were tried")
    for finding in campaign.findings:
        console.print(finding_line(finding), soft_wrap=True)
        _show(console, finding, folder.file_of(finding))


def _show(console: Console, finding: Finding, path: Path) -> None:
    for difference in finding.differences:
        console.print(Text(f"  {difference}", style="dim"), soft_wrap=True)
    console.print(Text(f"  reproduce: bullmq-conformance replay {path}"), soft_wrap=True)


def _announce(text: str) -> None:
    Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(text)
