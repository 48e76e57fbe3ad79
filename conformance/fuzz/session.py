"""One run of the command: the campaign, its output on the screen, and its folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hypothesis.configuration import set_hypothesis_home_dir
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from conformance.driver.ops import REGISTRY
from conformance.environment.out_folder import prove_writable
from conformance.fuzz.campaign import Campaign, CampaignListener, CampaignOptions, CampaignProgress, FuzzFinding
from conformance.fuzz.comparison import KnownDifferences
from conformance.fuzz.options import FuzzConfig
from conformance.fuzz.replay import Replay, ReplayHeader, file_name, read_replay, run_replay, write_replay
from conformance.fuzz.strategies.exploring import legal_pairs
from conformance.fuzz.target import FuzzTarget, open_target
from conformance.gate.records import KIT_VERSION
from conformance.pages.terminal import terminal_parts, terminal_text
from conformance.problems import UsageProblem
from conformance.registry import names_matching

FINDINGS, EXAMPLES, COVERAGE, PROGRESS = "findings", "examples", "coverage.json", "progress.json"

REFRESH_S = 0.25
HEARTBEAT_S = 10.0
"""How often plain mode prints how far the run is."""

MOST_PAIRS_SHOWN, MOST_FINDINGS_SHOWN = 10, 12


FuzzVerdict = Literal["findings", "nothing", "undecided"]
"""`undecided`: no findings, but the campaign was too short to say that there are none."""


def run_fuzz(config: FuzzConfig, console: Console) -> FuzzVerdict:
    """Repeat earlier findings, then run a campaign; print both, and write the folder.

    Raises a Problem that the user can fix.
    """
    for pattern in config.without:
        names_matching("operation of --without", pattern, REGISTRY)
    out = Path(config.out)
    # Before anything starts: a campaign whose findings cannot be written would be lost.
    prove_writable(out)
    folder = FuzzFolder(out)
    with ExitStack() as stack:
        # Else Hypothesis creates a folder in the current directory.
        set_hypothesis_home_dir(folder.of_hypothesis)
        stack.callback(set_hypothesis_home_dir, None)
        target = open_target(config, stack, config.mode)
        view = CampaignView(console, lambda finding: folder.save(finding, target))
        campaign = Campaign(
            target,
            CampaignOptions(config.budget_ms / 1000, config.seed, tuple(config.without), folder.examples),
            view,
            KnownDifferences(places=tuple(config.ignore)),
            CampaignProgress(rounds=folder.rounds_done(config.seed)),
        )
        console.print(terminal_text(target.parties), soft_wrap=True)
        # Before the campaign, so that what is known already is not searched again.
        still_shown = _run_replays(folder, campaign, console)
        # Registered before the start, so that the panel also goes after an interruption.
        stack.callback(view.stop)
        view.start()
        try:
            campaign.run()
        finally:
            view.stop()
            # Also after an interruption: the next run continues with the following rounds.
            folder.note(campaign)
        _conclude(console, campaign, folder)
        if still_shown or any(finding.reproduced for finding in campaign.findings):
            return "findings"
        if shortage := campaign.progress.shortage:
            console.print(terminal_text(f"UNDECIDED: {shortage} — give it more time (--budget)"), soft_wrap=True)
            return "undecided"
    return "nothing"


def _run_replays(folder: FuzzFolder, campaign: Campaign, console: Console) -> bool:
    """Repeat the findings of earlier runs; returns whether any still occurs. Those are not searched again."""
    still_shown = False
    for path, replay in folder.replays().items():
        # Another mode compares other systems, so its findings say nothing here.
        if replay.header.mode != campaign.target.mode:
            continue
        shows = run_replay(campaign.target, replay).shows(replay)
        if shows:
            still_shown = True
            campaign.known.groups |= replay.groups
        mark = ("✗ still shows  ", "bold red") if shows else ("✓ no longer shows  ", "green")
        console.print(terminal_parts(mark, str(path)), soft_wrap=True)
    return still_shown


def _conclude(console: Console, campaign: Campaign, folder: FuzzFolder) -> None:
    progress = campaign.progress
    untried = progress.coverage.never_tried(progress.operations)
    done = f"{progress.sequences} sequences, {progress.steps} steps ({progress.steps / progress.elapsed_s:.0f}/s), "
    compared = f"{len(progress.coverage.compared)} combinations of operation, state and option"
    console.print(terminal_text(done + compared), soft_wrap=True)
    if untried:
        pairs = ", ".join(f"{op} on {state}" for op, state in untried[:MOST_PAIRS_SHOWN])
        more = f" and {len(untried) - MOST_PAIRS_SHOWN} more (coverage.json)" if len(untried) > MOST_PAIRS_SHOWN else ""
        console.print(terminal_text(f"never tried: {pairs}{more}"), soft_wrap=True)
    else:
        console.print(f"all {len(legal_pairs(progress.operations))} pairs of operation and state were tried")
    for finding in campaign.findings:
        console.print(finding_line(finding), soft_wrap=True)
        for difference in finding.differences:
            console.print(terminal_text(f"  {difference}", style="dim"), soft_wrap=True)
        path = folder.file_of(finding)
        console.print(terminal_text(f"  reproduce: bullmq-conformance replay {path}"), soft_wrap=True)


@dataclass(frozen=True)
class FuzzFolder:
    """`findings/*.jsonl`, `examples/` (Hypothesis's database), `coverage.json`, `progress.json`."""

    path: Path

    @property
    def of_hypothesis(self) -> Path:
        """Other data of Hypothesis: constants that it has found in code."""
        return self.path / ".hypothesis"

    @property
    def examples(self) -> Path:
        """Hypothesis's example database."""
        return self.path / EXAMPLES

    def replays(self) -> dict[Path, Replay]:
        """The findings of earlier runs. Raises UsageProblem if a file is not a replay file."""
        return {path: read_replay(path) for path in sorted((self.path / FINDINGS).glob("*.jsonl"))}

    def save(self, finding: FuzzFinding, target: FuzzTarget) -> Path:
        """Write a finding as a replay file."""
        path = self.file_of(finding)
        write_replay(as_replay(finding, target), path)
        return path

    def file_of(self, finding: FuzzFinding) -> Path:
        """The file to which a finding is written."""
        return self.path / FINDINGS / file_name(finding.group)

    def rounds_done(self, seed: int) -> int:
        """How many rounds earlier runs with this seed have completed."""
        try:
            progress = json.loads((self.path / PROGRESS).read_text("utf-8"))
            return int(progress[str(seed)])
        # A damaged file only costs the progress, and the campaign starts with its first round.
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def note(self, campaign: Campaign) -> None:
        """Write the coverage and the progress. Raises UsageProblem if they cannot be written."""
        progress = {str(campaign.options.seed): campaign.progress.rounds}
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / PROGRESS).write_text(json.dumps(progress) + "\n", "utf-8")
            coverage = json.dumps(coverage_record(campaign.progress), indent=1)
            (self.path / COVERAGE).write_text(coverage + "\n", "utf-8")
        except OSError as error:
            raise UsageProblem(f"cannot write to {self.path}: {error.strerror}", hint="choose another --out") from error


