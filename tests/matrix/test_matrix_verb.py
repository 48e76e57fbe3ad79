"""The verb itself, on real clients: one cell, its page, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.cli.matrix import matrix
from conformance.problems import UsageProblem


def _invoked(*words: str) -> tuple[int, str]:
    """The exit code, and what was printed."""
    result = CliRunner().invoke(matrix, words, standalone_mode=False, catch_exceptions=False)
    assert isinstance(result.return_value, int), result.output
    return result.return_value, result.output


@pytest.mark.slow
def test_a_pair_of_real_clients_is_run_once(tmp_path: Path) -> None:
    words = (
        "--clients",
        "reference,node",
        "--cell",
        "reference,node",
        "--tier",
        "smoke",
        "--jobs",
        "1",
        f"--out={tmp_path}",
    )
    code, said = _invoked(*words)
    assert code == 0, said
    document = json.loads((tmp_path / "matrix.json").read_text("utf-8"))
    states = {(cell["client"], cell["partner"]): cell["state"] for cell in document["cells"]}
    assert states == {
        ("reference", None): "not-run",
        ("node", None): "not-run",
        ("reference", "node"): "holds",
        ("node", "reference"): "not-run",
    }
    code, said = _invoked(*words)
    assert (code, "cell 1 of 1: reference,node: kept" in said) == (0, True), said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--clients", "no-such-client,node", "--cell", "no-such-client"), "unknown client 'no-such-client'"),
        (("--clients", "node", "--cell", "node,node"), "no cell 'node,node'"),
        (("--clients", ","), "no clients"),
    ],
)
def test_a_mistake_is_reported_before_anything_is_run(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    with pytest.raises(UsageProblem, match=why):
        _invoked(*words, "--out", str(tmp_path / "site"))
    assert not (tmp_path / "site").exists()
