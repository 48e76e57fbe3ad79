"""The cells of a matrix: each client alone, and every ordered pair of clients on shared queues. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance.problems import UsageProblem


@dataclass(frozen=True)
class Entrant:
    """A client of the matrix: its name (`node@6.7.0`) or the command of its driver, and its oracle.

    `oracle`: a version of BullMQ, "" for the pinned one.
    """

    client: str
    oracle: str = ""

    @staticmethod
    def parse(text: str) -> Entrant:
        """`CLIENT`, or `CLIENT=ORACLE`. A version of Node is judged by itself, unless another oracle is named."""
        client, _, oracle = text.strip().partition("=")
        name, _, version = client.partition("@")
        return Entrant(client, oracle or (version if name == "node" else ""))


@dataclass(frozen=True)
class Cell:
    """One run of a matrix: a client alone (`partner` is None), or the hand-overs between it and a partner."""

    client: Entrant
    partner: Entrant | None = None

    @property
    def name(self) -> str:
        """As `--cell` takes it: `A`, or `A,B`."""
        return f"{self.client.client},{self.partner.client}" if self.partner else self.client.client

    @property
    def folder(self) -> str:
        """Name of its folder, which is also its place on the page."""
        return re.sub(r"[^A-Za-z0-9.@_-]+", "-", self.name.replace(",", "--with--")).strip("-")


def parse_clients(text: str) -> tuple[Entrant, ...]:
    """The comma-separated clients. Raises UsageProblem if there is none, or one is named twice."""
    entrants = tuple(Entrant.parse(part) for part in text.split(",") if part.strip())
    if not entrants:
        raise UsageProblem("no clients were named", hint="--clients node@5.62.0,python-official,reference")
    clients = [entrant.client for entrant in entrants]
    twice = sorted({client for client in clients if clients.count(client) > 1})
    if twice:
        raise UsageProblem(f"{twice[0]!r} is named twice in --clients", hint="each client has one row and one column")
    return entrants


def cells_of(entrants: Sequence[Entrant]) -> tuple[Cell, ...]:
    """Every client alone, then every ordered pair: the first is under test, the second is its partner."""
    return (*map(Cell, entrants), *_pairs(entrants))


def _pairs(entrants: Sequence[Entrant]) -> Iterator[Cell]:
    for client in entrants:
        yield from (Cell(client, partner) for partner in entrants if partner != client)


def chosen_cells(cells: Sequence[Cell], names: Sequence[str]) -> tuple[Cell, ...]:
    """The cells of these names, or all by default. Raises UsageProblem for an unknown name."""
    by_name = {cell.name: cell for cell in cells}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise UsageProblem(f"the matrix has no cell {unknown[0]!r}", hint=f"the cells are {'; '.join(by_name)}")
    return tuple(by_name[name] for name in names) if names else tuple(cells)
