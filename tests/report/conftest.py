"""The sample ledger and the sample runs as fixtures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.report.summary import RequirementRows, Summary
from tests.report import recorded
from tests.report.sample_runs import SAMPLE_ROWS


@pytest.fixture
def rows() -> RequirementRows:
    return SAMPLE_ROWS


@pytest.fixture
def run_path() -> Callable[[str], Path]:
    return recorded.run_path


@pytest.fixture
def summary_of() -> Callable[[str], Summary]:
    return recorded.summary_of
