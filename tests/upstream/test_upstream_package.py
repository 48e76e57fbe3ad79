from __future__ import annotations

import json
import multiprocessing
import stat
import threading
from pathlib import Path

import pytest

from conformance.problems import EnvironmentProblem
from conformance.upstream import package as package_module
from conformance.upstream.cache import CACHE_VARIABLE
from conformance.upstream.locking import exclusive
from conformance.upstream.node import Node, bundled_node, find_node
from conformance.upstream.npm import error_summary, find_npm
from conformance.upstream.package import HARNESS, Package, driver_command, ensure_package

LOCK = json.loads((HARNESS / "package-lock.json").read_bytes())


def fake_install(installed: list[Path]) -> object:
    """An npm that needs no network: it writes what the kit looks for."""

    def install(_: Node, folder: Path) -> None:
        assert (folder / "package-lock.json").is_file()
        described = folder / "node_modules" / "bullmq" / "package.json"
        described.parent.mkdir(parents=True)
        described.write_text('{"version": "5.62.0"}', "utf-8")
        installed.append(folder)

    return install


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders that were installed into, by a fake npm."""
    folders: list[Path] = []
    monkeypatch.setattr(package_module, "install", fake_install(folders))
    return folders


def test_the_lock_pins_bullmq_and_names_only_the_public_registry() -> None:
    locked = {name.removeprefix("node_modules/"): entry for name, entry in LOCK["packages"].items() if name}
    assert locked["bullmq"]["version"] == "5.62.0"
    wanted = json.loads((HARNESS / "package.json").read_bytes())["dependencies"]
    assert wanted == {name: locked[name]["version"] for name in ("bullmq", "ioredis", "msgpackr")}
    for name, entry in locked.items():
        assert entry["resolved"].startswith("https://registry.npmjs.org/"), name
        assert entry["integrity"].startswith("sha512-"), name
        assert "optionalDependencies" not in entry, f"{name} would install different files on different systems"


def test_installed_once_then_silent(tmp_path: Path, installed: list[Path], node: Node) -> None:
    said: list[str] = []
    first = ensure_package(node, announce=said.append, cache_root=tmp_path / "cache")
    assert (first.version, len(installed), len(said)) == ("5.62.0", 1, 2)
    assert "once" in said[0]
    assert first.root.name == f"npm-{first.lock_sha256[:12]}"

    assert ensure_package(node, announce=said.append, cache_root=tmp_path / "cache") == first
    assert (len(installed), len(said)) == (1, 2)


def test_the_environment_names_the_cache(
    tmp_path: Path, installed: list[Path], node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    assert ensure_package(node, announce=print).root.parent == tmp_path
    assert installed[0].parent == tmp_path


def test_works_offline_after_the_first_time(
    package: Package, node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:1/")
    monkeypatch.setenv("NPM_CONFIG_CACHE", str(tmp_path))
    said: list[str] = []
    assert ensure_package(node, announce=said.append, cache_root=package.root.parent) == package
    assert said == []


@pytest.mark.parametrize("which", ["chosen", "bundled"])
def test_without_network_npm_says_why_and_leaves_nothing(
    tmp_path: Path, node: Node, monkeypatch: pytest.MonkeyPatch, which: str
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
    tmp_path: Path, node: Node, monkeypatch: pytest.MonkeyPatch, installed: list[Path]
) -> None:
    def interrupted(_: Node, folder: Path) -> None:
        (folder / "node_modules").mkdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(package_module, "install", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ensure_package(node, announce=lambda _: None, cache_root=tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]

    assert ensure_package(node, announce=lambda _: None, cache_root=tmp_path).version == "5.62.0"
    assert len(installed) == 1


def test_leftovers_of_a_killed_install_are_cleared(tmp_path: Path, node: Node, installed: list[Path]) -> None:
    name = ensure_package(node, announce=lambda _: None, cache_root=tmp_path / "elsewhere").root.name
    for leftover in (f"{name}.part-abc", name):
        (tmp_path / leftover / "node_modules").mkdir(parents=True)
    root = ensure_package(node, announce=lambda _: None, cache_root=tmp_path).root
    assert len(installed) == 2
    assert list(tmp_path.glob("npm-*")) == [root]


def test_an_npm_that_installs_nothing_is_a_problem(tmp_path: Path, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_module, "install", lambda *_: None)
    with pytest.raises(EnvironmentProblem, match="installed no bullmq"):
        ensure_package(node, announce=lambda _: None, cache_root=tmp_path)


def test_a_cache_that_cannot_be_written_is_a_problem(tmp_path: Path, node: Node) -> None:
    (tmp_path / "file").write_text("in the way", "utf-8")
    with pytest.raises(EnvironmentProblem, match="cannot be used") as caught:
        ensure_package(node, announce=lambda _: None, cache_root=tmp_path / "file" / "cache")
    assert CACHE_VARIABLE in caught.value.hint


def _install_in_process(cache: Path, node: Node, ready: threading.Barrier, answers: multiprocessing.Queue[str]) -> None:
    installed: list[Path] = []
    package_module.__dict__["install"] = fake_install(installed)
    ready.wait(20)
    root = ensure_package(node, announce=lambda _: None, cache_root=cache).root
    answers.put(f"{len(installed)} {root.name}")


def test_two_processes_at_once_install_once(tmp_path: Path, node: Node) -> None:
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


def test_whoever_waits_for_the_lock_is_told(tmp_path: Path) -> None:
    waiting, entered = threading.Event(), threading.Event()

    def second() -> None:
        with exclusive(tmp_path / "lock", on_wait=waiting.set):
            entered.set()

    with exclusive(tmp_path / "lock", on_wait=lambda: pytest.fail("nobody else is here")):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10)
        assert not entered.is_set()
    assert entered.wait(10)
    thread.join()


def test_npm_is_found_beside_node_and_in_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = bundled_node()
    assert bundle is not None
    assert find_npm(find_node(str(bundle))).is_relative_to(bundle.parents[1])

    lonely = tmp_path / "bin" / "node"
    lonely.parent.mkdir()
    lonely.touch(mode=0o755)
    alone = Node(lonely, "20.0.0", "setting")
    monkeypatch.setenv("PATH", str(lonely.parent))
    assert find_npm(alone).is_relative_to(bundle.parents[1]), "the npm of the bundle serves any Node.js"
    monkeypatch.setattr("conformance.upstream.npm.bundled_node", lambda: None)
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
    assert find_npm(Node(tmp_path / "apart" / "node", "20.0.0", "setting")) == real


def test_the_summary_of_npm_errors_leaves_out_usage_and_log_file() -> None:
    output = "npm warn old\nnpm error code ENOTFOUND\nnpm error syscall getaddrinfo\nnpm error errno -3008\nnpm error\n"
    output += "npm ERR! network request to https://x failed\nnpm error A complete log of this run can be found in: /l"
    assert error_summary(output) == "code ENOTFOUND; network request to https://x failed"
    assert error_summary("Segmentation fault\n") == "Segmentation fault"
    assert error_summary("") == "it printed nothing"


def test_the_command_of_the_oracle(node: Node, package: Package) -> None:
    command, variables = driver_command(node, package)
    assert command[0] == str(node.path)
    assert Path(command[1]).is_file()
    assert variables == {"BULLMQ_CONFORMANCE_MODULES": str(package.root)}
