from __future__ import annotations

import builtins
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import NoReturn

import pytest

from conformance.problems import EnvironmentProblem
from conformance.servers import open_server

Announced = list[str]
Missing = Callable[[str, str], NoReturn]

IMAGE = "bullmq-conformance/redis"
"""Built on this machine, since one for tests may not reach any registry."""


def docker(*arguments: str) -> str:
    said = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, timeout=60)
    return said.stdout.strip() if said.returncode == 0 else ""


@pytest.fixture
def engine(missing: Missing, monkeypatch: pytest.MonkeyPatch) -> None:
    """A docker engine with the image; without Ryuk, whose image comes from a registry."""
    if which("docker") is None:
        missing("docker", "docker is not on PATH")
    if not docker("info", "--format", "{{.ServerVersion}}"):
        missing("docker", "no docker engine answers")
    if not docker("image", "inspect", "--format", "{{.Id}}", IMAGE):
        missing("docker", f"the image {IMAGE} is missing: see docs/how-to/chaos.md, Images")
    from testcontainers.core.config import testcontainers_config

    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)


def own_containers() -> set[str]:
    """Those of this process: others on the machine may come and go."""
    from testcontainers.core.labels import LABEL_SESSION_ID, SESSION_ID

    return set(docker("ps", "--all", "--quiet", "--filter", f"label={LABEL_SESSION_ID}={SESSION_ID}").split())


@pytest.mark.usefixtures("engine")
def test_a_container_provides_redis_and_is_removed(announced: Announced) -> None:
    before = own_containers()
    with open_server(f"container:{IMAGE}", announce=announced.append) as server:
        assert server.own
        assert server.mode == "standalone"
        assert server.source == f"container {IMAGE}"
        assert server.settings["save"] == ""
        assert server.settings["appendonly"] == "no"
        assert len(own_containers() - before) == 1
        prefix = server.fresh_prefix()
        with server.connect() as client:
            client.set(f"{prefix}:q:id", 1)
        assert server.remove_prefix(prefix) == 1
    assert own_containers() == before
    assert announced == []


@pytest.mark.usefixtures("engine")
def test_a_cluster_of_containers_holds_every_slot_and_is_removed(announced: Announced) -> None:
    before = own_containers()
    with open_server(f"container-cluster:3:{IMAGE}", announce=announced.append) as server:
        assert (server.own, server.mode, len(server.nodes)) == (True, "cluster", 3)
        assert server.source == f"cluster of 3 containers of {IMAGE}"
        assert len(own_containers() - before) == 3
        with server.connect() as client:
            # With this many tags, every one of the masters has several.
            keys = [f"{{{number}}}:key" for number in range(30)]
            assert all(client.set(key, "1") for key in keys)
            assert sum(client.delete(key) for key in keys) == 30
        prefix = server.fresh_prefix()
        assert prefix.startswith("{")
        assert server.remove_prefix(prefix) == 0
    assert own_containers() == before
    assert announced == []


@pytest.mark.long(7)
@pytest.mark.usefixtures("engine")
def test_the_gate_runs_on_a_cluster_of_containers() -> None:
    where = ("--redis", f"container-cluster:3:{IMAGE}", "--select", "cluster.*")
    command = (sys.executable, "-m", "conformance", "run", "--client", "reference", *where)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert "SELECTION HOLDS" in done.stdout, done.stdout + done.stderr


@pytest.mark.usefixtures("engine")
def test_a_container_is_removed_after_an_exception(announced: Announced) -> None:
    before = own_containers()
    with pytest.raises(KeyboardInterrupt), open_server(f"container:{IMAGE}", announce=announced.append):
        raise KeyboardInterrupt
    assert own_containers() == before


@pytest.mark.usefixtures("engine")
def test_an_image_that_does_not_exist_is_a_problem(announced: Announced) -> None:
    image = "bullmq-conformance.invalid/no-such-image:1"
    with (
        pytest.raises(EnvironmentProblem, match=f"no container of {image} could be started"),
        open_server(f"container:{image}", announce=announced.append),
    ):
        pass
    assert announced == [f"fetching the container image {image}"]


def test_without_an_engine_the_problem_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    with (
        pytest.raises(EnvironmentProblem, match="no docker engine answers") as caught,
        open_server("container", announce=print),
    ):
        pass
    assert "start the docker engine" in caught.value.hint


@pytest.mark.parametrize("package", ["docker", "testcontainers"])
def test_without_the_packages_the_problem_names_the_extra(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    real_import = builtins.__import__

    def without_package(
        name: str,
        globals_: Mapping[str, object] | None = None,
        locals_: Mapping[str, object] | None = None,
        from_list: Sequence[str] = (),
        level: int = 0,
    ) -> object:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=package)
        return real_import(name, globals_, locals_, from_list, level)

    monkeypatch.setattr(builtins, "__import__", without_package)
    with (
        pytest.raises(EnvironmentProblem, match=f"need the Python package {package}") as caught,
        open_server("container", announce=print),
    ):
        pass
    assert caught.value.hint == "pip install 'WHERE[chaos]', where WHERE is the kit's checkout or wheel"


def test_the_packages_are_only_imported_for_containers() -> None:
    root = Path(__file__).resolve().parents[2]
    look = (
        "import sys, conformance.servers; print([name for name in ('docker', 'testcontainers') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", look], cwd=root, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_a_required_engine_that_is_missing_is_a_failure(missing: Missing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BULLMQ_CONFORMANCE_REQUIRE", "java,docker")
    with pytest.raises(pytest.fail.Exception, match="no docker engine"):
        missing("docker", "no docker engine answers")
    monkeypatch.setenv("BULLMQ_CONFORMANCE_REQUIRE", "java")
    with pytest.raises(pytest.skip.Exception):
        missing("docker", "no docker engine answers")
