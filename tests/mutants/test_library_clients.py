"""Libraries that differ only in what their own user sees are not conformant as `library`."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.turns(days=10)
@pytest.mark.parametrize(
    ("mutant", "row"),
    [
        ("library.other-metric-name", "library.metrics.jobs"),
        ("library.other-log-field", "library.log.events"),
        ("library.accepts-any-size", "library.validation.payload"),
    ],
)
def test_a_library_with_one_fault_is_not_conformant(mutant: str, row: str) -> None:
    driver = (sys.executable, "-m", "conformance.mutants.driver", mutant)
    command = (sys.executable, "-m", "conformance", "run", "--profile", "library", "--", *driver)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stdout
    assert "NOT CONFORMANT as library (1 of 15 fails)" in done.stdout
    assert f"requirement {row} (MUST)" in done.stdout
