"""The clients that the benchmarks compare: each is a child process that carries out tasks and measures itself."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from conformance.environment.clients import ensure_python_environment
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.servers import RedisInstance
from conformance.upstream.node import find_node
from conformance.upstream.package import MODULES_VARIABLE, ensure_package

Announce = Callable[[str], None]

HERE: Final = Path(__file__).parent
NODE: Final = "node"
REFERENCE: Final = "reference"
FAST_REFERENCE: Final = "reference+uvloop"
OFFICIAL: Final = "python-official"
NAMES: Final = (NODE, REFERENCE, FAST_REFERENCE, OFFICIAL)

_LAST_LINES: Final = 6


@dataclass(frozen=True)
class Command:
    """How a peer is started, and what is added to its environment."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """Where a peer finds its queue. `prefix` is shared by all peers of a session, queues are not."""

    host: str
    port: int
    prefix: str


class Peer:
    """A running child process. Raises EnvironmentProblem, with the end of its stderr, when it does not answer."""

    def __init__(self, name: str, process: subprocess.Popen[str], errors: IO[str]) -> None:
        self.name = name
        self._process = process
        self._errors = errors

    def do(self, task: str, place: Place, queue: str, **args: Any) -> Any:
        """Carry out a task on a queue; answers what the task measured."""
        where = {"host": place.host, "port": place.port, "prefix": place.prefix, "queue": queue}
        line = self._exchange(json.dumps({"task": task, "args": {**where, **args}}))
        answer = json.loads(line) if line else {"error": self._last_words()}
        if "error" in answer:
            raise EnvironmentProblem(f"peer {self.name} could not {task}: {answer['error'].strip()}")
        return answer["value"]

    def resident_bytes(self) -> int:
        """Resident memory of the process, as the system counts it."""
        command = ["ps", "-o", "rss=", "-p", str(self._process.pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EnvironmentProblem(
                f"ps does not know peer {self.name}", hint="look at what it printed before it died"
            )
        return int(done.stdout) * 1024

    def stop(self) -> None:
        """End the process: it leaves when its stdin ends."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()

    def _exchange(self, request: str) -> str:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        try:
            requests.write(f"{request}\n")
            requests.flush()
        except BrokenPipeError:
            return ""
        return answers.readline()

    def _last_words(self) -> str:
        self._errors.seek(0)
        return " | ".join(self._errors.read().strip().splitlines()[-_LAST_LINES:]) or "it ended without a word"


def default_names() -> list[str]:
    """Every peer; the one on uvloop only where that is installed."""
    return [name for name in NAMES if name != FAST_REFERENCE or importlib.util.find_spec("uvloop")]


def place_on(server: RedisInstance, port: int | None = None) -> Place:
    """Answer a fresh prefix on this Redis, reached directly or by another port of this machine (a proxy's)."""
    host, _, own_port = server.nodes[0].rpartition(":")
    return Place(host, port or int(own_port), server.fresh_prefix())


@contextmanager
def running(names: Sequence[str], announce: Announce) -> Iterator[list[Peer]]:
    """Start peers, and end them after the block. Installs what is missing."""
    with ExitStack() as stack:
        yield [stack.enter_context(_started(name, announce)) for name in names]


@contextmanager
def _started(name: str, announce: Announce) -> Iterator[Peer]:
    command = _command(name, announce)
    environment = {**os.environ, **command.environment}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(
            command.words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            cwd=HERE.parent,
        )
        peer = Peer(name, process, errors)
        try:
            yield peer
        finally:
            peer.stop()


def _command(name: str, announce: Announce) -> Command:
    if name == NODE:
        node = find_node(None)
        package = ensure_package(node, announce=announce)
        return Command([str(node.path), str(HERE / "peer.mjs")], {MODULES_VARIABLE: str(package.root)})
    if name in {REFERENCE, FAST_REFERENCE}:
        chosen_loop = ["--uvloop"] if name == FAST_REFERENCE else []
        return Command([sys.executable, "-m", "benchmarks.peer", "reference", *chosen_loop])
    if name == OFFICIAL:
        requirements = HERE.parent / "conformance" / "clients" / "python_official" / "requirements.txt"
        python = ensure_python_environment(name, requirements, announce=announce)
        return Command([str(python), str(HERE / "peer.py"), "official"])
    raise UsageProblem(f"unknown peer {name!r}", hint=f"use some of {', '.join(NAMES)}")
