"""`bullmq-conformance report`: renders a run again, in any format, without running anything."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from conformance.problems import UsageProblem
from conformance.report.output import FORMATS, find_format, load_summary, write_reports
from conformance.report.run_file import find_run
from conformance.report.terminal import print_summary


@click.command("report")
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
def report(run: Path, formats: tuple[str, ...], out: Path | None) -> None:
    """Render RUN again: a run.jsonl, or the folder that holds it.

    Without --out one report is printed. The exit code says whether it could be rendered, not whether the client is
    conformant.
    """
    run_file = find_run(run)
    names = _names(formats) or (["terminal"] if out is None else list(FORMATS))
    if out is None:
        _print(run_file, names)
        return
    for path in write_reports(run_file, out, names):
        click.echo(str(path))


def _names(formats: tuple[str, ...]) -> list[str]:
    """Read `-f html -f junit,json` as three names; each once, in the order given."""
    names = [name.strip() for given in formats for name in given.split(",") if name.strip()]
    return list(dict.fromkeys(FORMATS if "all" in names else [find_format(name).name for name in names]))


def _print(run_file: Path, names: list[str]) -> None:
    if len(names) > 1:
        raise UsageProblem(f"--format {','.join(names)}: only one report can be printed", hint="add --out FOLDER")
    summary = load_summary(run_file)
    if names == ["terminal"]:
        print_summary(summary, Console())
        return
    click.echo(FORMATS[names[0]].render(summary), nl=False)
