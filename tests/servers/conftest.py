"""A Redis of the tests' own, what was announced, and programs that only pretend to be Redis."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from conformance.servers import RedisInstance, open_server

Announced = list[str]
MakeProgram = Callable[[str, str], Path]


@pytest.fixture
def announced() -> Announced:
    return []


@pytest.fixture
def server(announced: Announced) -> Iterator[RedisInstance]:
    with open_server(None, announce=announced.append) as opened:
        yield opened


@pytest.fixture
def closed_port() -> int:
    """A closed port: it was free a moment ago."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture
def make_program(tmp_path: Path) -> MakeProgram:
    """Write an executable script into a folder of its own; returns its path."""

    def make(name: str, body: str) -> Path:
        program = tmp_path / "programs" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        return program

    return make


@pytest.fixture
def pretended_version() -> Iterator[Callable[[str], int]]:
    """Start something that answers INFO with a version of the test's choice, all else with OK; returns its port."""
    listeners: list[socket.socket] = []

    def start(version: str) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threading.Thread(target=_pretend, args=(listener, version), daemon=True).start()
        port: int = listener.getsockname()[1]
        return port

    yield start
    for listener in listeners:
        listener.close()


def _pretend(listener: socket.socket, version: str) -> None:
    info = f"# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\nrole:master\r\n".encode()
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with closing(connection):
            while request := connection.recv(65536):
                # The client may send several commands at once; each starts with its number of words.
                for command in request.split(b"\r\n*"):
                    reply = (
                        b"$%d\r\n%s\r\n" % (len(info), info)
                        if b"INFO" in command.upper().split(b"\r\n")
                        else b"+OK\r\n"
                    )
                    connection.sendall(reply)
