"""The Lua scripts without Node: from a registry, a cache or a folder, and nothing but the pinned ones."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from conformance.problems import EnvironmentProblem
from conformance.upstream import lua_download
from conformance.upstream.lua_download import (
    FOLDER_VARIABLE,
    REGISTRY_VARIABLE,
    read_scripts,
    scripts_in_folder,
    scripts_without_node,
    template_text,
)
from conformance.upstream.node import find_node
from conformance.upstream.package import ensure_package
from conformance.upstream.scripts import load_scripts

MEMBER = "package/dist/cjs/scripts/"


@pytest.fixture(scope="module")
def script_files() -> dict[str, str]:
    """The modules of the package that npm has installed, by their file names."""
    package = ensure_package(find_node(None), announce=print)
    folder = package.root / "node_modules/bullmq/dist/cjs/scripts"
    return {path.name: path.read_text("utf-8") for path in folder.glob("*.js")}


class Registry:
    def __init__(self, files: dict[str, str]) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, text in files.items():
                member = tarfile.TarInfo(f"{MEMBER}{name}")
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))
        self.package = packed.getvalue()
        self.asked: list[str] = []

    def __call__(self, address: str) -> bytes:
        self.asked.append(address)
        return self.package


@pytest.fixture
def pin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)


def pinned_to(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the lock file name this package."""
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(registry.package).digest()).decode()
    pinned = lua_download._PinnedPackage("5.62.0", "https://registry.npmjs.org/bullmq/-/bullmq-5.62.0.tgz", integrity)
    monkeypatch.setattr(lua_download, "_pinned", lambda: pinned)


@pytest.mark.usefixtures("pin")
def test_scripts_are_those_that_node_extracts(
    script_files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, said = Registry(script_files), list[str]()
    pinned_to(registry, monkeypatch)
    fetched = scripts_without_node(announce=said.append, cache_root=tmp_path / "new", download=registry)
    node = find_node(None)
    assert fetched == load_scripts(ensure_package(node, announce=print), node)
    assert registry.asked == ["https://registry.npmjs.org/bullmq/-/bullmq-5.62.0.tgz"]
    assert len(said) == 1
    assert scripts_without_node(announce=said.append, cache_root=tmp_path / "new", download=registry) == fetched
    assert len(registry.asked) == 1, "the cache has them now"
    (cached,) = (tmp_path / "new").iterdir()
    cached.write_bytes(cached.read_bytes()[:1000])
    assert scripts_without_node(announce=said.append, cache_root=tmp_path / "new", download=registry) == fetched
    assert len(registry.asked) == 2, "half a cache is none"


@pytest.mark.slow
@pytest.mark.usefixtures("pin")
def test_a_package_installed_by_npm_is_not_fetched_again(tmp_path: Path) -> None:
    ensure_package(find_node(None), announce=print, cache_root=tmp_path)
    registry = Registry({})
    assert len(scripts_without_node(announce=print, cache_root=tmp_path, download=registry)) == 49
    assert registry.asked == []


@pytest.mark.usefixtures("pin")
def test_another_package_is_refused(
    script_files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(script_files)
    pinned_to(registry, monkeypatch)
    registry.package = registry.package[:-1] + b"?"
    with pytest.raises(EnvironmentProblem, match="is not the pinned one: its sha512 differs"):
        scripts_without_node(announce=print, cache_root=tmp_path, download=registry)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("pin")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda files: {**files, "addLog-2.js": files["addLog-2.js"].replace("RPUSH", "LPUSH")},
            "addLog .* pinned text",
        ),
        (lambda files: {n: text for n, text in files.items() if n != "drain-5.js"}, "drain .* is missing"),
        (lambda files: {**files, "mine-1.js": "const content = `x`;"}, "mine .* is not in the manifest"),
        (lambda files: {**files, "addLog-2.js": "nothing"}, "addLog .* pinned text"),
    ],
    ids=["changed", "missing", "more", "no-template"],
)
def test_another_script_is_refused(
    change: object, said: str, script_files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(change)
    registry = Registry(change(script_files))
    pinned_to(registry, monkeypatch)
    with pytest.raises(EnvironmentProblem, match=said):
        scripts_without_node(announce=print, cache_root=tmp_path, download=registry)


@pytest.mark.usefixtures("pin")
def test_an_unreachable_registry_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REGISTRY_VARIABLE, "https://127.0.0.1:1/npm")
    with pytest.raises(EnvironmentProblem) as caught:
        scripts_without_node(announce=print, cache_root=tmp_path)
    assert "cannot be fetched from https://127.0.0.1:1/npm/bullmq/-/bullmq-5.62.0.tgz" in str(caught.value)
    assert FOLDER_VARIABLE in caught.value.hint
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("pin")
def test_only_https_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REGISTRY_VARIABLE, "http://127.0.0.1:1/")
    with pytest.raises(EnvironmentProblem, match="only https is trusted"):
        scripts_without_node(announce=print, cache_root=tmp_path)


def test_a_program_finds_the_scripts_without_node(tmp_path: Path) -> None:
    """No program is on its PATH, and the folder has been written on another machine."""
    assert lua_download.main([str(tmp_path / "lua")]) == 0
    assert len(scripts_in_folder(tmp_path / "lua")) == 49
    program = "from conformance.reference_impl.scripts.runner import official_scripts; print(len(official_scripts()))"
    env = {**os.environ, "PATH": "", FOLDER_VARIABLE: str(tmp_path / "lua")}
    run = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("49\n", "")


def test_a_folder_is_a_package_too(script_files: dict[str, str], tmp_path: Path) -> None:
    package = tmp_path / "package" / "dist" / "cjs" / "scripts"
    package.mkdir(parents=True)
    for name, text in script_files.items():
        (package / name).write_text(text, "utf-8")
    assert scripts_in_folder(tmp_path) == scripts_in_folder(tmp_path / "package") == scripts_in_folder(package)


def test_a_folder_without_scripts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="there are no Lua scripts of bullmq in"):
        scripts_in_folder(tmp_path)


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ("plain\n", "plain\n"),
        (r"\`\${x}\\n\n\t\x41\u00e9\'", "`${x}\\n\n\tA\u00e9'"),
        ("a\\\nb", "ab"),
        ("a\r\nb", "a\nb"),
        (r"\0", "\0"),
    ],
)
def test_template_literals_are_read_as_javascript_does(literal: str, text: str) -> None:
    assert template_text(f"const content = `{literal}`;\nexports.x = {{}};") == text


def test_other_files_are_passed_over() -> None:
    assert list(read_scripts([("index.js", ""), ("addLog-2.js.map", ""), ("x-3.lua", "return 1")])) == ["x"]
