"""The output folder of a verb, checked before the work starts."""

from __future__ import annotations

import tempfile
from pathlib import Path

from conformance.problems import EnvironmentProblem


def prove_writable(folder: Path) -> None:
    """Make the folder and write a temporary file in it. Raises EnvironmentProblem if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"room")
            probe.flush()
    except OSError as error:
        raise EnvironmentProblem(f"cannot write to {folder}: {error.strerror}", hint="choose another --out") from error
