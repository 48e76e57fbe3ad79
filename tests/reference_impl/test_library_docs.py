"""The pages about the reference client: their code runs, and what they refer to exists."""

from __future__ import annotations

import ast
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.ledger.loader import load_ledger
from conformance.reference_impl.policy import DEFAULT, SPECIFIED
from conformance.servers import RedisInstance

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs/reference/reference-client.md").read_text("utf-8")
OBSERVABILITY = (ROOT / "docs/reference/reference-client-observability.md").read_text("utf-8")
CLAIMS = (ROOT / "docs/reference/reference-client-claims.md").read_text("utf-8")
CLAIM_IDS = (Path(__file__).parent / "library_claims.txt").read_text("utf-8").split()
BLOCKS = re.findall(r"```python\n(.*?)```", REFERENCE + OBSERVABILITY, re.DOTALL)

ROW = re.compile(r"^\| ([A-Z]+-[\d.]+(?:, [A-Z]+-[\d.]+)*) \|[^|]+\|([^|]+)\|$", re.MULTILINE)


def test_the_quick_start_runs(server: RedisInstance, prefix: str) -> None:
    assert BLOCKS[0].count("redis://127.0.0.1:6379") == BLOCKS[0].count('"bull"') == 1
    program = BLOCKS[0].replace("127.0.0.1:6379", server.nodes[0]).replace('"bull"', repr(prefix))
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "6\n", "")


@pytest.mark.parametrize("block", BLOCKS[1:], ids=range(1, len(BLOCKS)))
def test_the_other_examples_run(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prometheus_client.start_http_server", lambda _port: None)
    logger = logging.getLogger("bullmq")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "level", logger.level)
    exec(compile(ast.parse(block), "docs/reference/reference-client.md", "exec"), {})  # noqa: S102 - our own page


def test_every_policy_is_explained() -> None:
    fields = {name for policy in (DEFAULT, SPECIFIED) for name in vars(policy)}
    explained = set(re.findall(r"^\| `(\w+)[.\w]*` \|", REFERENCE, re.MULTILINE))
    assert fields <= explained


def test_every_claim_is_once_in_the_table() -> None:
    claims = [claim for row in ROW.findall(CLAIMS) for claim in row[0].split(", ")]
    assert len(CLAIM_IDS) == 184
    assert sorted(claims) == sorted(CLAIM_IDS)


@pytest.mark.parametrize("damage", ["missing", "twice"])
def test_a_missing_or_repeated_claim_would_be_noticed(damage: str) -> None:
    page = CLAIMS.replace("| FR-2.4, DEP-4 |", "| FR-2.4 |" if damage == "missing" else "| FR-2.4, DEP-4, DEP-4 |")
    claims = [claim for row in ROW.findall(page) for claim in row[0].split(", ")]
    assert sorted(claims) != sorted(CLAIM_IDS)


@pytest.mark.slow
def test_references_of_the_table_exist() -> None:
    references = {name for row in ROW.findall(CLAIMS) for name in re.findall(r"`([^`]+)`", row[1])}
    unknown = {name for name in references if not _exists(name)}
    assert unknown == set()
    assert not _exists("test_nobody_wrote")
    assert not _exists("nowhere.py")
    assert not _exists("lock.nothing")


def _exists(reference: str) -> bool:
    """A test, a file, a requirement, a metric, or a name in the client's source."""
    if re.fullmatch(r"test_\w+", reference):
        return f"def {reference}(" in _sources("tests")
    if re.fullmatch(r"test_\w+\.py", reference):
        return (ROOT / "tests/reference_impl" / reference).exists()
    if "/" in reference or reference.endswith((".py", ".md", ".toml")):
        return any((folder / reference).exists() for folder in (ROOT, ROOT / "conformance/reference_impl"))
    if re.fullmatch(r"[a-z_-]+(\.[a-z_-]+)+", reference):
        return reference in load_ledger() or (ROOT / reference.replace(".", "/")).exists()
    return _named(reference)


def _named(reference: str) -> bool:
    words = re.findall(r"\w+", reference.removeprefix("make "))
    text = _sources("conformance/reference_impl") + (ROOT / "Makefile").read_text("utf-8")
    text += (ROOT / "pyproject.toml").read_text("utf-8")
    return all(re.search(rf"\b{word}\b", text) for word in words)


def _sources(folder: str) -> str:
    return "\n".join(path.read_text("utf-8") for path in sorted((ROOT / folder).rglob("*.py")))
