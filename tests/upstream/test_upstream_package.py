"""Which Node.js and npm are found, and how the pinned package is installed with them."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import threading
from pathlib import Path

import pytest

from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.upstream import node as node_module
from conformance.upstream import package as package_module
from conformance.upstream.node import NodeBinary, bundled_node, error_summary, find_node, find_npm, node_version
from conformance.upstream.package import (
    CACHE_VARIABLE,
    HARNESS,
    BullMQPackage,
    driver_command,
    ensure_package,
    ensure_version,
    exclusive_lock,
)


def program(path: Path, prints: str) -> Path:
    """An executable that prints one line, for any arguments."""
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
def test_a_setting_that_is_useless_is_refused(tmp_path: Path, prints: str, wrong: str) -> None:
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


def test_a_bundle_that_is_not_installed_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert bundled_node() is None


def test_the_version_of_something_that_does_not_start() -> None:
    assert node_version(Path("/nowhere/node")) is None


LOCK = json.loads((HARNESS / "package-lock.json").read_bytes())


def fake_install(installed: list[Path]) -> object:
    """An npm that needs no network: it writes what the kit looks for."""

    def install(_: NodeBinary, folder: Path, *words: str) -> None:
        assert (folder / "package-lock.json").is_file() == (words == ("ci",))
        version = json.loads((folder / "package.json").read_bytes())["dependencies"]["bullmq"]
        described = folder / "node_modules" / "bullmq" / "package.json"
        described.parent.mkdir(parents=True)
        described.write_text(json.dumps({"version": version}), "utf-8")
        installed.append(folder)

    return install


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders that were installed into, by a fake npm."""
    folders: list[Path] = []
    monkeypatch.setattr(package_module, "run_npm", fake_install(folders))
    return folders


def test_the_lock_pins_bullmq_and_names_only_the_public_registry() -> None:
    locked = {name.removeprefix("node_modules/"): entry for name, entry in LOCK["packages"].items() if name}
    assert locked["bullmq"]["version"] == BULLMQ_VERSION
    wanted = json.loads((HARNESS / "package.json").read_bytes())["dependencies"]
    assert wanted == {name: locked[name]["version"] for name in ("bullmq", "ioredis", "msgpackr")}
    for name, entry in locked.items():
        assert entry["resolved"].startswith("https://registry.npmjs.org/"), name
        assert entry["integrity"].startswith("sha512-"), name
        assert "optionalDependencies" not in entry, f"{name} would install different files on different systems"


def test_installed_once_then_silent(tmp_path: Path, installed: list[Path], node: NodeBinary) -> None:
    said: list[str] = []
    first = ensure_package(node, announce=said.append, cache_root=tmp_path / "cache")
    assert (first.version, len(installed), len(said)) == (BULLMQ_VERSION, 1, 2)
    assert "once" in said[0]
    assert first.root.name == f"npm-{first.lock_sha256[:12]}"

    assert ensure_package(node, announce=said.append, cache_root=tmp_path / "cache") == first
    assert (len(installed), len(said)) == (1, 2)


