"""Every file, module and name that ARCHITECTURE and CONTRIBUTING mention exists."""

from __future__ import annotations

import importlib
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/how-to/add-a-client.md",
    "docs/how-to/support-a-bullmq-version.md",
    "docs/how-to/extend-the-fuzzer.md",
    "docs/explanation/model.md",
)
PACKAGES = ("conformance", "chaos", "reports", "website", "tests", "benchmarks")
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
PLACEHOLDER = re.compile(r"<[^>]*>|…|\.\.\.")
FILE = re.compile(r"[\w./*\[\]-]*\.(?:py|md|mjs|toml|yaml|yml|json|rs|html)")
FOLDER = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*/")
DOTTED = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
NAME = re.compile(r"[A-Z][A-Za-z]*[a-z][A-Z]\w*|[A-Z]+(?:_[A-Z]+)+")
NOT_OF_THE_TREE = {"client.toml", "driver_server.py", "reproduction.toml", "QueueEvents"}
"""Files that a contributor writes, and names of BullMQ."""

TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
FOLDERS = sorted({parent.as_posix() for path in TRACKED for parent in Path(path).parents})


def spans(text: str) -> set[str]:
    """The code spans of a page outside of fenced blocks."""
    return set(SPAN.findall(FENCE.sub("", text)))


def missing(span: str) -> bool:
    """Whether a code span names a file, folder, module or class that the tree does not have."""
    word = PLACEHOLDER.sub("*", span)
    if span in NOT_OF_THE_TREE:
        return False
    if FILE.fullmatch(word):
        return not any(fnmatch(path, word) or fnmatch(path, f"*/{word}") for path in TRACKED)
    if FOLDER.fullmatch(word):
        pattern = word.rstrip("/")
        return not any(fnmatch(folder, pattern) or fnmatch(folder, f"*/{pattern}") for folder in FOLDERS)
    if DOTTED.fullmatch(span):
        return not resolves(span)
    return bool(NAME.fullmatch(span)) and not is_defined(span)


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        return all((found := getattr(found, part, None)) is not None for part in parts[length:])
    return False


def is_defined(name: str) -> bool:
    """Whether a source file of the tree has the name as a whole word."""
    words = ["git", "grep", "--quiet", "--word-regexp", name, "--", "*.py", "*.mjs", "*.rs", ":!tests/docs"]
    return not subprocess.run(words, cwd=ROOT, check=False).returncode


@pytest.mark.parametrize("page", PAGES)
def test_every_named_place_exists(page: str) -> None:
    assert sorted(filter(missing, spans((ROOT / page).read_text("utf-8")))) == []


@pytest.mark.parametrize(
    "span",
    [
        "conformance/gate/gone.py",
        "gone.toml",
        "conformance/gone/",
        "conformance.gate.gone",
        "conformance.gate.plugin.gone",
        "GoneConfig",
        "GONE_RULES",
    ],
)
def test_a_place_that_is_gone_is_noticed(span: str) -> None:
    assert missing(span)


@pytest.mark.parametrize(
    "span",
    [
        "gate/attribution.py",
        "conformance/ledger/<area>.yaml",
        "chaos/faults/",
        "conformance.gate.plugin",
        "RunConfig",
        "make",
    ],
)
def test_a_place_of_the_tree_is_found(span: str) -> None:
    assert not missing(span)
