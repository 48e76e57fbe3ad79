"""Libraries that differ only in what their own user sees are not conformant as `library`."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "rows"),
    [
        ("library.other-metric-name", ("library.metrics.jobs",)),
        ("library.other-log-field", ("library.log.events", "library.log.connection")),
        ("library.accepts-any-size", ("library.validation.payload",)),
    ],
)
def test_a_library_with_one_fault_is_not_conformant(mutant: str, rows: tuple[str, ...]) -> None:
    driver = (sys.executable, "-m", "conformance.mutants.driver", mutant)
    command = (sys.executable, "-m", "conformance", "run", "--profile", "library", "--", *driver)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stdout
    failures = "1 of 15 fails" if len(rows) == 1 else f"{len(rows)} of 15 fail"
    assert f"NOT CONFORMANT as library ({failures})" in done.stdout
    # The report shows the requirement of one scenario; of those equally easy to repeat, any may be shown.
    assert any(f" {row} (MUST)" in done.stdout for row in rows)
    assert all(row in done.stdout for row in rows)
