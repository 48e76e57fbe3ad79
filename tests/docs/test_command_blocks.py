"""Every block of commands in README and docs is executed by a test, or says why not; what is not executed is parsed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.cli.parsing import parse_call
from tests.docs.blocks import REMARK, CodeBlock, blocks_of, commands_of

ROOT = Path(__file__).parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)
PROGRAM = "bullmq-conformance"


def complaint(block: CodeBlock) -> str:
    """The mistake in the marking of a block; empty if there is none."""
    if not block.language:
        return "says no language: sh for commands, text for what is printed"
    if not block.is_commands:
        return ""
    if not REMARK.fullmatch(block.remark):
        return "needs `<!-- executed: tests/… -->` or `<!-- not executed: reason -->` in the line above"
    source = _source(block.test)
    if block.test and not (block.page.name in source and ("commands_of(" in source or "blocks_of(" in source)):
        return f"says that {block.test} executes it, which does not read this page"
    return ""


def _source(test: str) -> str:
    path = ROOT / test
    return path.read_text("utf-8") if path.is_file() else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_commands_is_executed_or_says_why_not(page: Path) -> None:
    complaints = [f"{block.place} {complaint(block)}" for block in blocks_of(page) if complaint(block)]
    assert complaints == []


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```\nls\n```\n", "says no language"),
        ("```sh\nls\n```\n", "needs `<!-- executed"),
        ("<!-- executed -->\n```sh\nls\n```\n", "needs `<!-- executed"),
        ("<!-- executed: tests/docs/gone.py -->\n```sh\nls\n```\n", "does not read this page"),
        ("<!-- executed: tests/docs/blocks.py -->\n```sh\nls\n```\n", "does not read this page"),
        ("<!-- not executed: it has no end -->\n\n  ```sh\n  ls\n  ```\n", ""),
        ("````text\n```sh\n````\n", ""),
    ],
)
def test_a_page_that_is_marked_badly_is_noticed(page: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(page)
    [found] = [complaint(block) for block in blocks_of(tmp_path / "page.md")]
    assert said in found
    assert bool(found) == bool(said)


def test_a_block_without_an_end_is_named_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("text\n\n```sh\nls\n")
    with pytest.raises(ValueError, match=r"page\.md:3: this block has no end"):
        list(blocks_of(tmp_path / "page.md"))


def test_a_test_finds_its_blocks_without_their_indentation(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("- do\n\n  <!-- executed: me -->\n  ```sh\n  ls \\\n    -l\n  ```\n")
    [block] = commands_of(tmp_path / "page.md", "me")
    assert block.text == "ls \\\n  -l\n"


def test_a_block_knows_the_headings_above_it(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# A\n## B\n### C\n```sh\n# no heading\n```\n## D\n```sh\nls\n```\n")
    assert [block.section for block in blocks_of(tmp_path / "page.md")] == [("A", "B", "C"), ("A", "D")]


def invocations() -> Iterator[object]:
    """Every line of every page that calls the program, as words."""
    for page in PAGES:
        for block in blocks_of(page):
            for words in calls_of(block):
                yield pytest.param(words, id=f"{block.place} {' '.join(words[:2])}")


def calls_of(block: CodeBlock) -> Iterator[list[str]]:
    """The arguments of each call of the program in a block, without the shell's own words."""
    for line in block.text.replace("\\\n", " ").splitlines() if block.is_commands else ():
        if PROGRAM not in line:
            continue
        words = shlex.split(line.removeprefix("$ "), comments=True)
        for position, word in enumerate(words):
            if word == PROGRAM or word.endswith(f"/bin/{PROGRAM}"):
                rest = words[position + 1 :]
                ends = [at for at, each in enumerate(rest) if each in ("||", "&&", "|", ";", ">")]
                yield rest[: ends[0]] if ends else rest
                break


@pytest.mark.parametrize("words", list(invocations()))
def test_every_call_of_the_program_has_options_that_there_are(words: list[str]) -> None:
    parse_call(words)


@pytest.mark.parametrize("words", [["run", "--speed", "9"], ["rum"], ["run", "--tier", "small"], ["driver", "make"]])
def test_a_call_that_the_program_does_not_know_is_noticed(words: list[str]) -> None:
    with pytest.raises(click.UsageError):
        parse_call(words)
