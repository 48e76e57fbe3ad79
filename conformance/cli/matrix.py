"""`matrix`: which clients work, and which work together."""

from __future__ import annotations

from collections.abc import Collection

import click

from conformance.cli.options import configured
from conformance.environment.clients import find_toolchain
from conformance.environment.prepare import announce
from conformance.matrix.cells import cells_of, chosen_cells, parse_clients
from conformance.matrix.runner import MatrixConfig, MatrixRunner
from conformance.pages.terminal import terminal_line
from conformance.problems import Undecidable
from conformance.report.matrix import CellState, read_matrix, write_matrix

HOLDS, FAILS = 0, 1


@click.command()
@configured(MatrixConfig)
def matrix(config: MatrixConfig) -> int:
    """Run each client alone and every two of them on shared queues, and write one page.

    A finished cell is kept; it runs again only if the kit, a client or the oracle has another version. Exit codes: 0
    every cell passes, 1 a cell fails or could not run, 2 wrong usage, 3 no Node, a client that cannot be started, 4
    no cell fails, and one is undecided.
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
            click.echo(terminal_line(str(path)))
    return exit_code({cell.state for cell in result.cells if cell.cell in chosen})


def exit_code(states: Collection[CellState]) -> int:
    """Return the exit code for the states of the chosen cells: a matrix holds only if each of its cells does."""
    if not {*states} <= {"conformant", "holds", "undecided"}:
        return FAILS
    return Undecidable.exit_code if "undecided" in states or not states else HOLDS
