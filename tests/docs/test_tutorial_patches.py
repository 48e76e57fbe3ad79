"""The patches of the tutorials apply to the skeletons that `driver new` writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from conformance.driver.authoring import write_skeleton
from tests.docs.blocks import blocks_of

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorial"


@pytest.mark.parametrize(("language", "page"), [("node", "first-gate.md"), ("rust", "first-gate-rust.md")])
def test_the_patch_of_a_tutorial_applies_to_the_skeleton(language: str, page: str, tmp_path: Path) -> None:
    write_skeleton(language, tmp_path / "conformance")
    [block] = [block for block in blocks_of(TUTORIALS / page) if "<<'PATCH'" in block.text]
    patch = block.text.partition("<<'PATCH'\n")[2].partition("PATCH\n")[0]
    # Without a repository around it, git applies the patch to the files of the current folder.
    environment = {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent), "PATH": "/usr/bin:/bin"}
    run = ["git", "apply", "--check"]
    done = subprocess.run(run, cwd=tmp_path, env=environment, input=patch, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
