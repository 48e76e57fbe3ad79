"""The client in Go of docs/how-to/ci.md: its section is followed word for word, and its unit tests can fail."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.gate.repetition import TOO_BUSY
from tests.conftest import Missing
from tests.docs.blocks import CodeBlock, commands_of

ROOT = Path(__file__).parents[2]
TEST = "tests/docs/test_go_example.py"
PAGE = ROOT / "docs" / "how-to" / "ci.md"
WITHIN_S = 1500

pytestmark = [pytest.mark.long(4), pytest.mark.xdist_group("go-example"), pytest.mark.slow]


@pytest.fixture
def folder(tmp_path: Path, missing: Missing) -> Path:
    """The folder of a reader who has cloned and installed the kit: both are this checkout."""
    if shutil.which("go") is None:
        missing("go", "the client of the page is built with go, which is not on PATH")
    (tmp_path / "kit").symlink_to(ROOT)
    (tmp_path / ".kit").mkdir()
    (tmp_path / ".kit" / "bin").symlink_to(Path(sys.executable).parent)
    return tmp_path


def shell(block: CodeBlock | str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the commands of a block as a CI system does: one script, which ends with its first failure."""
    text = block if isinstance(block, str) else block.text
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BULLMQ_", "PYTEST_"))}
    return subprocess.run(
        ["sh", "-eu", "-c", text],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


def test_the_client_of_the_page_passes_its_tests_and_its_gate(folder: Path) -> None:
    preparing, gating = commands_of(PAGE, TEST)
    prepared = shell(preparing, folder)
    assert prepared.returncode == 0, prepared.stdout + prepared.stderr
    gated = shell(gating, folder)
    printed = gated.stdout + gated.stderr
    open_records = list(not_passed(folder / "report" / "run.jsonl"))
    assert [record["id"] for record in open_records if not record["reason"].startswith(TOO_BUSY)] == [], printed
    # On a machine that was too busy for a row the gate is honest, and says 4.
    assert gated.returncode == (4 if open_records else 0), printed
    assert ("\nCONFORMANT as " in printed) == (not open_records), printed


def not_passed(run: Path) -> Iterator[dict[str, str]]:
    """The scenarios of a run that say something against the client, or leave a question open."""
    for line in run.read_bytes().splitlines():
        record = json.loads(line)
        if record["type"] == "scenario" and record["verdict"] not in ("pass", "warn", "unsupported"):
            yield record


def test_a_wrong_call_fails_the_unit_tests(folder: Path) -> None:
    preparing, _ = commands_of(PAGE, TEST)
    copying, unpacking, generating, testing = preparing.text.splitlines()
    shell(f"{copying}\n{unpacking}\n{generating}", folder)
    source = folder / "queue.go"
    right = source.read_text("utf-8")
    assert "%v:dependencies" in right
    source.write_text(right.replace("%v:dependencies", "%v:children"), "utf-8")
    tested = shell(testing, folder)
    assert tested.returncode == 1, tested.stdout + tested.stderr
    assert "argument 1 is not" in tested.stdout
