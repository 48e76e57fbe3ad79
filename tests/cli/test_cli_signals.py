"""Signals at random moments: no process, key, folder or container of ours is left, and foreign keys are as before.

Once each here, by a seed of its own; `python -m tests.cli.signals --times 50` runs many of each.
"""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.cli.verbs import MODULES_OF_VERBS
from conformance.problems import EnvironmentProblem
from conformance.servers import RedisInstance, open_server
from reports.spark_problems import find_java
from tests.conftest import Missing

from . import signals
from .signals import (
    IMAGE,
    VERBS,
    Interruption,
    Room,
    Verb,
    carry_out,
    docker,
    drawn,
    plant_foreign_keys,
    restore_signals,
)

pytestmark = pytest.mark.long(4)

CARELESS = {
    "process": "subprocess.Popen(['sleep', '600'], start_new_session=True)",
    "key b'bc12345678:q:1'": "redis.set('bc12345678:q:1', 'of ours')",
    "foreign key b'x' is another": "redis.set('x', 'overwritten')",
    "foreign key b'theirs:q:wait' is another": "redis.delete('theirs:q:wait')",
    "folder bullmq-": "tempfile.mkdtemp(prefix='bullmq-')",
    "file core": "open('core', 'w').close()",
    "exit code 7": "sys.exit(7)",
    "a traceback": "print('Traceback (most recent call last):')",
}
"""The report on programs that each leave something behind, or end wrongly, and the line that causes it."""


@pytest.fixture(scope="module")
def users_redis() -> Iterator[RedisInstance]:
    """A Redis that the kit may use, with foreign keys."""
    restore_signals()
    with open_server(None, announce=print) as server:
        plant_foreign_keys(server)
        yield server


def test_every_verb_is_interrupted() -> None:
    assert {verb.words[0] for verb in VERBS} == set(MODULES_OF_VERBS)


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_nothing_is_left_of_a_verb_that_is_interrupted(
    verb: Verb, users_redis: RedisInstance, tmp_path: Path, missing: Missing
) -> None:
    if verb.contained and not docker("image", "inspect", IMAGE):
        missing("docker", f"no docker engine answers that has the image {IMAGE}: see docs/how-to/chaos.md, Images")
    if verb.needs_java:
        try:
            find_java()
        except EnvironmentProblem as problem:
            missing("java", problem.what)
    aftermath = carry_out(drawn(random.Random(verb.name), verb), Room(users_redis, tmp_path))
    assert not aftermath.wrong, f"{aftermath.case}: {aftermath}"


@pytest.mark.slow
def test_nothing_is_left_of_processes_that_cannot_start(users_redis: RedisInstance, tmp_path: Path) -> None:
    """Of both drivers: only the first process of a sandboxed processor does not start, and the next has to know."""
    words = ("run", "--client", "reference", "--select", "sandbox.start", "--redis", "{redis}", "--out", "{out}")
    case = Interruption(Verb("sandbox", words, signals.END_S), signal.SIGTERM, signals.END_S, False, None)
    aftermath = carry_out(case, Room(users_redis, tmp_path))
    assert aftermath.late, aftermath
    assert not aftermath.wrong, aftermath


def test_a_program_that_leaves_nothing_has_nothing_wrong(users_redis: RedisInstance, tmp_path: Path) -> None:
    aftermath = carry_out(_ends_by_itself("pass"), Room(users_redis, tmp_path))
    assert not aftermath.wrong, aftermath


@pytest.mark.parametrize(("said", "line"), CARELESS.items(), ids=CARELESS)
def test_a_program_that_leaves_something_is_reported(
    said: str, line: str, users_redis: RedisInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "GONE_S", 0.2)
    aftermath = carry_out(_ends_by_itself(line), Room(users_redis, tmp_path))
    plant_foreign_keys(users_redis)
    assert len(aftermath.wrong) == 1, aftermath
    assert aftermath.wrong[0].startswith(said), aftermath


def test_a_program_that_leaves_a_container_is_reported(
    users_redis: RedisInstance, tmp_path: Path, missing: Missing
) -> None:
    if not docker("image", "inspect", IMAGE):
        missing("docker", f"no docker engine answers that has the image {IMAGE}: see docs/how-to/chaos.md, Images")
    case = _ends_by_itself("subprocess.run(['docker', 'create', sys.argv[2]], check=True, stdout=-3)", "{image}")
    aftermath = carry_out(case, Room(users_redis, tmp_path))
    assert [what.split()[0] for what in aftermath.wrong] == ["container"], aftermath


def test_a_program_that_does_not_end_is_reported(
    users_redis: RedisInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "END_S", 0.5)
    verb = Verb("stubborn", ("import time; time.sleep(600)",), 1, program=(sys.executable, "-c"))
    previous = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as is what starts from here, from its first moment on
    try:
        aftermath = carry_out(Interruption(verb, signal.SIGTERM, 0.1, False, None), Room(users_redis, tmp_path))
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert aftermath.wrong[0].startswith("not ended"), aftermath


def _ends_by_itself(line: str, *words: str) -> Interruption:
    """A program that executes one line and ends before it is interrupted."""
    text = f"import subprocess, sys, tempfile; from redis import Redis; redis = Redis.from_url(sys.argv[1]); {line}"
    verb = Verb("careless", (text, "{redis}", *words), 60, program=(sys.executable, "-c"))
    return Interruption(verb, signal.SIGTERM, 60, False, None)
