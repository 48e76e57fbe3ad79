"""Every negative answer of every official script has a scenario that gets there, or a reason why none can."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.protocol.scripts import SCRIPT_SIGNATURES
from conformance.reference_impl.scripts.runner import official_scripts
from conformance.scenarios.support.operation_groups import EXERCISED_SCRIPTS
from conformance.scenarios.support.refusals import REFUSALS, SLOTS_BUSY

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "scripts.md").read_text("utf-8")
NOT_REACHED = {
    ("addParentJob", -5): "inside the MULTI of a flow, whose replies Node ignores",
    ("addParentJob", -7): "inside the MULTI of a flow, whose replies Node ignores",
    ("saveStacktrace", -1): "Node never calls it",
}


def _codes_in(text: str) -> set[int]:
    return {int(code) for pair in re.findall(r"return (-\d+)\b|errorCode = (-\d+)", text) for code in pair if code}


def test_every_code_of_every_script_is_reached_or_explained() -> None:
    there = {(name, code) for name, script in official_scripts().items() for code in _codes_in(script.text)}
    reached = {(refusal.script, int(refusal.code)) for refusal in (*REFUSALS, SLOTS_BUSY)}
    assert reached & NOT_REACHED.keys() == set()
    assert there == reached | NOT_REACHED.keys()


@pytest.mark.parametrize("name", SCRIPT_SIGNATURES)
def test_the_page_says_what_the_scenarios_do(name: str) -> None:
    found = re.search(rf"^\| {name} \| (\d+) \| (yes|no) \|(.*)\|$", PAGE, re.MULTILINE)
    assert found, f"docs/reference/scripts.md has no row for {name}"
    codes = {int(code) for code in re.findall(r"-\d+", found[3])}
    expected = {int(refusal.code) for refusal in (*REFUSALS, SLOTS_BUSY) if refusal.script == name}
    expected |= {code for script, code in NOT_REACHED if script == name}
    assert (int(found[1]), found[2] == "yes", codes) == (
        len(SCRIPT_SIGNATURES[name].keys),
        name in EXERCISED_SCRIPTS,
        expected,
    )
