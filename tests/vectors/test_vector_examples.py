"""The example in Rust reads the vectors without this kit, passes with them, and fails with a damaged one."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vectors.writing import ARCHIVE, FOLDER

Program = Callable[[str, str], str]
Checked = Callable[[Path], "subprocess.CompletedProcess[str]"]

BUILD_S = 600
"""How long a build may take on a busy machine, with what the registry sends."""

DAMAGES = {
    "packing": ("packing.json", '"hex":"c0"', '"hex":"c1"', "null"),
    "a score": ("scores.json", '"score":6963200000004097', '"score":6963200000004096', "delayed"),
    "a key": ("calls/queue.add.json", "bull:q:marker", "bull:q:marked", "add-no-options/2"),
    "data": ("calls/queue.add.json", '{"text":"{\\"a\\":1}"}', '{"text":"{}"}', "add-no-options/2"),
}
"""File, its text, the replacement, and the text that the failure contains."""


@pytest.fixture
def checked(program: Program, tmp_path: Path) -> Checked:
    """Run the tests of the example against a folder of vectors."""
    command = [program("cargo", "rust"), "test", "--locked", "--quiet", "--no-fail-fast"]
    # Once for all tests of a run: what cargo compiles does not depend on the vectors.
    target = {"CARGO_TARGET_DIR": str(tmp_path.parent / "target")}

    def run(vectors: Path) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **target, "BULLMQ_VECTORS": str(vectors)}
        folder = FOLDER / "examples" / "rust"
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False
        )

    return run


@pytest.mark.slow
def test_the_example_passes_with_the_vectors_and_fails_with_damaged_ones(checked: Checked, tmp_path: Path) -> None:
    whole = checked(_unpacked(tmp_path / "whole"))
    assert whole.returncode == 0, whole.stdout + whole.stderr
    for what, (name, right, wrong, named) in DAMAGES.items():
        broken = checked(_damaged(tmp_path / what, name, right, wrong))
        assert broken.returncode != 0, f"{what}: nothing was noticed"
        assert named in broken.stdout + broken.stderr, f"{what}: {broken.stdout}{broken.stderr}"


def _damaged(folder: Path, name: str, right: str, wrong: str) -> Path:
    """A copy of the vectors with one text in one file replaced, once."""
    text = (_unpacked(folder) / name).read_text("utf-8")
    assert right in text, f"{name} has no {right}"
    (folder / name).write_text(text.replace(right, wrong, 1), "utf-8")
    return folder


def _unpacked(folder: Path) -> Path:
    """A copy of the vectors with all recorded calls."""
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("examples"))
    with tarfile.open(FOLDER / ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder
