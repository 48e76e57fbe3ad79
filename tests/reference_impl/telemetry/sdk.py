"""OpenTelemetry's SDK, in an environment of its own.

redis-py imports all of its metrics wherever it finds it: in the developers' environment, each of the thousands of
Python processes that the tests start would take a quarter longer to start.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from conformance.environment.python_environments import PythonPackages, ensure_python_environment

_REQUIREMENTS = Path(__file__).with_name("requirements.txt")


@cache
def make_importable() -> None:
    """Install the SDK, once on this machine, and let this process import it."""
    python = ensure_python_environment("telemetry", PythonPackages.pinned(_REQUIREMENTS), announce=print)
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    sys.path.append(str(packages))