def as_replay(finding: FuzzFinding, target: FuzzTarget) -> Replay:
    """A finding as the content of a replay file."""
    drivers = target.drivers
    shown_on = drivers.client or drivers.oracle
    header = ReplayHeader(
        title=str(finding.group),
        kit=KIT_VERSION,
        bullmq=drivers.oracle.living().ready.client.version,
        mode=target.mode,
        clock="frozen" if drivers.frozen else "running",
        seed=finding.seed,
        client=shown_on.launch.name,
        version=shown_on.living().ready.client.version,
        packages=shown_on.launch.packages,
        partner=drivers.partner.launch.text if drivers.partner else "",
        beside=list(finding.beside),
    )
    return Replay(header, finding.steps, finding.differences)


def coverage_record(progress: CampaignProgress) -> dict[str, Any]:
    """How often each combination was tried, and the legal pairs of operation and state that were never tried."""
    coverage = progress.coverage
    return {
        "sequences": progress.sequences,
        "steps": progress.steps,
        "never_tried": [f"{op} on {state}" for op, state in coverage.never_tried(progress.operations)],
        "tried": {
            f"{combination.op} on {combination.state} with {combination.option}": count
            for combination, count in sorted(coverage.compared.items())
        },
    }


class CampaignView(CampaignListener):
    """The output of a campaign: a live panel on a terminal, plain lines everywhere else.

    `save` is called with each finding. `live` forces or forbids the panel; by default it is used on a terminal outside
    CI.
    """

    def __init__(self, console: Console, save: Callable[[FuzzFinding], object], *, live: bool | None = None) -> None:
        self._console, self._save = console, save
        self._findings: list[FuzzFinding] = []
        self._last_shown = 0.0
        # CI logs would show every redraw as a line of its own.
        redraws = console.is_terminal and not console.is_dumb_terminal and not os.environ.get("CI")
        self._live = (
            Live(console=console, auto_refresh=False, transient=True) if (redraws if live is None else live) else None
        )

    def start(self) -> None:
        """Start the output."""
        if self._live is not None:
            self._live.start()

    def stop(self) -> None:
        """Remove the panel; may be called twice."""
        if self._live is not None:
            self._live.stop()

    def before_step(self, campaign: Campaign) -> None:
        """Show the progress periodically."""
        now = time.monotonic()
        # Limited, because a step takes milliseconds and drawing would slow the campaign down.
        if now - self._last_shown < (REFRESH_S if self._live is not None else HEARTBEAT_S):
            return
        self._last_shown = now
        if self._live is not None:
            self._live.update(self._panel(campaign), refresh=True)
        else:
            self._console.print(terminal_text(_progress_line(campaign)), soft_wrap=True)

    def found(self, finding: FuzzFinding) -> None:
        """Show a finding as soon as it is shrunk."""
        self._findings.append(finding)
        self._save(finding)
        self._console.print(finding_line(finding), soft_wrap=True)

    def _panel(self, campaign: Campaign) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for finding in self._findings[-MOST_FINDINGS_SHOWN:]:
            cells = f"{finding.calls} calls", finding.differences[0].severity, str(finding.group)
            table.add_row(*map(terminal_text, cells))
        return Group(terminal_text(_progress_line(campaign), style="bold"), table)


def finding_line(finding: FuzzFinding) -> Text:
    """A finding in one line."""
    more = f" (and {len(finding.together)} more with it)" if finding.together else ""
    mark = ("✗ ", "bold red") if finding.reproduced else ("? not seen again ", "yellow")
    return terminal_parts(mark, f"{finding.group}{more}", f"  {finding.calls} calls, after {finding.seconds:.0f} s")


def _progress_line(campaign: Campaign) -> str:
    progress, elapsed_s = campaign.progress, campaign.progress.elapsed_s
    coverage, legal = progress.coverage, legal_pairs(progress.operations)
    return (
        f"{elapsed_s:.0f}/{campaign.options.budget_s:.0f} s  {progress.phase}  {progress.sequences} sequences  "
        f"{progress.steps / elapsed_s:.0f} steps/s  {len(coverage.compared)} combinations  "
        f"{len(coverage.pairs.intersection(legal))}/{len(legal)} pairs  {len(campaign.findings)} findings"
    )
