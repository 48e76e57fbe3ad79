"""Ranges of versions, and the scripts of each version."""

from __future__ import annotations

import pytest

from conformance.protocol.script_versions import PINNED_SCRIPTS, SLOTS, scripts_of
from conformance.protocol.versions import SUPPORTED_ORACLES, check_range, in_range, is_supported


@pytest.mark.parametrize(
    ("versions", "inside", "outside"),
    [
        ("", ["5.9.0", "6.7.0"], []),
        ("<6", ["5.9.0", "5.81.5"], ["6.0.0", "6.7.0"]),
        (">=5.66.6", ["5.66.6", "5.66.10", "6.0.0"], ["5.66.5", "5.9.0"]),
        (">=5.65,<6", ["5.65.0", "5.81.5"], ["5.62.0", "6.0.0"]),
        ("<5.80.7 || >=6", ["5.62.0", "5.80.6", "6.0.0"], ["5.80.7", "5.81.5"]),
    ],
)
def test_a_range(versions: str, inside: list[str], outside: list[str]) -> None:
    assert [version for version in (*inside, *outside) if in_range(version, versions)] == inside


@pytest.mark.parametrize("versions", ["newest", "6", "<", ">=5 || six"])
def test_an_invalid_range_is_refused(versions: str) -> None:
    with pytest.raises(ValueError, match="invalid range of versions"):
        check_range(versions)


def test_the_default_oracle_is_supported() -> None:
    assert is_supported(SUPPORTED_ORACLES[0])
    assert not is_supported("99.0.0")


def test_the_pinned_version_has_the_pinned_scripts() -> None:
    pinned = scripts_of(SUPPORTED_ORACLES[0])
    assert (dict(pinned.signatures), pinned.slots) == (dict(PINNED_SCRIPTS.signatures), SLOTS)


@pytest.mark.parametrize(
    ("script", "keys"),
    [
        ("moveToDelayed", {"5.73.2": 8, "5.73.3": 12, "6.3.4": 12, "6.3.5": 11}),
        ("moveStalledJobsToWait", {"5.78.0": 8, "5.78.1": 9}),
        ("getCountsPerPriority", {"6.1.0": 4, "6.1.1": 2}),
        ("reprocessJob", {"6.3.11": 8, "6.3.15": 9}),
    ],
)
def test_the_number_of_keys_changes_with_its_release(script: str, keys: dict[str, int]) -> None:
    assert {version: len(scripts_of(version).signatures[script].keys) for version in keys} == keys


def test_scripts_come_and_go() -> None:
    assert "getJobs" not in scripts_of("5.81.0").signatures
    assert "getJobs" in scripts_of("5.81.1").signatures
    assert "addRepeatableJob" in scripts_of("5.81.5").signatures
    assert "addRepeatableJob" not in scripts_of("6.0.0").signatures
