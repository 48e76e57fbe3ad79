"""A verb that waits for Spark ends soon after a signal: while Spark starts, and while its tasks wait for places."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from conformance import interruption
from conformance.cli.verbs import MODULES_OF_VERBS
from conformance.problems import EnvironmentProblem
from conformance.servers import RedisInstance, open_server
from reports.options import CheckConfig, DiffConfig, LoadConfig, SnapshotConfig, SparkConfig
from reports.spark_problems import find_java
from reports.standalone import standalone_cluster
from tests.cli.cli_program import ROOT, clean_environment
from tests.cli.signals import (
    MARK,
    THEIRS,
    foreign_keys,
    marked,
    plant_foreign_keys,
    restore_signals,
    temporary_in,
)
from tests.conftest import Missing

pytestmark = pytest.mark.long(2)

WITHIN_S = 10.0
"""How long a verb may take to end."""
STARTS_S = 120.0
"""How long Spark may take until it waits."""
WAITING_S = 3.0
"""The signal is sent within this time of the wait."""
VERBS: dict[type[SparkConfig], tuple[str, ...]] = {
    LoadConfig: ("load", "--jobs", "20", "--worker", "reference", "--redis", "{redis}"),
    SnapshotConfig: ("snapshot", "--redis", "{redis}", "--prefix", THEIRS),
    DiffConfig: ("diff", "{redis}#" + THEIRS, "{redis}#" + THEIRS),
    CheckConfig: ("check", "{redis}#" + THEIRS),
}
"""The words of each verb that can wait for Spark."""


@contextmanager
def deaf_master() -> Iterator[str]:
    """It accepts connections and does not answer: Spark does not start."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"spark://127.0.0.1:{server.getsockname()[1]}"


def empty_cluster() -> AbstractContextManager[str]:
    """A cluster without workers: Spark starts, and its tasks wait for places."""
    return standalone_cluster(0)


MASTERS = {"starts": deaf_master, "places": empty_cluster}


def is_connected(master: str) -> bool:
    """Whether a verb has come to this master."""
    port = f":{int(master.rpartition(':')[2]):04X}"
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return any(local.endswith(port) and state == "01" for _, local, _, state, *_ in lines)


@pytest.fixture(scope="module", params=MASTERS)
def master(request: pytest.FixtureRequest) -> Iterator[str]:
    """A master that never lets a verb go on."""
    try:
        find_java()
    except EnvironmentProblem as problem:
        missing: Missing = request.getfixturevalue("missing")
        missing("java", problem.what)
    with MASTERS[request.param]() as url:
        yield url


@pytest.fixture(scope="module")
def users_redis() -> Iterator[RedisInstance]:
    """A Redis with a queue to read."""
    restore_signals()
    with open_server(None, announce=print) as server:
        plant_foreign_keys(server)
        yield server


def test_every_verb_that_can_wait_for_spark_is_here() -> None:
    assert set(VERBS) == set(SparkConfig.__subclasses__())
    assert {words[0] for words in VERBS.values()} <= set(MODULES_OF_VERBS)


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize("words", VERBS.values(), ids=lambda words: words[0])
@pytest.mark.parametrize("number", interruption.SIGNALS, ids=lambda number: number.name)
def test_a_verb_that_waits_for_spark_ends_soon_after_a_signal(
    words: tuple[str, ...], number: signal.Signals, master: str, users_redis: RedisInstance, tmp_path: Path
) -> None:
    mark, temporary, said = uuid.uuid4().hex, tmp_path / "tmp", tmp_path / "said"
    temporary.mkdir()
    names = {"redis": users_redis.text}
    before = foreign_keys(users_redis)
    with said.open("wb") as output:
        program = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "conformance",
                *(word.format_map(names) for word in words),
                "--master",
                master,
                "--out",
                str(tmp_path / "out"),
            ],
            env=clean_environment({MARK: mark, "PYTHONPATH": str(ROOT), **temporary_in(temporary)}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + STARTS_S
        while not is_connected(master):
            assert program.poll() is None, said.read_text()
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.05)
        with suppress(subprocess.TimeoutExpired):
            program.wait(random.Random(f"{words[0]} {number.name} {master[:6]}").uniform(0, WAITING_S))
        assert program.returncode is None, said.read_text()
        program.send_signal(number)
        program.wait(WITHIN_S)
    finally:
        left = marked(mark)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        program.wait()
    assert program.returncode == interruption.EXIT_CODE, said.read_text()
    assert "Traceback" not in said.read_text()
    assert not left
    assert not list(temporary.iterdir())
    assert foreign_keys(users_redis) == before
