"""The program, drivers that misbehave in one way each, and things that only pretend to be Redis."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from conformance.cli import main as cli_main

from .cli_program import PROGRAM, Done, Program, run_command


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The installed program, in an empty folder."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    return lambda *words, env=None: run_command([PROGRAM, *words], cwd=folder, env=env)


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Program:
    """The same program without a new process: for what goes wrong before any scenario runs."""

    def run(*words: str | Path) -> Done:
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("BULLMQ_CONFORMANCE_REQUIRE", raising=False)
        monkeypatch.setattr(sys, "argv", ["bullmq-conformance", *map(str, words)])
        capfd.readouterr()
        code = cli_main.run()
        out, err = capfd.readouterr()
        return Done(code, out, err)

    return run


@pytest.fixture
def driver(tmp_path: Path) -> Callable[[str], list[str]]:
    """The command of a driver: `body` comes before the loop that honestly refuses everything."""

    def command(body: str) -> list[str]:
        path = tmp_path / "some_driver.py"
        path.write_text(DRIVER.replace("BODY", body), "utf-8")
        return [sys.executable, "-I", "-S", str(path)]

    return command


@pytest.fixture
def without_lifo(tmp_path: Path) -> list[str]:
    """The command of a client with one defect: it forgets the option `lifo`."""
    path = tmp_path / "without_lifo.py"
    path.write_text(WITHOUT_LIFO, "utf-8")
    return [sys.executable, str(path)]


@pytest.fixture
def closed_port() -> int:
    """A port without a listener: it was free a moment ago."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture
def old_redis() -> Iterator[int]:
    """The port of something that says it is Redis 6.0.16."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=_pretend, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1]


def _pretend(listener: socket.socket) -> None:
    info = b"# Server\r\nredis_version:6.0.16\r\nredis_mode:standalone\r\nrole:master\r\n"
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with closing(connection):
            while request := connection.recv(65536):
                for command in request.split(b"\r\n*"):
                    asked = b"INFO" in command.upper().split(b"\r\n")
                    connection.sendall(b"$%d\r\n%s\r\n" % (len(info), info) if asked else b"+OK\r\n")


DRIVER = """
import json, os, signal, sys

def say(**line):
    os.write(1, json.dumps(line).encode() + b"\\n")

def result(call, status, **more):
    say(type="result", id=call["id"], status=status, **more)

def ready():
    sys.stdin.readline()
    say(type="ready", protocol=1, client={"name": "some", "language": "python", "version": "1"},
        ops=["open", "close", "reset", "queue.add"], capabilities=[])

BODY

for line in sys.stdin:
    heard = json.loads(line)
    if heard["type"] == "call":
        result(heard, "unsupported", reason="no such operation")
os._exit(0)
"""

WITHOUT_LIFO = """
from conformance.reference_impl.driver.main import make_server
from conformance.reference_impl.scripts.runner import official_scripts

scripts = official_scripts()
server = make_server(lambda: scripts)
add = server.ops["queue.add"]

async def forgetful(handle, args):
    args["opts"].pop("lifo", None)
    return await add(handle, args)

server.ops["queue.add"] = forgetful
server.run()
"""
