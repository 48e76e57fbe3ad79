"""The page of planted defects lists the broken clients of chaos as they are declared."""

from __future__ import annotations

import re
from pathlib import Path

from chaos.crash_points import CrashPoint
from chaos.mutants.catalogue import CHAOS_MUTANTS, ChaosMutant

PAGE = Path(__file__).parents[2] / "docs/reference/planted-defects.md"
ROW = re.compile(r"^\| `(?P<name>[^`]+)` \| (?P<what>.+?) \| (?P<shown>.+?) \| `(?P<kills>[^`]+)` \|", re.MULTILINE)


def declared(mutant: ChaosMutant) -> tuple[str, str, str]:
    """The columns *what is wrong*, *shown by* and *found by* of a mutant."""
    shown = f"crash point {mutant.under}" if isinstance(mutant.under, CrashPoint) else f"`{mutant.under}`"
    what = " ".join(mutant.what.split()).removesuffix(".")
    return what, shown if mutant.under else "the workload alone", mutant.kills


def test_the_page_lists_every_planted_defect() -> None:
    """Name, fault and invariant are those of the declarations, in alphabetical order."""
    listed = [(row["name"], row["what"], row["shown"], row["kills"]) for row in ROW.finditer(PAGE.read_text())]
    mutants = sorted(CHAOS_MUTANTS.values(), key=lambda mutant: mutant.name)
    assert listed == [(mutant.name, *declared(mutant)) for mutant in mutants]


def test_the_page_counts_them() -> None:
    assert f"`chaos/mutants/` has {len(CHAOS_MUTANTS)} broken clients" in PAGE.read_text()
