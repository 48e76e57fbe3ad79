"""Measure which defects of the kit its tests find, and what each test costs.

    python -m tests.mutation record FOLDER [--seed 55] [--size 200] [-- PYTEST ARGUMENT...]
    python -m tests.mutation hunt FOLDER [--jobs 4]

`record` runs the tests once in a copy of the tree, with a marker at the place of each defect. `hunt` plants the defects
one by one and runs the tests that reach each, the cheapest first, until one fails. FOLDER has
`costs.json`, `reach.json` and `found.jsonl` afterwards; an interrupted hunt goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import TypedDict

from tests.mutation import costs, reach
from tests.mutation.planting import ROOT, PlantedDefect, plant_markers, sample

LONGEST_S = 240
BATCH_S = 40.0
"""The tests that reach a defect run in batches that take about this long: a cheap one that finds it ends the hunt."""


class Cost(TypedDict):
    """CPU time with all processes, and wall time, in s."""

    cpu_s: float
    wall_s: float


@contextmanager
def copy_of_the_tree() -> Iterator[Path]:
    """A copy of the tracked and new files, in which tests run with this environment's packages."""
    with tempfile.TemporaryDirectory(prefix="kit-mutation-") as folder:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, check=True,
        ).stdout  # fmt: skip
        names = b"\0".join(name for name in listed.split(b"\0") if name and (ROOT / os.fsdecode(name)).exists())
        packed = subprocess.run(
            ["tar", "c", "--null", "-T", "-"], cwd=ROOT, input=names, capture_output=True, check=True
        )
        subprocess.run(["tar", "x"], cwd=folder, input=packed.stdout, check=True)
        Path(folder, ".venv").symlink_to(Path(sys.prefix))
        yield Path(folder)


def run_tests(tree: Path, arguments: Sequence[str], *, limit: float | None, **variables: str) -> int:
    """Run pytest in a copy of the tree. Returns its exit code, or -1 if it took longer than `limit` seconds."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(tree), **variables}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    try:
        ended = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1
    return ended.returncode


def record(folder: Path, defects: Sequence[PlantedDefect], arguments: Sequence[str]) -> None:
    """Run the tests with markers, and write what each costs and reaches."""
    folder.mkdir(parents=True, exist_ok=True)
    with copy_of_the_tree() as tree, tempfile.TemporaryDirectory() as lines:
        plant_markers(tree, defects)
        words = ["-p", "tests.mutation.costs", *arguments]
        run_tests(tree, words, limit=None, **{costs.FOLDER: lines, reach.FOLDER: lines})
        (folder / "costs.json").write_text(json.dumps(read_costs(Path(lines)), indent=0))
        (folder / "reach.json").write_text(json.dumps(read_reach(Path(lines)), indent=0))


def read_costs(lines: Path) -> dict[str, Cost]:
    rows = [json.loads(line) for file in lines.glob("costs-*") for line in file.read_text("utf-8").splitlines()]
    return {without_group(row["test"]): Cost(cpu_s=row["cpu_s"], wall_s=row["wall_s"]) for row in rows}


def read_reach(lines: Path) -> dict[int, list[str]]:
    """By defect: the tests that reach it. A shared fixture that reaches it counts as all tests of its module."""
    found: dict[int, set[str]] = defaultdict(set)
    for file in lines.glob("reach-*"):
        for line in file.read_text("utf-8").splitlines():
            number, phase, test = line.split("\t", 2)
            found[int(number)].add(test.partition("::")[0] if phase == "setup" else without_group(test))
    return {number: sorted(tests) for number, tests in sorted(found.items())}


def without_group(test: str) -> str:
    """The id without the group that xdist appends to it."""
    name, bracket, rest = test.rpartition("]")
    return name + bracket + rest.partition("@")[0]


def batches(reached: Sequence[str], cost: dict[str, Cost]) -> Iterator[list[str]]:
    """The tests in the order of their wall time, in parts of about `BATCH_S`."""
    modules = {name for name in reached if "::" not in name}
    tests = {test for test in cost if test in reached or test.partition("::")[0] in modules}
    batch: list[str] = []
    spent_s = 0.0
    for test in sorted(tests, key=lambda name: (cost[name]["wall_s"], name)):
        if batch and spent_s + cost[test]["wall_s"] > BATCH_S:
            yield batch
            batch, spent_s = [], 0.0
        batch.append(test)
        spent_s += cost[test]["wall_s"]
    if batch:
        yield batch


def found_by(defect: PlantedDefect, tree: Path, folder: Path, reached: Sequence[str], cost: dict[str, Cost]) -> str:
    """Plant a defect and return the test that found it, or why there is none."""
    defect.plant(tree)
    try:
        for number, batch in enumerate(batches(reached, cost)):
            chosen, report = folder / f"tests-{defect.number}", folder / f"failed-{defect.number}"
            chosen.write_text("\n".join(batch) + "\n")
            report.unlink(missing_ok=True)
            words = ["-x", "-n", "0", "-p", "tests.mutation.costs", f"@{chosen}"]
            code = run_tests(tree, words, limit=LONGEST_S, **{costs.FAILED: str(report)})
            if code:
                return report.read_text("utf-8") if report.exists() else f"exit {code} in batch {number}"
        return ""
    finally:
        defect.remove(tree)


def hunt(folder: Path, defects: Sequence[PlantedDefect], jobs: int) -> None:
    """Hunt each defect that has no line in `found.jsonl`, and print the share that was found."""
    cost = json.loads((folder / "costs.json").read_text("utf-8"))
    reached = {int(number): tests for number, tests in json.loads((folder / "reach.json").read_text("utf-8")).items()}
    results = folder / "found.jsonl"
    done = (
        {json.loads(line)["number"] for line in results.read_text("utf-8").splitlines()} if results.exists() else set()
    )
    with ExitStack() as stack, ThreadPoolExecutor(jobs) as pool:
        trees: SimpleQueue[Path] = SimpleQueue()
        for _ in range(jobs):
            trees.put(stack.enter_context(copy_of_the_tree()))

        def one(defect: PlantedDefect) -> None:
            tree = trees.get()
            try:
                test = found_by(defect, tree, folder, reached.get(defect.number, []), cost)
            finally:
                trees.put(tree)
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"number": defect.number, "found_by": test, "defect": str(defect)}) + "\n")
            print(f"{'found' if test else 'SURVIVES'} {defect} {test}", flush=True)

        list(pool.map(one, [defect for defect in defects if defect.number not in done]))
    rows = [json.loads(line) for line in results.read_text("utf-8").splitlines()]
    print(f"{sum(bool(row['found_by']) for row in rows)} of {len(rows)} found")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["record", "hunt"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=55)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=4)
    own, _, pytest_words = " ".join(sys.argv[1:]).partition(" -- ")
    options = parser.parse_args(own.split())
    defects = sample(options.size, options.seed)
    if options.command == "record":
        record(options.folder.resolve(), defects, pytest_words.split())
    else:
        hunt(options.folder.resolve(), defects, options.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
