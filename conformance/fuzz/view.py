"""What a run shows while it is going: a live panel on a terminal, plain lines everywhere else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from conformance.fuzz.campaign import Campaign, Finding
from conformance.fuzz.coverage import legal_pairs

REFRESH_S = 0.25
HEARTBEAT_S = 10.0
"""How often plain mode says how far the run is."""
SHOWN_FINDINGS = 12


class RunView:
    """A watcher of a run. `save` is called with each finding.

    `live` forces or forbids the panel; by default it is used on a terminal outside CI.
    """

    def __init__(self, console: Console, save: Callable[[Finding], object], *, live: bool | None = None) -> None:
        self._console, self._save = console, save
        self._findings: list[Finding] = []
        self._last = 0.0
        redraws = console.is_terminal and not console.is_dumb_terminal and not os.environ.get("CI")
        self._live = (
            Live(console=console, auto_refresh=False, transient=True) if (redraws if live is None else live) else None
        )

    def start(self) -> None:
        """Begin to show."""
        if self._live is not None:
            self._live.start()

    def stop(self) -> None:
        """Take the panel away; stopping twice is fine."""
        if self._live is not None:
            self._live.stop()

    def stepped(self, campaign: Campaign) -> None:
        """Show how far the run is, now and then."""
        now = time.monotonic()
        if now - self._last < (REFRESH_S if self._live is not None else HEARTBEAT_S):
            return
        self._last = now
        if self._live is not None:
            self._live.update(self._panel(campaign), refresh=True)
        else:
            self._console.print(Text(_summary(campaign)), soft_wrap=True)

    def found(self, finding: Finding) -> None:
        """Show a finding as soon as it is shrunk."""
        self._findings.append(finding)
        self._save(finding)
        self._console.print(finding_line(finding), soft_wrap=True)

    def _panel(self, campaign: Campaign) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for finding in self._findings[-SHOWN_FINDINGS:]:
            table.add_row(
                *(
                    Text(cell)
                    for cell in (f"{finding.calls} calls", finding.differences[0].severity, str(finding.group))
                )
            )
        return Group(Text(_summary(campaign), style="bold"), table)


def finding_line(finding: Finding) -> Text:
    """A finding in one line."""
    more = f" (and {len(finding.together)} more with it)" if finding.together else ""
    mark = ("✗ ", "bold red") if finding.reproduced else ("? not seen again ", "yellow")
    return Text.assemble(mark, f"{finding.group}{more}", f"  {finding.calls} calls, after {finding.seconds:.0f} s")


def _summary(campaign: Campaign) -> str:
    elapsed = max(time.monotonic() - campaign.started, 0.001)
    coverage = campaign.coverage
    return (
        f"{elapsed:.0f}/{campaign.budget_s:.0f} s  {campaign.phase}  {campaign.sequences} sequences  "
        f"{campaign.steps / elapsed:.0f} steps/s  {len(coverage.seen)} combinations  "
        f"{len(coverage.pairs & set(legal_pairs(campaign.operations)))}/{len(legal_pairs(campaign.operations))} pairs  "
        f"{len(campaign.findings)} findings"
    )
