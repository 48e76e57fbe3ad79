"""The registry of clients, and the Python environments that some of them need."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.environment import clients, node_environments
from conformance.environment.clients import (
    Launch,
    Toolchain,
    client_names,
    oracle_version,
)
from conformance.environment.node_environments import ensure_node_environment
from conformance.environment.python_environments import PythonPackages, ensure_python_environment, packages_of
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.upstream import registry
from conformance.upstream.installed_files import record_files, resolved_packages
from conformance.upstream.node import NodeBinary, find_node
from conformance.upstream.package import HARNESS, MODULES_VARIABLE, BullMQPackage
from conformance.upstream.redis_libraries import LIBRARY_VARIABLE, OTHERS, OtherLibrary, RedisLibrary, bun_program


@pytest.fixture
def announced() -> list[str]:
    return []


@pytest.fixture
def toolchain(tmp_path: Path, announced: list[str]) -> Toolchain:
    """A Node and a package that need not exist: nothing is started."""
    return Toolchain(
        NodeBinary(Path("/opt/node"), "20.0.0", "setting"), BullMQPackage(tmp_path, "5.62.0", "00"), announced.append
    )


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("BULLMQ_CONFORMANCE_CACHE", str(folder))
    return folder


# The registry.


def test_the_names_of_all_clients() -> None:
    assert client_names()[:2] == ["reference", "node"]
    assert "python-official" in client_names()


def test_the_oracle_is_the_node_driver_on_the_pinned_package(toolchain: Toolchain, tmp_path: Path) -> None:
    launch = toolchain.oracle
    assert launch.command == ["/opt/node", str(HARNESS / "driver.mjs")]
    assert launch.environment == {MODULES_VARIABLE: str(tmp_path)}
    assert toolchain.launch("node") == launch


def test_the_reference_is_started_by_command_with_the_same_node(toolchain: Toolchain) -> None:
    launch = toolchain.launch("reference")
    assert launch.command == [sys.executable, "-m", "conformance.reference_impl.driver"]
    assert launch.environment == {"BULLMQ_CONFORMANCE_NODE": "/opt/node"}


def test_a_command_is_taken_as_it_is(toolchain: Toolchain) -> None:
    command = ["driver", "$HOME", "{here}"]
    assert toolchain.launch("mine", command) == Launch("mine", command)


def test_a_partner_is_a_name_or_a_command_in_one_text(toolchain: Toolchain) -> None:
    assert toolchain.partner("reference") == toolchain.launch("reference")
    assert toolchain.partner("bin/driver") == Launch("driver", ["bin/driver"])
    assert toolchain.partner("python 'my driver.py' -v") == Launch("python", ["python", "my driver.py", "-v"])
    for text, why in (
        ("no-such-client", "unknown client 'no-such-client'"),
        ("driver 'open", "cannot be read"),
        ("", "unknown client"),
    ):
        with pytest.raises(UsageProblem, match=why):
            toolchain.partner(text)


def test_an_unknown_name_lists_what_there_is(toolchain: Toolchain) -> None:
    with pytest.raises(UsageProblem, match="unknown client 'no-such-client'") as caught:
        toolchain.launch("no-such-client")
    assert all(name in caught.value.hint for name in client_names())


def recorded_package(root: Path, version: str) -> BullMQPackage:
    """An installation of one file, as npm would leave it."""
    (root / "node_modules" / "bullmq").mkdir(parents=True, exist_ok=True)
    (root / "node_modules" / "bullmq" / "index.js").write_text("", "utf-8")
    record_files(root)
    return BullMQPackage(root, version, "")


def test_another_version_of_bullmq_is_driven_by_the_oracles_driver(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = recorded_package(tmp_path / "other", "5.81.3")
    monkeypatch.setattr(clients, "ensure_bullmq", lambda _node, version, **_: {"5.81.3": other}[version])
    launch = toolchain.launch("node@5.81.3")
    assert (launch.name, launch.command) == ("node@5.81.3", toolchain.oracle.command)
    assert launch.environment == {MODULES_VARIABLE: str(other.root)}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("reference@1.0.0", "cannot be chosen for the reference"),
        ("node@newest-x", "has no valid version"),
        ("node@", "has no valid version"),
        ("@5.81.3", "unknown client"),
    ],
)
def test_an_invalid_version_is_refused(toolchain: Toolchain, name: str, why: str) -> None:
    with pytest.raises(UsageProblem, match=why):
        toolchain.launch(name)


def test_a_word_for_a_version_becomes_the_version_that_npm_has(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "npm_output", lambda *_: '["5.9.0", "5.81.5", "6.7.0-rc.1", "6.10.0", "6.9.1"]')
    monkeypatch.setattr(
        clients, "ensure_bullmq", lambda _node, version, **_: BullMQPackage(tmp_path / version, version, "")
    )
    named = {word: toolchain.launch(f"node@{word}").name for word in ("newest", "latest", "newest-5", "newest-6")}
    assert named == {
        "newest": "node@6.10.0",
        "latest": "node@6.10.0",
        "newest-5": "node@5.81.5",
        "newest-6": "node@6.10.0",
    }
    with pytest.raises(UsageProblem, match="npm has no bullmq 7"):
        toolchain.launch("node@newest-7")


@pytest.mark.parametrize(
    ("oracle", "version"), [("", "5.62.0"), ("6.7.0", "6.7.0"), ("node@6.7.0", "6.7.0"), ("5.62.0", "5.62.0")]
)
def test_the_version_of_an_oracle(toolchain: Toolchain, oracle: str, version: str) -> None:
    assert oracle_version(toolchain.node, oracle) == version


@pytest.mark.parametrize("oracle", ["python-official@2.16.2", "reference", "6", "node@"])
def test_an_invalid_oracle_is_refused(toolchain: Toolchain, oracle: str) -> None:
    with pytest.raises(UsageProblem, match=r"oracle|invalid version"):
        oracle_version(toolchain.node, oracle)


def test_the_words_that_ask_for_a_client_again(toolchain: Toolchain) -> None:
    assert toolchain.launch("node").words == ["--client", "node"]
    assert toolchain.launch("mine", ["./driver", "-v"]).words == ["--", "./driver", "-v"]


def test_packages_below_bullmq_are_chosen_with_its_version(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def ensure(_node: NodeBinary, version: str, **more: object) -> BullMQPackage:
        asked.append((version, more["overrides"]))
        return recorded_package(tmp_path / version, version)

    monkeypatch.setattr(clients, "ensure_bullmq", ensure)
    toolchain.launch("node@6.7.0", packages=["ioredis==5.4.1"])
    toolchain.launch("node", packages=["ioredis==5.4.1"])
    assert asked == [("6.7.0", {"ioredis": "5.4.1"}), (toolchain.package.version, {"ioredis": "5.4.1"})]


@pytest.mark.parametrize(("name", "command"), [("reference", ()), ("mine", ("./driver",))])
def test_a_version_without_effect_is_refused(toolchain: Toolchain, name: str, command: tuple[str, ...]) -> None:
    with pytest.raises(UsageProblem, match="the version of redis cannot be chosen"):
        toolchain.launch(name, command, ["redis==7.4.1"])


def test_a_package_without_version_is_refused(toolchain: Toolchain) -> None:
    with pytest.raises(UsageProblem, match="invalid package") as caught:
        toolchain.launch("node", packages=["ioredis"])
    assert "redis==7.4.1" in caught.value.hint


def test_a_client_of_another_version_gets_an_environment_of_its_own(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "some_client"
    folder.mkdir()
    described = 'description = "Some"\ncommand = ["{python}"]\nrequirements = "pins.txt"\npackage = "some"\n'
    (folder / "client.toml").write_text(described)
    (folder / "pins.txt").write_text("# pinned\nsome==1.0 \\\n    --hash=sha256:00\nredis==8.1.0\n")
    installed: list[PythonPackages] = []
    monkeypatch.setattr(clients, "files", lambda _package: tmp_path)

    def ensure(_name: str, packages: PythonPackages, **_: object) -> Path:
        installed.append(packages)
        return Path("python")

    monkeypatch.setattr(clients, "ensure_python_environment", ensure)
    toolchain.launch("some-client")
    toolchain.launch("some-client@2.0")
    toolchain.launch("some-client", packages=["redis==7.4.1"])
    assert [packages.words for packages in installed] == [
        ("--require-hashes", "--no-deps", "-r", str(folder / "pins.txt")),
        ("some==2.0",),
        ("some==1.0", "redis==7.4.1"),
    ]
    assert len({packages.key for packages in installed}) == 3


def test_a_folder_with_a_client_toml_is_a_client(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "some_client"
    folder.mkdir()
    (folder / "client.toml").write_text('description = "Some"\ncommand = ["{python}", "{here}/driver.py", "-v"]\n')
    monkeypatch.setattr(clients, "files", lambda _package: tmp_path)
    assert client_names() == ["reference", "node", "some-client"]
    launch = toolchain.launch("some-client")
    assert launch.command == [sys.executable, f"{folder}/driver.py", "-v"]


@pytest.mark.usefixtures("cache")
def test_a_node_client_gets_the_packages_that_its_lock_pins(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain = dataclasses.replace(toolchain, node=find_node())
    folder = tmp_path / "clients" / "some_client"
    (folder / "helper").mkdir(parents=True)
    (folder / "client.toml").write_text('description = "Some"\ncommand = ["{node}", "{here}/driver.mjs"]\nnpm = true\n')
    (folder / "driver.mjs").write_text("import { answer } from 'helper'; console.log(answer);\n")
    package = {"name": "some", "version": "1.0.0", "dependencies": {"helper": "file:helper"}}
    (folder / "package.json").write_text(json.dumps(package))
    (folder / "helper" / "package.json").write_text('{"name": "helper", "version": "1.0.0", "exports": "./it.mjs"}')
    (folder / "helper" / "it.mjs").write_text("export const answer = 42;\n")
    # A package of one file in the folder itself, so that installing it needs no network.
    packages = {
        "": package,
        "helper": {"version": "1.0.0"},
        "node_modules/helper": {"resolved": "helper", "link": True},
    }
    lock = {"name": "some", "version": "1.0.0", "lockfileVersion": 3, "requires": True, "packages": packages}
    (folder / "package-lock.json").write_text(json.dumps(lock))
    monkeypatch.setattr(clients, "files", lambda _package: folder.parent)

    launches = [toolchain.launch("some-client").command for _ in range(2)]
    assert launches[0] == launches[1]
    assert subprocess.run(launches[0], capture_output=True, text=True, check=True).stdout == "42\n"
    assert not (folder / "node_modules").exists()
    (folder / "driver.mjs").write_text("console.log(43);\n")
    changed = toolchain.launch("some-client").command
    assert subprocess.run(changed, capture_output=True, text=True, check=True).stdout == "43\n"


# Environments.


def tiny_wheel(folder: Path) -> Path:
    """A package of one line, so that installing it needs no network."""
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny.py", "ANSWER = 42\n")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        digest = base64.urlsafe_b64encode(hashlib.sha256(b"ANSWER = 42\n").digest()).rstrip(b"=").decode()
        record = f"tiny.py,sha256={digest},12\ntiny-1.0.dist-info/METADATA,,\ntiny-1.0.dist-info/WHEEL,,\n"
        wheel.writestr("tiny-1.0.dist-info/RECORD", f"{record}tiny-1.0.dist-info/RECORD,,\n")
    return path


@pytest.mark.slow
def test_an_environment_is_installed_once_and_again_after_an_interruption(
    tmp_path: Path, cache: Path, announced: list[str]
) -> None:
    wheel = tiny_wheel(tmp_path)
    requirements = tmp_path / "requirements.txt"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    requirements.write_text(f"tiny @ {wheel.as_uri()} --hash=sha256:{digest}\n")

    python = ensure_python_environment("tiny", PythonPackages.pinned(requirements), announce=announced.append)
    asked = subprocess.run(
        [python, "-c", "import tiny; print(tiny.ANSWER)"], capture_output=True, text=True, check=False
    )
    assert (asked.stdout, asked.stderr) == ("42\n", "")
    assert [path for path in cache.iterdir() if path.is_dir()] == [python.parent.parent]

    assert ensure_python_environment("tiny", PythonPackages.pinned(requirements), announce=announced.append) == python
    assert len(announced) == 1, "a whole environment is used as it is"


def installed_tiny(folder: Path, announced: list[str]) -> Path:
    """The root of an environment with the package of one line."""
    wheel = tiny_wheel(folder)
    packages = PythonPackages.resolved([f"tiny @ {wheel.as_uri()}"])
    return ensure_python_environment("tiny", packages, announce=announced.append).parent.parent


def tiny_file(root: Path) -> Path:
    return next(root.glob("lib/*/site-packages/tiny.py"))


CHANGES: dict[str, Callable[[Path], object]] = {
    "tiny.py": lambda file: file.write_text("ANSWER = 43\n"),
    "tiny-1.0.dist-info/METADATA": lambda file: (file.parent / "tiny-1.0.dist-info/METADATA").unlink(),
    "sitecustomize.py": lambda file: (file.parent / "sitecustomize.py").write_text("import os\n"),
    "__pycache__/tiny": lambda file: next(file.parent.glob("__pycache__/tiny.*")).write_bytes(b"other code"),
}
"""Changes of an installed environment, by the file that is named."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "change"), CHANGES.items(), ids=CHANGES)
def test_a_changed_file_of_an_environment_is_named(
    tmp_path: Path, cache: Path, announced: list[str], name: str, change: Callable[[Path], object]
) -> None:
    root = installed_tiny(tmp_path, announced)
    change(tiny_file(root))
    with pytest.raises(EnvironmentProblem, match="has changed since pip installed it") as caught:
        installed_tiny(tmp_path, announced)
    assert f"site-packages/{name}" in caught.value.what
    assert caught.value.hint == f"remove {root} and run again to install it again"
    shutil.rmtree(root)
    assert installed_tiny(tmp_path, announced) == root
    assert root.is_relative_to(cache)


