"""Numbers that a page states about the kit are those of the kit."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from chaos.mutants.catalogue import CHAOS_MUTANTS
from chaos.options import TELLING
from conformance.bugs.corpus import load_corpus
from conformance.driver.messages import ClientInfo, Ready
from conformance.driver.ops import REGISTRY
from conformance.fuzz.strategies.exploring import legal_pairs
from conformance.gate.reach import reach_of
from conformance.ledger.loader import examined_rows
from conformance.ledger.profiles import load_profiles

ROOT = Path(__file__).parents[2]
GENERATED_OR_DATED = re.compile(
    r"docs/reference/(requirements|cli|cli-more-verbs|cli-stores|bugs|kill-matrix|measurements.*)\.md"
    r"|docs/reference/(chaos-python-official|specification-of-clients)\.md"
    r"|docs/reference/versions/.*"
)
"""Made by `make generate`, which tests compare; or results of one day, which only their date can keep true."""
WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight"),
    *("nine", "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen"),
)
UNITS = r"requirements?|scenarios?|profiles?|operations?|bugs?|mutants|broken clients|claims|invariants|faults|pairs"
NUMBER = rf"\d[\d,]*|{'|'.join(WORDS[2:])}"
"""Without *one*, which counts nothing."""
STATEMENT = re.compile(rf"(?<![\w.`=-])(?P<number>{NUMBER})\s+(?:of\s+)?(?:[a-z]+\s+)?(?P<unit>{UNITS})\b")


def _of_profile(name: str) -> int:
    return len(load_profiles().rows_by_profile(examined_rows())[name])


def _unlocked_by_add() -> int:
    skeleton = Ready(
        protocol=1,
        client=ClientInfo(name="mine", language="go", version="1"),
        ops=["open", "close", "reset"],
        capabilities=[],
    )
    return next(step.unlocks for step in reach_of(skeleton, roles=set()).prospects if step.what == "queue.add")


STATED: Mapping[tuple[str, str], Callable[[], int]] = {
    ("README.md", r"3 of (\S+) fail\)"): lambda: _of_profile("worker"),
    ("README.md", r"112 of (\S+) requirements"): lambda: len(examined_rows()),
    ("docs/reference/verdicts.md", r"3 of (\S+) fail\)"): lambda: _of_profile("worker"),
    ("docs/reference/verdicts.md", r"112 of (\S+) requirements"): lambda: len(examined_rows()),
    ("docs/tutorial/first-driver.md", r"you unlock (\S+) requirements"): _unlocked_by_add,
    ("docs/how-to/fuzz.md", r"all (\S+) pairs of operation and state"): lambda: len(legal_pairs(REGISTRY)),
    ("docs/how-to/chaos.md", r"the (\S+) faults that reveal most"): lambda: len(TELLING),
    ("docs/reference/planted-defects.md", r"has (\S+) broken clients"): lambda: len(CHAOS_MUTANTS),
    ("CHANGELOG.md", r"`bugs list` and `bugs prove`: (\S+) bugs"): lambda: len(load_corpus()),
}
"""The number that each statement must have, by page and pattern."""

NOT_ABOUT_THE_KIT: Mapping[tuple[str, str], str] = {
    ("docs/tutorial/first-gate-rust.md", "two requirements"): "of the driver on that page, which CI runs",
    ("docs/how-to/permissions.md", "2 scenarios"): "printed by one run",
    ("docs/how-to/permissions.md", "30 scenarios"): "printed by one run",
    ("docs/how-to/permissions.md", "1315 scenarios"): "printed by one run",
    ("docs/how-to/read-a-report.md", "1 scenario"): "an excerpt of a recorded report, which a test compares",
}
"""Other counts of such things, with the reason why they are not computed here."""


def pages() -> list[Path]:
    """Pages written by hand; the changelog only counts what it says at the top."""
    found = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    found += sorted((ROOT / "docs").rglob("*.md"))
    return [page for page in found if not GENERATED_OR_DATED.fullmatch(str(page.relative_to(ROOT)))]


def value(text: str) -> int:
    """The number that a text of digits or a word says."""
    return WORDS.index(text) if text in WORDS else int(text.replace(",", ""))


@pytest.mark.parametrize(("page", "pattern"), list(STATED), ids=lambda text: text)
def test_a_stated_number_is_that_of_the_kit(page: str, pattern: str) -> None:
    said = re.findall(pattern, (ROOT / page).read_text("utf-8"))
    assert said, f"{page} does not say {pattern!r} any more: remove it from STATED"
    wanted = STATED[page, pattern]()
    assert {value(text) for text in said} == {wanted}, f"write {wanted} in {page}, at {pattern!r}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_states_a_number_that_is_not_computed(page: Path) -> None:
    name, text = str(page.relative_to(ROOT)), page.read_text("utf-8")
    computed = [found.span(1) for at, pattern in STATED if at == name for found in re.finditer(pattern, text)]
    left = [
        found[0]
        for found in STATEMENT.finditer(text)
        if found.span("number") not in computed and (name, " ".join(found[0].split())) not in NOT_ABOUT_THE_KIT
    ]
    assert left == [], "add each to STATED, or to NOT_ABOUT_THE_KIT with the reason"


def test_every_exception_is_needed() -> None:
    said = {
        (str(page.relative_to(ROOT)), " ".join(found[0].split()))
        for page in pages()
        for found in STATEMENT.finditer(page.read_text("utf-8"))
    }
    assert set(NOT_ABOUT_THE_KIT) <= said
