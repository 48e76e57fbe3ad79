"""A class name means one thing in the whole tree; `python -m tests.house.class_names` exits with 1 where not."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("conformance", "chaos", "reports")
PUBLIC = Path("conformance/reference_impl")
"""The client's own names are BullMQ's: `Job` and `Queue` there may be a row or a model elsewhere."""
BULLMQ_NAMES = frozenset({"FlowJob", "FlowProducer", "Job", "JobScheduler", "Queue", "QueueEvents", "Worker"})


def defined_classes(root: Path) -> dict[str, list[Path]]:
    """The files that define each class, nested ones included, by its name."""
    found: defaultdict[str, list[Path]] = defaultdict(list)
    for path in (path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path.relative_to(root))
    return dict(found)


def defined_twice(classes: dict[str, list[Path]]) -> dict[str, list[Path]]:
    """Those that stand for more than one thing."""
    return {name: paths for name, paths in classes.items() if len(_counted(name, paths)) > 1}


def _counted(name: str, paths: Iterable[Path]) -> list[Path]:
    return [path for path in paths if not (name in BULLMQ_NAMES and path.is_relative_to(PUBLIC))]


def main() -> int:
    """Print each name with its files; the exit code is 1 where there is one."""
    twice = defined_twice(defined_classes(ROOT))
    for name, paths in sorted(twice.items()):
        print(f"class {name} is defined in {', '.join(map(str, paths))}: give each thing a name of its own")
    return 1 if twice else 0


if __name__ == "__main__":
    sys.exit(main())
