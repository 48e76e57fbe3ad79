"""`matrix`: which clients work, and which work together."""

from __future__ import annotations

from pathlib import Path

import click

from conformance.cli.options import Duration, run_options_of
from conformance.environment.clients import find_toolchain
from conformance.environment.prepare import announce
from conformance.matrix.cells import cells_of, chosen_cells, parse_clients
from conformance.matrix.runner import MatrixOptions, MatrixRunner
from conformance.participants.marks import Tier
from conformance.report.matrix import read_matrix, write_matrix

HOLDS, FAILS = 0, 1


@click.command()
@click.option(
    "--clients",
    required=True,
    metavar="CLIENT[=ORACLE],…",
    help="Names such as node@6.7.0, or commands of drivers; ORACLE is the BullMQ that judges the client.",
)
@click.option("--out", required=True, help="Folder of the page, the JSON beside it, and the runs that are kept.")
@click.option(
    "--cell", "chosen", multiple=True, metavar="A[,B]", help="Only this cell: A alone, or A with B; repeatable."
)
@click.option("--anew", is_flag=True, help="Play also the cells that are kept.")
@click.option("--jobs", type=click.IntRange(1), default=None, help="Processes of each cell; default: cores + 1.")
@click.option(
    "--cell-limit",
    type=Duration(positive=True),
    default="30m",
    show_default=True,
    help="A cell that takes longer is ended.",
)
@run_options_of("tier", "redis", "node")
def matrix(  # noqa: PLR0917 - click passes options by name
    clients: str,
    out: str,
    chosen: tuple[str, ...],
    anew: bool,
    jobs: int | None,
    cell_limit: float,
    tier: Tier,
    redis: str,
    node: str,
) -> int:
    """Run each client alone and every two of them on shared queues, and write one page.

    A cell is kept, and played again only where the kit, a client or the oracle is of another version. Exit codes: 0
    nothing fails and every cell was run, 1 something fails, 2 wrong usage, 3 no Node, a client that cannot be started.
    """
    entrants = parse_clients(clients)
    cells = cells_of(entrants)
    wanted = chosen_cells(cells, chosen)
    options = MatrixOptions(
        out=Path(out), tier=tier, redis=redis, node=node, jobs=jobs, cell_limit_s=cell_limit / 1000, anew=anew
    )
    runner = MatrixRunner(options, find_toolchain(node, announce), announce)
    runner.introduce(wanted)
    try:
        runner.run(wanted)
    finally:
        found = read_matrix(options.out, entrants, cells)
        for path in write_matrix(found, options.out):
            click.echo(path)
    played = [each for each in found.cells if each.cell in wanted]
    return HOLDS if all(each.state in ("conformant", "holds", "undecided") for each in played) else FAILS
