"""Libraries that differ only in what their own user sees are not conformant as `library`."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.turns(days=10)
@pytest.mark.parametrize(
    ("mutant", "row", "failures"),
    [
        ("library.other-metric-name", "library.metrics.jobs", "1 of 15 fails"),
        ("library.other-log-field", "library.log.events", "2 of 15 fail"),
        ("library.accepts-any-size", "library.validation.payload", "1 of 15 fails"),
    ],
)
def test_a_library_with_one_fault_is_not_conformant(mutant: str, row: str, failures: str) -> None:
    driver = (sys.executable, "-m", "conformance.mutants.driver", mutant)
    command = (sys.executable, "-m", "conformance", "run", "--profile", "library", "--", *driver)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stdout
    assert f"NOT CONFORMANT as library ({failures})" in done.stdout
    assert row in done.stdout
