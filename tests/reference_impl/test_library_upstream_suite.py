"""Statements of `upstream_suite` about the tests of upstream's Python client, which are run by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.reference_impl.upstream_suite import PINNED_MISTAKES, SHIM, outcomes, surprises

PRINTED = """
tests/job_test.py::TestJob::test_a PASSED                [ 50%]
tests/job_test.py::TestJob::test_b FAILED                [100%]
FAILED tests/job_test.py::TestJob::test_b - AssertionError
"""


def test_outcomes_are_read_from_what_pytest_prints() -> None:
    assert outcomes(PRINTED) == {"job_test.py::TestJob::test_a": True, "job_test.py::TestJob::test_b": False}


@pytest.mark.parametrize(
    ("found", "expected", "said"),
    [
        ({"a": True, "b": False}, ["b"], []),
        ({"a": False, "b": False}, ["b"], ["a fails"]),
        ({"a": True, "b": True}, ["b"], ["b is expected to fail, and does not"]),
        ({"a": True}, ["b"], ["b is expected to fail, and does not"]),
        ({}, [], ["no test was run"]),
    ],
)
def test_surprises(found: dict[str, bool], expected: list[str], said: list[str]) -> None:
    assert surprises(found, expected) == said


def test_the_page_names_what_is_expected_to_fail() -> None:
    page = Path("docs/how-to/move-to-the-reference-client.md").read_text("utf-8")
    named = re.findall(r"^\| `(\w+_test)`: `(\w+)` \|", page, re.MULTILINE)
    assert [f"{module}.py::TestWorker::{test}" for module, test in named] == list(PINNED_MISTAKES)


def test_the_shim_is_short() -> None:
    assert len((SHIM / "bullmq" / "__init__.py").read_text("utf-8").splitlines()) <= 30
