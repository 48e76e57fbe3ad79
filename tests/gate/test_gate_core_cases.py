"""Cases of scenarios of tier full that core runs as well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from conformance.gate.selection import all_scenarios, cases_of
from conformance.participants.marks import (
    Scenario,
    also_in_core,
    case_text,
    core_cases_of,
    least_tier_of,
    scenario,
    tier_of,
)


@scenario("add.lifo", tier="full")
@pytest.mark.parametrize("size", ["small", "large"])
@also_in_core("large | huge")
def _sizes(client: Any, size: str) -> None:
    """Of every size."""


def wrong_names(scenarios: Iterable[tuple[str, Scenario]]) -> list[str]:
    """The named cases that are not cases of a scenario of tier full."""
    return [
        f"{name}[{text}]"
        for name, made in scenarios
        for text in core_cases_of(made)
        if made.tier != "full" or text not in {case_text(made, arguments) for arguments in cases_of(made).values()}
    ]


def test_every_named_case_exists() -> None:
    assert wrong_names(all_scenarios()) == []
    assert wrong_names([("x/sizes", _sizes.scenario)]) == ["x/sizes[huge]"]


def test_a_named_case_is_of_core_and_its_siblings_are_not() -> None:
    made = _sizes.scenario
    assert [tier_of(made, arguments) for arguments in cases_of(made).values()] == ["full", "core"]
    assert least_tier_of(made) == "core"
