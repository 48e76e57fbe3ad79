"""Processes that a driver starts and that leave its session are ended with it, or named."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from conformance.driver import descendants
from conformance.driver.ops import queue
from conformance.driver.transports import ChildProcess, kill_all
from tests.driver.conftest import Mini

START = """
def leave(folder, *, between=lambda: None, command=("sleep", "600"), **more):
    if os.fork() == 0:
        os.setsid()
        between()
        if os.fork():
            hang() if more.get("stay") else os._exit(0)
        for name in ("stdin", "stdout", "stderr"):
            os.close(getattr(sys, name).fileno())
        open(folder + "/part", "w").write(str(os.getpid()))
        os.rename(folder + "/part", folder + "/pid")
        os.execvpe(command[0], list(command), more.get("env", os.environ))
"""
"""A driver's function: it forks twice, with a session of its own in between. `stay`: the first process goes on."""
BODY = START + "ready(); leave(os.environ['FOLDER'], {how}); ok(hear(), id='1'); {end}"
ENDINGS: dict[str, Callable[[ChildProcess], object]] = {
    "killed": ChildProcess.kill,
    "closed": ChildProcess.close,
    "interrupted": lambda _connection: kill_all(),
}


def started(mini: Mini, folder: Path, how: str, end: str, eventually: Any) -> tuple[ChildProcess, Path]:
    """The driver, and the folder in /proc of the process that left its session."""
    connection = mini(BODY.format(how=how, end=end), env={"FOLDER": str(folder)})
    eventually((folder / "pid").exists, seen=lambda: connection.log_tail(5))
    assert connection.call(queue.Add(name="n")).id == "1"
    return connection, Path("/proc") / (folder / "pid").read_text()


def has_ended(process: Path) -> bool:
    with suppress(OSError):
        return ") Z " in (process / "stat").read_text()
    return True


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_that_left_the_session_of_its_driver_is_ended(
    mini: Mini, tmp_path: Path, eventually: Any, ending: str
) -> None:
    connection, process = started(mini, tmp_path, "", "hear()", eventually)
    assert os.getsid(int(process.name)) != os.getsid(connection.pid)
    ENDINGS[ending](connection)
    assert has_ended(process)


@pytest.mark.parametrize("ending", ["killed", "closed"])
def test_its_environment_is_not_needed_while_its_parent_lives(
    mini: Mini, tmp_path: Path, eventually: Any, ending: str
) -> None:
    connection, process = started(mini, tmp_path, "env={'PATH': os.environ['PATH']}, stay=True", "hear()", eventually)
    ENDINGS[ending](connection)
    assert has_ended(process)


def test_a_driver_that_crashed_leaves_nothing_either(mini: Mini, tmp_path: Path, eventually: Any) -> None:
    connection, process = started(mini, tmp_path, "", "os._exit(7)", eventually)
    eventually(lambda: has_ended(process), seen=lambda: connection.alive)


def test_a_kill_of_the_group_does_not_reach_it(mini: Mini, tmp_path: Path, eventually: Any) -> None:
    """As it outlives a worker that is killed from outside; the kit ends it later."""
    connection, process = started(mini, tmp_path, "", "hear()", eventually)
    connection.kill_group()
    assert not has_ended(process)
    connection.kill()
    assert has_ended(process)


def test_only_its_own_processes_are_ended(mini: Mini, tmp_path: Path, eventually: Any) -> None:
    folders = tmp_path / "one", tmp_path / "other"
    for folder in folders:
        folder.mkdir()
    one, other = (started(mini, folder, "", "hear()", eventually) for folder in folders)
    one[0].kill()
    assert has_ended(one[1])
    assert not has_ended(other[1])


def test_a_process_that_cannot_be_ended_is_named(
    mini: Mini, tmp_path: Path, eventually: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = r"command=('sh', '-c', 'sleep 600', 'a\x1b[31m')"
    connection, process = started(mini, tmp_path, command, "hear()", eventually)
    eventually(lambda: b"sleep" in (process / "cmdline").read_bytes(), seen=(process / "cmdline").read_bytes)
    with monkeypatch.context() as patched:
        patched.setattr(descendants, "END_S", 0.1)
        patched.setattr(psutil.Process, "kill", refuse)
        connection.kill()
    said = capsys.readouterr().err
    assert f"has left process {process.name} (sh -c sleep 600 a\\x1b[31m), which cannot be ended" in said
    connection.kill()
    assert has_ended(process)


def refuse(*_: object) -> None:
    raise psutil.AccessDenied
