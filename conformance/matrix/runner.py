"""Runs a matrix: every cell is a separate `run` in its own process, and its result is stored."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from conformance.environment.clients import Launch, Toolchain, oracle_version
from conformance.environment.drivers import introduced
from conformance.gate.options import AnyRedis, ChosenTier, NodeProgram
from conformance.gate.records import without_password
from conformance.gate.separate_run import kit_hash, start_run
from conformance.matrix.cell_store import StoredCell, cell_folder, load_cell, store_cell
from conformance.matrix.cells import Cell, Entrant
from conformance.options import DurationMs, Option

Announce = Callable[[str], None]


class MatrixConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All options of `matrix`. `jobs`: None for the default of `run`."""

    clients: Annotated[
        str,
        Option(
            "Names such as node@6.7.0, or commands of drivers; ORACLE is the BullMQ to compare the client with.",
            metavar="CLIENT[=ORACLE],…",
        ),
    ]
    out: Annotated[Path, Option("Folder for the page, the JSON next to it, and the runs, which are kept.")]
    cell: Annotated[Sequence[str], Option("Only this cell: A alone, or A with B; repeatable.", metavar="A[,B]")] = ()
    rerun: Annotated[bool, Option("Run finished cells again.")] = False
    jobs: Annotated[
        int | None, Option("Processes of each cell; default: three for each core, at most 8.", at_least=1)
    ] = None
    cell_limit: Annotated[DurationMs, Option("A cell that takes longer is stopped.", positive=True)] = DurationMs(
        1_800_000
    )
    tier: ChosenTier = "core"
    redis: AnyRedis = ""
    node: NodeProgram = ""

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a cell; a stored result is only valid for the same settings."""
        return {"tier": self.tier, "redis": without_password(self.redis), "node": self.node}


@dataclass(frozen=True)
class MatrixRunner:
    """Runs cells on one machine, one after the other; each starts its own Redis."""

    config: MatrixConfig
    toolchain: Toolchain
    announce: Announce
    _known: dict[Entrant, str] = field(default_factory=dict)
    _launches: dict[Entrant, Launch] = field(default_factory=dict)

    def introduce(self, cells: Sequence[Cell]) -> None:
        """Start each client once and ask for its version.

        Raises a Problem if a client or an oracle does not exist or cannot be started.
        """
        for cell in cells:
            self._versions(cell)

    def run(self, cells: Sequence[Cell]) -> None:
        """Run the cells without a current stored result, in this order. Raises what `introduce` raises."""
        # All versions first: a client that cannot start is reported before hours of cells.
        wanted = {cell: self._versions(cell) for cell in cells}
        for number, cell in enumerate(cells, start=1):
            before = None if self.config.rerun else load_cell(self.config.out, cell)
            if before is not None and self._is_current(before, wanted[cell]):
                self.announce(f"cell {number} of {len(cells)}: {cell.name}: kept")
                continue
            result = self._run_cell(cell, wanted[cell])
            # Stored after each cell, so that an interrupted matrix continues there.
            store_cell(self.config.out, cell, result)
            how = result.problem or "done"
            self.announce(f"cell {number} of {len(cells)}: {cell.name}: {how}, {result.took_ms / 1000:.0f} s")

    def _is_current(self, before: StoredCell, versions: Mapping[str, str]) -> bool:
        # The kit's hash is one of the versions, so a changed kit runs every cell again.
        return before.is_whole and (before.versions, before.settings) == (versions, self.config.settings)

    def _versions(self, cell: Cell) -> dict[str, str]:
        partner = {"partner": self._introduced(cell.partner)} if cell.partner else {}
        return {
            "client": self._introduced(cell.client),
            **partner,
            "oracle": self._oracle(cell.client) or self.toolchain.package.version,
            "kit": kit_hash(),
        }

    def _introduced(self, entrant: Entrant) -> str:
        if entrant not in self._known:
            self._known[entrant] = introduced(self._launch(entrant))
        return self._known[entrant]

    def _launch(self, entrant: Entrant) -> Launch:
        if entrant not in self._launches:
            self._launches[entrant] = self.toolchain.partner(entrant.client)
        return self._launches[entrant]

    def _oracle(self, entrant: Entrant) -> str:
        return oracle_version(self.toolchain.node, entrant.oracle) if entrant.oracle else ""

    def _run_cell(self, cell: Cell, versions: dict[str, str]) -> StoredCell:
        folder = cell_folder(self.config.out, cell)
        # A cell that is run again must not mix with the files of its last run.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        started = time.monotonic()
        words = [*self._settings(cell), *self._launch(cell.client).words]
        how = start_run(words, folder, within_s=self.config.cell_limit / 1000)
        return StoredCell(
            client=cell.client.client,
            partner=cell.partner.client if cell.partner else None,
            versions=versions,
            settings=self.config.settings,
            ended=how.ended,
            problem=how.problem,
            ended_ms=time.time_ns() // 1_000_000,
            took_ms=int((time.monotonic() - started) * 1000),
        )

    def _settings(self, cell: Cell) -> Iterator[str]:
        # Clients' lists of known failures are ignored, so that all are judged alike.
        yield from ("--no-known", "--tier", self.config.tier, "--format", "html")
        given = {"--oracle": self._oracle(cell.client), "--redis": self.config.redis, "--node": self.config.node}
        given |= {"--jobs": str(self.config.jobs or "")}
        if cell.partner is not None:
            yield "--handovers"
            given |= {"--partner": cell.partner.client}
        for flag, value in given.items():
            yield from (flag, value) if value else ()
