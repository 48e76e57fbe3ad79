"""Toolchain of the example: a missing one skips the test, or fails it if the toolchain is required."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from conformance.environment.prerequisites import required_names

Program = Callable[[str, str], str]


@pytest.fixture
def program() -> Program:
    """Find a program of a toolchain (both by name): skip the test if it is missing, or fail it if it is required."""

    def find(name: str, toolchain: str) -> str:
        found = shutil.which(name)
        if found is None and toolchain in required_names(""):
            pytest.fail(f"there is no program {name}, but {toolchain} is required")
        if found is None:
            pytest.skip(f"there is no program {name}")
        return found

    return find
