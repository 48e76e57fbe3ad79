"""`bench`: how fast a client is, compared with the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import click
import msgspec
from rich.console import Console

from conformance.cli.options import configured
from conformance.environment.out_folder import prove_writable
from conformance.environment.prepare import EnvironmentOptions, announce, client_under_test, prepare, settled
from conformance.gate.options import AnyRedis, ClientName, NodeProgram, OracleVersion, Packages
from conformance.ledger.loader import load_ledger
from conformance.options import Option
from conformance.report.speed import SPEED_FORMATS, print_speed, speed_formats, write_speed
from conformance.speed.gates import parse_gates, specified_bounds
from conformance.speed.measures import MEASURE_NAMES, MEASURES
from conformance.speed.session import SpeedOptions, measure_speed


class BenchConfig(EnvironmentOptions, frozen=True, kw_only=True):
    """All options of `bench`."""

    client: ClientName = ""
    packages: Packages = ()
    oracle: OracleVersion = ""
    redis: AnyRedis = ""
    node: NodeProgram = ""
    seed: Annotated[int, Option("Seed of everything random.")] = 0
    rounds: Annotated[int, Option("Rounds that count.", at_least=1)] = 5
    jobs: Annotated[int, Option("Jobs of one measurement.", at_least=20)] = 1000
    measure: Annotated[
        Sequence[str],
        Option(
            f"Only this measure; repeatable: {', '.join(MEASURE_NAMES)}.", metavar="NAME", choices=tuple(MEASURE_NAMES)
        ),
    ] = ()
    at_least: Annotated[
        Sequence[str],
        Option("Required ratio or value, as in worker=0.5 or worker=1000/s; repeatable.", metavar="MEASURE=BOUND"),
    ] = ()
    at_most: Annotated[
        Sequence[str], Option("Largest value, as in pickup=10ms; repeatable.", metavar="MEASURE=LIMIT")
    ] = ()
    specification: Annotated[
        bool, Option("Judge by the limits of the written specification; without --measure, measure only those.")
    ] = False
    out: Annotated[Path | None, Option("Folder for the reports.")] = None
    format: Annotated[
        Sequence[str],
        Option(f"Report to write to --out: {', '.join(SPEED_FORMATS)}; repeatable, default: all.", metavar="NAME"),
    ] = ()


@click.command()
@configured(BenchConfig)
def bench(config: BenchConfig) -> int:
    """Measure a client next to the oracle, in one session: a named one, or the driver started by COMMAND (after `--`).

    A ratio of 0.5 is half as fast, or twice the memory. Exit codes: 0 every bound holds, 1 one fails, 4 one cannot be
    decided.
    """
    units = {measure.name: measure.unit for measure in MEASURES if measure.name in (config.measure or MEASURE_NAMES)}
    bounds = parse_gates(config.at_least, config.at_most, units)
    measures = [measure for measure in MEASURES if measure.name in units]
    if config.specification:
        bounds += specified_bounds((row.bench for row in load_ledger().values()), units)
        named = config.measure or {bound.measure for bound in bounds}
        measures = [measure for measure in measures if measure.name in named]
    written = speed_formats(list(config.format))
    config = msgspec.structs.replace(config, client=client_under_test(config.client, config.command))
    if config.out is not None:
        prove_writable(config.out)
    options = SpeedOptions(measures=measures, rounds=config.rounds, jobs=config.jobs, bounds=bounds)
    with prepare(settled(config), announce, prove=True) as environment:
        report = measure_speed(environment, options, announce)
    print_speed(report, Console())
    for path in write_speed(report, config.out, written) if config.out is not None else ():
        announce(str(path))
    return report.exit_code