@pytest.mark.usefixtures("cache")
@pytest.mark.slow
def test_a_file_compiled_later_is_not_a_change(tmp_path: Path, announced: list[str]) -> None:
    root = installed_tiny(tmp_path, announced)
    (tiny_file(root).parent / "__pycache__" / "other.pyc").write_bytes(b"compiled")
    assert installed_tiny(tmp_path, announced) == root


@pytest.mark.usefixtures("cache")
@pytest.mark.slow
def test_an_environment_knows_what_pip_resolved(tmp_path: Path, announced: list[str]) -> None:
    root = installed_tiny(tmp_path, announced)
    digest = hashlib.sha256(next(tmp_path.glob("*.whl")).read_bytes()).hexdigest()
    assert packages_of(root / "bin" / "python") == {"tiny": f"1.0 sha256:{digest}"}


def test_a_changed_file_of_a_client_from_npm_is_named(
    tmp_path: Path, cache: Path, announced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "client"
    folder.mkdir()
    (folder / "driver.mjs").write_text("run()")

    def install(_node: NodeBinary, root: Path, *_words: str) -> None:
        module = root / "node_modules" / "some"
        module.mkdir(parents=True)
        (module / "index.js").write_text("1")
        lock = {"packages": {"": {}, "node_modules/some": {"version": "1.0.0", "integrity": "sha512-abc"}}}
        (root / "node_modules" / ".package-lock.json").write_text(json.dumps(lock))

    monkeypatch.setattr(node_environments, "run_npm", install)
    node = NodeBinary(Path("node"), "20.0.0", "system")
    root = ensure_node_environment("some", folder, node, announce=announced.append)
    assert resolved_packages(root) == {"some": "1.0.0 sha512-abc"}
    for name in ("node_modules/some/index.js", "driver.mjs"):
        before = (root / name).read_text()
        (root / name).write_text("2")
        with pytest.raises(EnvironmentProblem, match=f"changed since npm installed it: {name}"):
            ensure_node_environment("some", folder, node, announce=announced.append)
        (root / name).write_text(before)
    assert ensure_node_environment("some", folder, node, announce=announced.append) == root
    assert root.is_relative_to(cache)


@pytest.fixture
def pretended_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts a shell script in the place of Python; what it does for `-m venv` and for pip is up to the test."""

    def pretend(*, pip: str = "exit 0", venv: str = "") -> Path:
        calls = tmp_path / "calls"
        program = tmp_path / "python"
        inner = f"#!/bin/sh\necho pip >> {shlex.quote(str(calls))}\n{pip}\n"
        program.write_text(
            f"#!/bin/sh\necho venv >> {shlex.quote(str(calls))}\n{venv}\n"
            f'mkdir -p "$3/bin"\nprintf %s {shlex.quote(inner)} > "$3/bin/python"\nchmod +x "$3/bin/python"\n'
        )
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        return calls

    return pretend


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.txt"
    path.write_text("anything\n")
    return path


def test_an_interrupted_installation_is_repeated(
    requirements: Path, cache: Path, announced: list[str], pretended_python: Callable[..., Path]
) -> None:
    calls = pretended_python()
    python = ensure_python_environment("it", PythonPackages.pinned(requirements), announce=announced.append)
    root = python.parent.parent
    (root / "complete").unlink()  # as if the kit had been killed before the end
    (root / "half.txt").write_text("left over")

    ensure_python_environment("it", PythonPackages.pinned(requirements), announce=announced.append)
    assert not (root / "half.txt").exists()
    assert (root / "complete").exists()
    assert calls.read_text().split() == ["venv", "pip", "venv", "pip"]
    assert python.is_relative_to(cache)


def test_a_failing_pip_is_an_environment_problem_with_its_last_lines(
    requirements: Path, cache: Path, announced: list[str], pretended_python: Callable[..., Path]
) -> None:
    pretended_python(pip="seq 1 50; echo 'ERROR: no matching distribution' >&2; exit 1")
    with pytest.raises(EnvironmentProblem) as caught:
        ensure_python_environment("it", PythonPackages.pinned(requirements), announce=announced.append)
    assert "ERROR: no matching distribution" in caught.value.what
    assert "\n" not in caught.value.what
    assert " 40 " not in caught.value.what, "only the last lines are shown"
    assert caught.value.hint
    assert not list(cache.glob("*/complete")), "a failed installation is not taken for a whole one"


def test_a_failing_venv_is_an_environment_problem(
    requirements: Path, cache: Path, announced: list[str], pretended_python: Callable[..., Path]
) -> None:
    calls = pretended_python(venv="echo 'no ensurepip' >&2; exit 1")
    with pytest.raises(EnvironmentProblem, match="no ensurepip"):
        ensure_python_environment("it", PythonPackages.pinned(requirements), announce=announced.append)
    assert calls.read_text().split() == ["venv"]
    assert cache.exists()


def test_a_cache_that_cannot_be_written_is_an_environment_problem(
    requirements: Path, tmp_path: Path, announced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("BULLMQ_CONFORMANCE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(EnvironmentProblem, match="cannot be used") as caught:
        ensure_python_environment("it", PythonPackages.pinned(requirements), announce=announced.append)
    assert "BULLMQ_CONFORMANCE_CACHE" in caught.value.hint


def test_two_that_install_at_once_install_once(
    requirements: Path, cache: Path, announced: list[str], pretended_python: Callable[..., Path]
) -> None:
    calls = pretended_python()
    together = [
        threading.Thread(
            target=ensure_python_environment,
            args=("it", PythonPackages.pinned(requirements)),
            kwargs={"announce": announced.append},
        )
        for _ in range(4)
    ]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join(30)
    assert calls.read_text().split() == ["venv", "pip"]
    assert len(list(cache.glob("*/complete"))) == 1


def test_other_requirements_are_another_environment(
    requirements: Path, cache: Path, announced: list[str], pretended_python: Callable[..., Path]
) -> None:
    pretended_python()
    first = ensure_python_environment("it", PythonPackages.pinned(requirements), announce=announced.append)
    requirements.write_text("something else\n")
    assert ensure_python_environment("it", PythonPackages.pinned(requirements), announce=announced.append) != first
    assert len(list(cache.glob("*/complete"))) == 2


# Libraries for Redis.


def test_node_with_another_library_for_redis(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = recorded_package(tmp_path / "other", "6.7.0")
    asked: list[OtherLibrary] = []

    def ensure(_node: NodeBinary, _version: str, *, library: OtherLibrary, **_: object) -> BullMQPackage:
        asked.append(library)
        return installed

    monkeypatch.setattr(clients, "ensure_bullmq", ensure)
    launch = toolchain.launch("node@6.7.0", library="redis")
    assert asked == [OTHERS["redis"]]
    assert launch.command == toolchain.oracle.command
    assert launch.environment == {MODULES_VARIABLE: str(installed.root), LIBRARY_VARIABLE: "redis"}
    assert launch.words == ["--with-driver", "redis", "--client", "node@6.7.0"]
    monkeypatch.setattr(clients, "bun_program", lambda: "/opt/bun")
    assert toolchain.launch("node@6.7.0", library="bun").command == ["/opt/bun", *toolchain.oracle.command[1:]]


@pytest.mark.parametrize(
    ("name", "command", "library", "why"),
    [
        ("node", (), "redis", "BullMQ 5.62.0 cannot use redis"),
        ("node@5.80.0", (), "valkey-glide", "BullMQ 5.80.0 cannot use valkey-glide"),
        ("node@5.76.11", (), "bun", "BullMQ 5.76.11 cannot use bun"),
        ("reference", (), "redis", "no effect on 'reference'"),
        ("mine", ("./driver",), "redis", "no effect on 'mine'"),
    ],
)
def test_a_library_that_a_client_cannot_use_is_refused(
    toolchain: Toolchain, name: str, command: tuple[str, ...], library: RedisLibrary, why: str
) -> None:
    with pytest.raises(UsageProblem, match=why) as caught:
        toolchain.launch(name, command, library=library)
    assert "--client node@6.7.0" in caught.value.hint


def test_bun_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match="needs the program bun"):
        bun_program()
