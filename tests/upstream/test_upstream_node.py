from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.upstream import node as node_module
from conformance.upstream.node import bundled_node, find_node, node_version


def program(path: Path, prints: str) -> Path:
    """An executable that prints one line, whatever it is asked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{prints}'\n", "utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def path_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with a single folder, empty so far."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.mark.usefixtures("path_only")
def test_the_setting_wins(tmp_path: Path, path_only: Path) -> None:
    program(path_only / "node", "v20.0.0")
    asked = program(tmp_path / "my-node", "v19.1.2")
    found = find_node(str(asked))
    assert (found.path, found.version, found.source) == (asked, "19.1.2", "setting")


def test_the_setting_may_be_a_command_name(path_only: Path) -> None:
    program(path_only / "node21", "v21.0.0")
    assert find_node("node21").path == path_only / "node21"


@pytest.mark.parametrize(("prints", "wrong"), [("v16.20.0", "too old"), ("hello", "not a working Node.js")])
def test_a_setting_that_is_no_use_is_refused(tmp_path: Path, prints: str, wrong: str) -> None:
    with pytest.raises(UsageProblem, match=wrong) as caught:
        find_node(str(program(tmp_path / "node", prints)))
    assert caught.value.hint


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageProblem, match="no such program"):
        find_node("/nowhere/node")


def test_the_system_comes_before_the_bundle(path_only: Path) -> None:
    program(path_only / "node", "v22.3.4")
    found = find_node(None)
    assert (found.version, found.source) == ("22.3.4", "system")


@pytest.mark.parametrize("prints", ["v17.9.1", "nothing useful", None])
def test_the_bundle_helps_where_the_system_has_nothing(path_only: Path, prints: str | None) -> None:
    if prints:
        program(path_only / "node", prints)
    found = find_node(None)
    assert found.source == "nodejs-bin"
    assert found.path == bundled_node()
    assert os.access(found.path, os.X_OK)


def test_without_any_node_the_problem_says_what_to_do(path_only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(path_only / "node", "v12.0.0")
    monkeypatch.setattr(node_module, "bundled_node", lambda: None)
    with pytest.raises(EnvironmentProblem, match=r"is 12\.0\.0") as caught:
        find_node(None)
    assert "--node" in caught.value.hint


def test_a_bundle_that_is_not_installed_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert bundled_node() is None


def test_the_version_of_something_that_does_not_start() -> None:
    assert node_version(Path("/nowhere/node")) is None
