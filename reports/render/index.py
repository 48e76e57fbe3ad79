"""The page that lists all runs under a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reports.render.pages import page

INDEX = "index.html"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A line of the index."""

    name: str
    page: str
    kind: str
    outcome: str


def write_index(folder: Path) -> Path:
    """Write the index of all runs in the folders below; answers its path."""
    path = folder / INDEX
    path.write_text(page("index.html", runs=list(runs_under(folder))), "utf-8")
    return path


def runs_under(folder: Path) -> Iterator[Run]:
    """Every load and diff in the folders below, by name."""
    for child in sorted(folder.iterdir()):
        if (child / "load.json").is_file() and (child / "load.html").is_file():
            found = json.loads((child / "load.json").read_text("utf-8"))
            outcome = f"{found['produced']['jobs']:,} jobs added, {found['finished']['jobs']:,} finished"
            yield Run(name=child.name, page=f"{child.name}/load.html", kind="load", outcome=outcome)
        if (child / "diff.json").is_file():
            total = json.loads((child / "diff.json").read_text("utf-8"))["total"]
            outcome = f"{total:,} differences" if total else "no differences"
            yield Run(name=child.name, page=f"{child.name}/diff.html", kind="diff", outcome=outcome)
