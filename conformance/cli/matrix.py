"""`matrix`: which clients work, and which work together."""

from __future__ import annotations

import click

from conformance.cli.options import configured
from conformance.environment.clients import find_toolchain
from conformance.environment.prepare import announce
from conformance.matrix.cells import cells_of, chosen_cells, parse_clients
from conformance.matrix.runner import MatrixConfig, MatrixRunner
from conformance.report.matrix import read_matrix, write_matrix

HOLDS, FAILS = 0, 1


@click.command()
@configured(MatrixConfig)
def matrix(config: MatrixConfig) -> int:
    """Run each client alone and every two of them on shared queues, and write one page.

    A finished cell is kept; it runs again only if the kit, a client or the oracle has another version. Exit codes: 0
    nothing fails and every cell was run, 1 something fails, 2 wrong usage, 3 no Node, a client that cannot be started.
    """
    entrants = parse_clients(config.clients)
    cells = cells_of(entrants)
    chosen = chosen_cells(cells, config.cell)
    runner = MatrixRunner(config, find_toolchain(config.node, announce), announce)
    runner.introduce(chosen)
    try:
        runner.run(chosen)
    finally:
        # Also after an interruption: the page shows the cells that are finished.
        result = read_matrix(config.out, entrants, cells)
        for path in write_matrix(result, config.out):
            click.echo(path)
    states = [cell.state for cell in result.cells if cell.cell in chosen]
    return HOLDS if all(state in ("conformant", "holds", "undecided") for state in states) else FAILS
