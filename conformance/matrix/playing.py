"""Playing a matrix: every cell is a `run` of its own, in a process of its own, and is kept when it is over."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from conformance.environment.clients import Launch, Toolchain, oracle_version
from conformance.environment.drivers import introduced
from conformance.gate.records import RunFooter, decode
from conformance.matrix.cells import Cell, Entrant
from conformance.matrix.kept import RUN_FILE, KeptCell, cell_folder, keep, kept, kit_hash
from conformance.participants.marks import Tier

LOG_FILE = "log.txt"
PATIENCE_SECONDS = 30
"""How long a cell that is ended may take to clean up after itself."""

Announce = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class MatrixOptions:
    """What is played. `redis` and `node` as users write them; `jobs`: processes of each cell, None for the usual.

    `cell_limit_s`: after so many seconds a cell is ended, and is no run. `anew`: play also what is kept.
    """

    out: Path
    tier: Tier = "core"
    redis: str = ""
    node: str = ""
    jobs: int | None = None
    cell_limit_s: float = 1800
    anew: bool = False

    @property
    def settings(self) -> dict[str, str]:
        """What a kept cell must have been played with."""
        return {"tier": self.tier, "redis": self.redis, "node": self.node}


@dataclass(frozen=True)
class MatrixPlayer:
    """Plays cells on one machine, one after the other; each starts its own Redis."""

    options: MatrixOptions
    toolchain: Toolchain
    announce: Announce
    _known: dict[Entrant, str] = field(default_factory=dict)
    _launches: dict[Entrant, Launch] = field(default_factory=dict)

    def meet(self, cells: Sequence[Cell]) -> None:
        """Start each client once and ask for its version.

        Raises a Problem for a client that does not exist or cannot be started, and for an oracle that does not.
        """
        for cell in cells:
            self._versions(cell)

    def play(self, cells: Sequence[Cell]) -> None:
        """Play the cells that are not kept as they are now, in this order. Raises what `meet` raises."""
        wanted = {cell: self._versions(cell) for cell in cells}
        for number, cell in enumerate(cells, start=1):
            before = None if self.options.anew else kept(self.options.out, cell)
            if before is not None and self._is_current(before, wanted[cell]):
                self.announce(f"cell {number} of {len(cells)}: {cell.name}: kept")
                continue
            played = self._played(cell, wanted[cell])
            keep(self.options.out, cell, played)
            how = played.problem or "played"
            self.announce(f"cell {number} of {len(cells)}: {cell.name}: {how}, {played.took_ms / 1000:.0f} s")

    def _is_current(self, before: KeptCell, versions: Mapping[str, str]) -> bool:
        return before.is_whole and (before.versions, before.settings) == (versions, self.options.settings)

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

    def _played(self, cell: Cell, versions: dict[str, str]) -> KeptCell:
        folder = cell_folder(self.options.out, cell)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        began = time.monotonic()
        code = _ended(self._words(cell, folder), folder / LOG_FILE, within_s=self.options.cell_limit_s)
        ended, problem = _how(folder, code)
        return KeptCell(
            client=cell.client.client,
            partner=cell.partner.client if cell.partner else None,
            versions=versions,
            settings=self.options.settings,
            ended=ended,
            problem=problem,
            ended_ms=time.time_ns() // 1_000_000,
            took_ms=int((time.monotonic() - began) * 1000),
        )

    def _words(self, cell: Cell, folder: Path) -> list[str]:
        return [
            sys.executable,
            "-m",
            "conformance",
            "run",
            *self._settings(cell, folder),
            *self._launch(cell.client).words,
        ]

    def _settings(self, cell: Cell, folder: Path) -> Iterator[str]:
        # What a client's own list excuses is one client's affair: in a matrix all are judged alike.
        yield from ("--no-known", "--tier", self.options.tier, "--out", str(folder), "--format", "html")
        given = {"--oracle": self._oracle(cell.client), "--redis": self.options.redis, "--node": self.options.node}
        given |= {"--jobs": str(self.options.jobs or "")}
        if cell.partner is not None:
            yield "--handovers"
            given |= {"--partner": cell.partner.client}
        for flag, value in given.items():
            yield from (flag, value) if value else ()


def _ended(words: Sequence[str], log: Path, *, within_s: float) -> int | None:
    """The exit code of a program, None where it had to be ended; its output goes to a file."""
    with log.open("wb") as output:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return child.wait(within_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a program that still runs, and whatever it has started: politely first, so that it cleans up."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is not None:
            return
        os.killpg(child.pid, number)
        try:
            child.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def _how(folder: Path, code: int | None) -> tuple[Literal["run", "broken", "time-out"], str]:
    """How a cell ended, and in one line why it is no run."""
    if code is None:
        return "time-out", "it did not come to its end in time"
    if _has_footer(folder / RUN_FILE):
        return "run", ""
    lines = [line for line in (folder / LOG_FILE).read_text("utf-8", "replace").splitlines() if line.strip()]
    return "broken", lines[-1].strip() if lines else f"it ended with exit code {code}"


def _has_footer(path: Path) -> bool:
    try:
        return isinstance(decode(path.read_bytes().splitlines()[-1]), RunFooter)
    except (OSError, IndexError, msgspec.DecodeError):
        return False
