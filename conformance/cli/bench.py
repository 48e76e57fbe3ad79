"""`bench`: how fast a client is beside the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from conformance.cli.options import run_options_of
from conformance.environment.prepare import EnvironmentOptions, announce, client_under_test, prepare, settled
from conformance.out_folder import prove_writable
from conformance.report.speed import SPEED_FORMATS, print_speed, speed_formats, write_speed
from conformance.speed.gates import parse_gates
from conformance.speed.measures import MEASURE_NAMES, MEASURES
from conformance.speed.session import SpeedOptions, measure_speed

_MEASURE = "Only this measure; repeatable. There are " + ", ".join(MEASURE_NAMES) + "."

_FORMAT = "Report to write to --out: " + ", ".join(SPEED_FORMATS) + "; repeatable, default: all."


@click.command()
@run_options_of("client", "packages", "oracle", "redis", "node", "seed")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Rounds that are counted.")
@click.option("--jobs", type=click.IntRange(20), default=1000, show_default=True, help="Jobs of one measurement.")
@click.option("--measure", "chosen", multiple=True, type=click.Choice(MEASURE_NAMES), help=_MEASURE, metavar="NAME")
@click.option(
    "--at-least", multiple=True, metavar="MEASURE=RATIO", help="What must hold, as in worker=0.5; repeatable."
)
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder for the reports.")
@click.option("--format", "formats", multiple=True, metavar="NAME", help=_FORMAT)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def bench(  # noqa: PLR0917 - click passes options by name
    client: str,
    rounds: int,
    jobs: int,
    chosen: tuple[str, ...],
    at_least: tuple[str, ...],
    out: Path | None,
    formats: tuple[str, ...],
    command: tuple[str, ...],
    **options: Any,
) -> int:
    """Measure a client beside the oracle, in one session: a named one, or the driver started by COMMAND (after `--`).

    A ratio of 0.5 is half as fast, or twice the memory. Exit codes: 0 every --at-least holds, 1 one fails, 4 one cannot
    be decided.
    """
    bounds = parse_gates(at_least, [name for name in MEASURE_NAMES if not chosen or name in chosen])
    written = speed_formats(list(formats))
    name = client_under_test(client, command)
    wanted = msgspec.convert({"client": name, "command": command, **options}, EnvironmentOptions)
    if out is not None:
        prove_writable(out)
    measures = [measure for measure in MEASURES if not chosen or measure.name in chosen]
    with prepare(settled(wanted), announce, prove=True) as environment:
        report = measure_speed(
            environment, SpeedOptions(measures=measures, rounds=rounds, jobs=jobs, at_least=bounds), announce
        )
    print_speed(report, Console())
    for path in write_speed(report, out, written) if out is not None else ():
        announce(str(path))
    return report.exit_code
