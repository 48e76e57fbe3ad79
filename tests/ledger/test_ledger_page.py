"""docs/requirements.md: it is current, and everything of a row is on it."""

from __future__ import annotations

import re
from pathlib import Path

from conformance.ledger.loader import Ledger, Requirement, load_ledger
from conformance.ledger.page import requirements_page

PAGE = Path(__file__).parents[2] / "docs" / "requirements.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == requirements_page(load_ledger()), "run `make generate`"


def test_every_rule_has_its_heading() -> None:
    headings = re.findall(r"^### (\S+)$", requirements_page(load_ledger()), re.MULTILINE)
    assert sorted(headings) == sorted(load_ledger())


def test_both_sides_of_a_dispute_are_told() -> None:
    row = Requirement(
        id="a.one",
        area="a",
        level="SHOULD",
        statement="It holds.",
        source="x.lua",
        status="disputed",
        reason="scenario missing",
        paper="It is so.",
        oracle="It is otherwise.",
        claims=("FR-1", "FR-2"),
        owns=(),
    )
    page = requirements_page(Ledger([row], {"a": "What's in Area-A"}))
    assert "| [What's in Area-A](#whats-in-area-a) | 1 | 0 | 1 | 0 | 0 |" in page
    assert page.endswith(
        """\
### a.one

SHOULD, disputed. It holds.

- The specification: It is so.
- BullMQ 5.62.0: It is otherwise.
- No scenario: scenario missing
- Stated in: x.lua
- Claims: FR-1, FR-2
"""
    )
