"""Clients that are built: once for each state of their source, and with one clear line where that cannot be."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from conformance.environment import clients
from conformance.environment.client_builds import BUILD_TOOLS, BuildStep, BuildTool, ClientBuild
from conformance.environment.clients import ClientFile, Toolchain, client_entries, client_folders
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.upstream.node import NodeBinary
from conformance.upstream.package import BullMQPackage, exclusive_lock

BUILDER = """
import shutil, sys
shutil.copy("driver.src", sys.argv[1] + "/program")
with open("builds", "a") as log: log.write("built\\n")
"""


@pytest.fixture
def announced() -> list[str]:
    return []


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("BULLMQ_CONFORMANCE_CACHE", str(folder))
    return folder


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClientBuild:
    """A client that is built by copying a file, with Python as its toolchain."""
    folder = tmp_path / "copied"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "more").write_text("1")
    (folder / "driver.src").write_text("#!/bin/sh\necho hello\n")
    (folder / "driver.src").chmod(0o755)
    (folder / "lock").write_text("pinned")
    (folder / "build.py").write_text(BUILDER)
    monkeypatch.setitem(BUILD_TOOLS, "copying", BuildTool(sys.executable, "install Python"))
    command = (sys.executable, "build.py", "{work}")
    sources = ("build.py", "driver.src", "lock", "src")
    step = BuildStep(toolchain="copying", command=command, program="program", lock="lock", sources=sources)
    return ClientBuild("copied", folder, step)


def builds(build: ClientBuild) -> int:
    return len((build.folder / "builds").read_text().splitlines())


def test_it_is_built_once_for_each_state_of_its_source(build: ClientBuild, announced: list[str]) -> None:
    program = build.ensure(announced.append)
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "hello\n"
    assert build.ensure(announced.append) == program
    assert builds(build) == 1
    assert len(announced) == 1
    assert "building the client 'copied'" in announced[0]
    (build.folder / "src" / "more").write_text("2")
    assert build.ensure(announced.append) != program
    assert builds(build) == 2
    (build.folder / "src" / "more").write_text("1")
    assert build.ensure(announced.append) == program
    assert builds(build) == 2


def test_another_lock_or_another_command_is_another_build(build: ClientBuild) -> None:
    program = build.program
    (build.folder / "lock").write_text("other")
    assert build.program != program
    other = msgspec.structs.replace(build.step, command=("true",))
    (build.folder / "lock").write_text("pinned")
    assert ClientBuild("copied", build.folder, other).program != program


def test_a_part_of_the_kit_does_not_wait_for_the_build_of_a_client(build: ClientBuild, cache: Path) -> None:
    class Waits(Exception):
        pass

    def announce(line: str) -> None:
        if line.startswith("waiting"):
            raise Waits

    cache.mkdir()
    with exclusive_lock(cache / ".build-copying.lock", on_wait=lambda: None):
        with pytest.raises(Waits):
            build.ensure(announce)
        replace(build, kind="library").ensure(announce)
    assert builds(build) == 1


def test_a_missing_toolchain_is_one_line_that_says_what_to_install(
    build: ClientBuild, monkeypatch: pytest.MonkeyPatch, announced: list[str]
) -> None:
    monkeypatch.setitem(BUILD_TOOLS, "copying", BuildTool("no-such-compiler", "install Nothing"))
    with pytest.raises(EnvironmentProblem) as caught:
        build.ensure(announced.append)
    assert str(caught.value) == (
        "client 'copied' needs no-such-compiler to be built, but it is not on PATH — install Nothing"
    )
    assert build.obstacle() == "needs no-such-compiler: install Nothing"


def test_an_existing_build_needs_no_toolchain(build: ClientBuild, monkeypatch: pytest.MonkeyPatch) -> None:
    program = build.ensure(print)
    monkeypatch.setitem(BUILD_TOOLS, "copying", BuildTool("no-such-compiler", "install Nothing"))
    assert build.obstacle() == ""
    assert build.ensure(print) == program


def test_a_build_that_fails_says_why_and_leaves_nothing(build: ClientBuild, cache: Path) -> None:
    (build.folder / "build.py").write_text("import sys; sys.exit('line 3: no such thing')")
    with pytest.raises(EnvironmentProblem, match="could not be built: line 3: no such thing") as caught:
        build.ensure(print)
    assert str(build.folder) in caught.value.hint
    assert not list(cache.glob("built-*"))


def test_a_cache_that_cannot_be_written_is_a_problem(build: ClientBuild, cache: Path) -> None:
    cache.write_text("a file")
    with pytest.raises(EnvironmentProblem, match="cannot be used") as caught:
        build.ensure(print)
    assert "BULLMQ_CONFORMANCE_CACHE" in caught.value.hint


def test_a_built_client_is_started_from_its_program_and_has_one_version(
    build: ClientBuild, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = msgspec.to_builtins(build.step)
    step = "\n".join(f"{name} = {msgspec.json.encode(value).decode()}" for name, value in fields.items())
    text = f'description = "Copied"\ncommand = ["{{program}}", "-v"]\n[build]\n{step}\n'
    (build.folder / "client.toml").write_text(text)
    monkeypatch.setattr(clients, "files", lambda _package: tmp_path)
    toolchain = Toolchain(
        NodeBinary(Path("/opt/node"), "20.0.0", "setting"), BullMQPackage(tmp_path, "5.62.0", "00"), print
    )
    assert [entry.obstacle for entry in client_entries()] == ["", "", ""]
    assert toolchain.launch("copied").command == [str(build.program), "-v"]
    with pytest.raises(UsageProblem, match="client 'copied', whose lock pins it"):
        toolchain.launch("copied@2.0.0")


def shipped() -> Mapping[str, Path]:
    """The folders of the clients that are built."""
    return {name: folder for name, folder in client_folders().items() if _file(folder).build}


def _file(folder: Path) -> ClientFile:
    return msgspec.convert(tomllib.loads((folder / "client.toml").read_text("utf-8")), ClientFile)


@pytest.mark.parametrize("name", shipped())
def test_every_built_client_has_a_known_toolchain_and_a_lock_that_decides(name: str) -> None:
    folder = shipped()[name]
    step = _file(folder).build
    assert step is not None
    assert step.toolchain in BUILD_TOOLS
    assert step.lock in step.sources
    assert [source for source in step.sources if not (folder / source).exists()] == []
