"""`report`: render a finished run in any format."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click
from rich.console import Console

from conformance.pages.terminal import terminal_line
from conformance.problems import UsageProblem
from conformance.report.output import FORMATS, find_format, load_summary, write_reports
from conformance.report.run_file import find_run
from conformance.report.terminal import print_summary
from reports.options import require_spark

REPETITIONS_HELP = (
    "Repetitions of one load have the same producer and workers, or the same day; `run`: there are no repetitions."
)


RENDER = "render"


class ReportGroup(click.Group):
    """`report RUN` is short for `report render RUN`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `render` in front, unless the first word is a subcommand."""
        return super().parse_args(ctx, args if args[:1] and args[0] in self.commands else [RENDER, *args])


@click.group("report", cls=ReportGroup)
def report() -> None:
    """Render a run again, or compare loads with each other (`report compare`)."""


@report.command(RENDER)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "formats",
    "--format",
    "-f",
    multiple=True,
    metavar="NAME",
    help=f"{', '.join(FORMATS)}, or all; may be repeated or comma-separated.  [default: terminal, or all with --out]",
)
@click.option("out", "--out", "-o", type=click.Path(path_type=Path), help="Folder to write the reports to.")
@click.option(
    "--also",
    multiple=True,
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Folder of another run (on a cluster) or of `bench`, whose results the specification's list adds; repeatable.",
)
def render(run: Path, formats: tuple[str, ...], out: Path | None, also: tuple[Path, ...]) -> None:
    """Render RUN: a run.jsonl, or its folder. `report compare` compares loads.

    Without --out one report is printed. The exit code shows whether it could be rendered, not whether the client is
    conformant.
    """
    run_file = find_run(run)
    names = _names(formats) or (["terminal"] if out is None else list(FORMATS))
    if out is None:
        _print(run_file, names, also)
        return
    for path in write_reports(run_file, out, names, also=also):
        click.echo(terminal_line(str(path)))


@report.command("compare")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--by", type=click.Choice(["client", "day", "run"]), default="client", show_default=True, help=REPETITIONS_HELP
)
@click.option(
    "--tolerance", type=click.FloatRange(0), default=10.0, show_default=True, help="Change that counts, in %."
)
@click.option("--out", "-o", type=click.Path(path_type=Path), help="Folder for compare.html, compare.json, junit.xml.")
def compare(runs: tuple[Path, ...], by: Literal["client", "day", "run"], tolerance: float, out: Path | None) -> int:
    """Compare loads (the folders that `load --out` has filled) with the first of RUNS and its repetitions.

    Exit code 1: something is worse; 4: something differs much, and there are too few repetitions to decide.
    """
    require_spark()
    from reports.verbs.load_comparison import compare_loads  # noqa: PLC0415 - only this verb needs the extra

    return compare_loads(runs, by, tolerance / 100, out)


def _names(formats: tuple[str, ...]) -> list[str]:
    """Read `-f html -f junit,json` as three names; each once, in the order given."""
    names = [name.strip() for given in formats for name in given.split(",") if name.strip()]
    return list(dict.fromkeys(FORMATS if "all" in names else [find_format(name).name for name in names]))


def _print(run_file: Path, names: list[str], also: tuple[Path, ...]) -> None:
    if len(names) > 1:
        raise UsageProblem(f"--format {','.join(names)}: only one report can be printed", hint="add --out FOLDER")
    summary = load_summary(run_file, also=also)
    if names == ["terminal"]:
        print_summary(summary, Console())
        return
    click.echo(FORMATS[names[0]].render(summary), nl=False)