def test_the_environment_names_the_cache(
    tmp_path: Path, installed: list[Path], node: NodeBinary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    assert ensure_package(node, announce=print).root.parent == tmp_path
    assert installed[0].parent == tmp_path


def test_works_offline_after_the_first_time(
    package: BullMQPackage, node: NodeBinary, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:1/")
    monkeypatch.setenv("NPM_CONFIG_CACHE", str(tmp_path))
    said: list[str] = []
    assert ensure_package(node, announce=said.append, cache_root=package.root.parent) == package
    assert said == []


@pytest.mark.parametrize("which", ["chosen", "bundled"])
def test_without_network_npm_says_why_and_leaves_nothing(
    tmp_path: Path, node: NodeBinary, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    bundle = bundled_node()
    assert bundle is not None
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:1/")
    monkeypatch.setenv("NPM_CONFIG_CACHE", str(tmp_path / "npm"))
    monkeypatch.setenv("NPM_CONFIG_FETCH_RETRIES", "0")
    cache = tmp_path / "cache"
    with pytest.raises(EnvironmentProblem, match="ECONNREFUSED") as caught:
        ensure_package(node if which == "chosen" else find_node(str(bundle)), announce=lambda _: None, cache_root=cache)
    assert "network" in caught.value.hint
    assert "\n" not in str(caught.value)
    assert [path.name for path in cache.iterdir() if not path.name.endswith(".lock")] == []


def test_an_interrupted_install_leaves_nothing_half_done(
    tmp_path: Path, node: NodeBinary, monkeypatch: pytest.MonkeyPatch, installed: list[Path]
) -> None:
    def interrupted(_: NodeBinary, folder: Path, *_words: str) -> None:
        (folder / "node_modules").mkdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(package_module, "run_npm", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ensure_package(node, announce=lambda _: None, cache_root=tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]

    assert ensure_package(node, announce=lambda _: None, cache_root=tmp_path).version == BULLMQ_VERSION
    assert len(installed) == 1


def test_another_version_is_installed_once_next_to_the_pinned_one(
    tmp_path: Path, node: NodeBinary, installed: list[Path]
) -> None:
    said: list[str] = []
    pinned = ensure_package(node, announce=said.append, cache_root=tmp_path)
    other = ensure_version(node, "5.81.3", announce=said.append, cache_root=tmp_path)
    assert (other.version, other.lock_sha256, other.root == pinned.root) == ("5.81.3", "", False)
    assert "Installing bullmq 5.81.3 with npm" in said[2]
    assert ensure_version(node, "5.81.3", announce=said.append, cache_root=tmp_path) == other
    assert (len(installed), len(said)) == (2, 4)


def test_leftovers_of_a_killed_install_are_cleared(tmp_path: Path, node: NodeBinary, installed: list[Path]) -> None:
    name = ensure_package(node, announce=lambda _: None, cache_root=tmp_path / "elsewhere").root.name
    for leftover in (f"{name}.part-abc", name):
        (tmp_path / leftover / "node_modules").mkdir(parents=True)
    root = ensure_package(node, announce=lambda _: None, cache_root=tmp_path).root
    assert len(installed) == 2
    assert list(tmp_path.glob("npm-*")) == [root]


def test_an_npm_that_installs_nothing_is_a_problem(
    tmp_path: Path, node: NodeBinary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_module, "run_npm", lambda *_: None)
    with pytest.raises(EnvironmentProblem, match="did not install bullmq"):
        ensure_package(node, announce=lambda _: None, cache_root=tmp_path)


def test_a_cache_that_cannot_be_written_is_a_problem(tmp_path: Path, node: NodeBinary) -> None:
    (tmp_path / "file").write_text("in the way", "utf-8")
    with pytest.raises(EnvironmentProblem, match="cannot be used") as caught:
        ensure_package(node, announce=lambda _: None, cache_root=tmp_path / "file" / "cache")
    assert CACHE_VARIABLE in caught.value.hint


def _install_in_process(
    cache: Path, node: NodeBinary, ready: threading.Barrier, answers: multiprocessing.Queue[str]
) -> None:
    installed: list[Path] = []
    package_module.__dict__["run_npm"] = fake_install(installed)
    ready.wait(20)
    root = ensure_package(node, announce=lambda _: None, cache_root=cache).root
    answers.put(f"{len(installed)} {root.name}")


def test_two_processes_at_once_install_once(tmp_path: Path, node: NodeBinary) -> None:
    context = multiprocessing.get_context("spawn")
    ready, answers = context.Barrier(2), context.Queue()
    processes = [context.Process(target=_install_in_process, args=(tmp_path, node, ready, answers)) for _ in range(2)]
    for process in processes:
        process.start()
    said = sorted(answers.get(timeout=30) for _ in processes)
    for process in processes:
        process.join(30)
    assert [line.split()[0] for line in said] == ["0", "1"]
    assert len({line.split()[1] for line in said}) == 1


def test_a_process_that_waits_for_the_lock_reports_it(tmp_path: Path) -> None:
    waiting, entered = threading.Event(), threading.Event()

    def second() -> None:
        with exclusive_lock(tmp_path / "lock", on_wait=waiting.set):
            entered.set()

    with exclusive_lock(tmp_path / "lock", on_wait=lambda: pytest.fail("no other process is here")):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10)
        assert not entered.is_set()
    assert entered.wait(10)
    thread.join()


def test_npm_is_found_next_to_node_and_in_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = bundled_node()
    assert bundle is not None
    assert find_npm(find_node(str(bundle))).is_relative_to(bundle.parents[1])

    lonely = tmp_path / "bin" / "node"
    lonely.parent.mkdir()
    lonely.touch(mode=0o755)
    alone = NodeBinary(lonely, "20.0.0", "setting")
    monkeypatch.setenv("PATH", str(lonely.parent))
    assert find_npm(alone).is_relative_to(bundle.parents[1]), "the npm of the bundle serves any Node.js"
    monkeypatch.setattr("conformance.upstream.node.bundled_node", lambda: None)
    with pytest.raises(EnvironmentProblem, match="no npm"):
        find_npm(alone)


def test_npm_on_path_serves_a_node_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tmp_path / "lib" / "npm" / "bin" / "npm-cli.js"
    real.parent.mkdir(parents=True)
    real.touch()
    real.chmod(real.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "npm").symlink_to(real)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_npm(NodeBinary(tmp_path / "apart" / "node", "20.0.0", "setting")) == real


def test_the_summary_of_npm_errors_leaves_out_usage_and_log_file() -> None:
    output = "npm warn old\nnpm error code ENOTFOUND\nnpm error syscall getaddrinfo\nnpm error errno -3008\nnpm error\n"
    output += "npm ERR! network request to https://x failed\nnpm error A complete log of this run can be found in: /l"
    assert error_summary(output) == "code ENOTFOUND; network request to https://x failed"
    assert error_summary("Segmentation fault\n") == "Segmentation fault"
    assert error_summary("") == "it printed nothing"


def test_the_command_of_the_oracle(node: NodeBinary, package: BullMQPackage) -> None:
    command, variables = driver_command(node, package)
    assert command[0] == str(node.path)
    assert Path(command[1]).is_file()
    assert variables == {"BULLMQ_CONFORMANCE_MODULES": str(package.root)}
