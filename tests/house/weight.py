"""`python -m tests.house.weight` fails if a room, or the tree, has more tracked lines than `weight.toml` allows."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
CEILINGS = Path(__file__).with_name("weight.toml")
ELSEWHERE = "elsewhere"


def room_of(path: str, rooms: Iterable[str]) -> str:
    """Return the innermost room that has the file, or `ELSEWHERE`."""
    folders = [str(parent) for parent in PurePosixPath(path).parents]
    return next((folder for folder in folders if folder in set(rooms)), ELSEWHERE)


def tracked_lines(root: Path) -> dict[str, int]:
    """Lines of each file that git tracks, or would track after `git add`, by path."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    paths = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    return {path: (root / path).read_bytes().count(b"\n") for path in paths if path and (root / path).is_file()}


def excesses(lines: Mapping[str, int], ceilings: Mapping[str, int], whole: int) -> list[str]:
    """Return one sentence per room above its ceiling."""
    weights = Counter[str]()
    for path, count in lines.items():
        weights[room_of(path, ceilings)] += count
    weights["the whole tree"] = sum(lines.values())
    allowed = {**ceilings, "the whole tree": whole}
    return [
        f"{room}: {weight} lines, {weight - allowed.get(room, 0)} above its ceiling: remove as many, or state the "
        f"reason for more in {CEILINGS.relative_to(ROOT)}"
        for room, weight in weights.items()
        if weight > allowed.get(room, 0)
    ]


def main() -> int:
    """Print the rooms above their ceilings. Returns the exit code."""
    settings = tomllib.loads(CEILINGS.read_text("utf-8"))
    found = excesses(tracked_lines(ROOT), settings["rooms"], settings["sum"])
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
