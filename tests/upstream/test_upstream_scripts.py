from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.problems import EnvironmentProblem
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.upstream import scripts as scripts_module
from conformance.upstream.manifest import MANIFEST, extract_scripts, load_manifest, main
from conformance.upstream.node import NodeBinary
from conformance.upstream.package import BullMQPackage
from conformance.upstream.scripts import load_scripts


@pytest.fixture
def copy(package: BullMQPackage, tmp_path: Path) -> BullMQPackage:
    """A package that may be spoiled."""
    root = tmp_path / "package"
    shutil.copytree(package.root, root, ignore=shutil.ignore_patterns("scripts.json", "*.map", "*.d.ts", "esm"))
    return replace(package, root=root)


def script_file(package: BullMQPackage, name: str) -> Path:
    return next((package.root / "node_modules/bullmq/dist/cjs/scripts").glob(f"{name}-*.js"))


def edit_kept(package: BullMQPackage, change: Callable[[dict[str, dict[str, object]]], object]) -> None:
    kept = json.loads((package.root / "scripts.json").read_bytes())
    change(kept["scripts"])
    (package.root / "scripts.json").write_text(json.dumps(kept), "utf-8")


def test_all_scripts_with_what_redis_needs(package: BullMQPackage, node: NodeBinary) -> None:
    scripts = load_scripts(package, node)
    assert len(scripts) == 49
    move = scripts["moveToActive"]
    assert (move.name, move.key_count, move.sha1[:8]) == ("moveToActive", 11, "6c4c6de2")
    for script in scripts.values():
        assert script.sha1 == hashlib.sha1(script.text.encode(), usedforsecurity=False).hexdigest()


def test_extracted_once_and_then_without_node(
    copy: BullMQPackage, node: NodeBinary, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_scripts(copy, node)
    monkeypatch.setattr(scripts_module, "extract_scripts", lambda *_: pytest.fail("extracted again"))
    assert load_scripts(copy, node) == first


def test_a_damaged_cache_file_is_written_again(copy: BullMQPackage, node: NodeBinary) -> None:
    first = load_scripts(copy, node)
    (copy.root / "scripts.json").write_text("{", "utf-8")
    assert load_scripts(copy, node) == first


def test_a_cache_that_cannot_be_written_only_costs_time(copy: BullMQPackage, node: NodeBinary) -> None:
    (copy.root / "scripts.json").mkdir()
    assert len(load_scripts(copy, node)) == 49
    assert list(copy.root.glob("*.part")) == []


def test_a_script_changed_in_the_package_is_refused(copy: BullMQPackage, node: NodeBinary) -> None:
    load_scripts(copy, node)
    path = script_file(copy, "promote")
    path.write_text(path.read_text("utf-8").replace("ZREM", "ZREM "), "utf-8")
    with pytest.raises(EnvironmentProblem, match=r"promote .* pinned text") as caught:
        load_scripts(copy, node)
    assert str(copy.root) in caught.value.hint


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda scripts: scripts["pause"].update(text="return 1"), "pause .* pinned text"),
        (lambda scripts: scripts["pause"].update(keys=6), "pause .* 6 keys instead of 7"),
        (lambda scripts: scripts.pop("pause"), "pause .* missing"),
        (lambda scripts: scripts.update(extra={"keys": 1, "text": ""}), "extra .* not in the manifest"),
    ],
)
def test_a_script_changed_in_the_cache_is_refused(
    copy: BullMQPackage, node: NodeBinary, change: Callable[[dict[str, dict[str, object]]], object], wrong: str
) -> None:
    load_scripts(copy, node)
    edit_kept(copy, change)
    with pytest.raises(EnvironmentProblem, match=wrong):
        load_scripts(copy, node)


def test_a_package_without_scripts_is_a_problem(copy: BullMQPackage, node: NodeBinary) -> None:
    shutil.rmtree(script_file(copy, "pause").parent)
    with pytest.raises(EnvironmentProblem, match="no scripts folder"):
        load_scripts(copy, node)
    with pytest.raises(EnvironmentProblem, match="Cannot find module"):
        extract_scripts(node, copy.root)


def test_another_version_needs_another_manifest(package: BullMQPackage, node: NodeBinary) -> None:
    with pytest.raises(
        EnvironmentProblem, match=f"manifest is for bullmq {re.escape(BULLMQ_VERSION)}, but the package is 6.0.0"
    ):
        load_scripts(replace(package, version="6.0.0"), node)


def test_the_generator_writes_the_manifest_that_is_here(
    package: BullMQPackage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--package", str(package.root), "--out", str(tmp_path / "new.json")]) == 0
    assert f"scripts of bullmq {BULLMQ_VERSION}" in capsys.readouterr().out
    assert (tmp_path / "new.json").read_bytes() == MANIFEST.read_bytes()


def test_the_generator_explains_a_folder_without_bullmq(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--package", str(tmp_path), "--out", str(tmp_path / "new.json")]) == 3
    assert "no bullmq below" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, "{}", "nonsense"])
def test_a_manifest_that_cannot_be_read_is_a_problem(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "manifest.json"
    if content is not None:
        path.write_text(content, "utf-8")
    with pytest.raises(EnvironmentProblem, match="cannot be read"):
        load_manifest(path)
