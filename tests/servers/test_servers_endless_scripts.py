"""A script that does not end is ended, whether or not it has written; a Redis of the user is not restarted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import redis

from conformance.problems import EnvironmentProblem
from conformance.servers.binary import any_binary
from conformance.servers.connection import connect_node, wait_until
from conformance.servers.endless_scripts import insist_on_answers, is_busy, scripts_ended
from conformance.servers.local import LocalProcess, local_process

READS = "while true do end"
WRITES = f"redis.call('SET', 'written', 1) {READS}"
Run = Callable[[str], Future[Any]]


@pytest.fixture
def process() -> Iterator[LocalProcess]:
    """A Redis that calls itself busy after a tenth of a second."""
    with local_process(any_binary(print), settings={"lua-time-limit": "100"}) as started:
        yield started
        # Ends what a test has left: the thread of the script waits for its reply.
        started.stop()


@pytest.fixture
def run(process: LocalProcess) -> Iterator[Run]:
    def evaluate(script: str) -> Any:
        with connect_node(process.address, process.address.nodes[0]) as client:
            return client.eval(script, 0)

    with ThreadPoolExecutor() as threads:

        def start(script: str) -> Future[Any]:
            running = threads.submit(evaluate, script)
            assert wait_until(lambda: is_busy(process.address), deadline_s=20)
            return running

        yield start
        process.stop()


def test_a_script_that_has_only_read_is_killed(process: LocalProcess, run: Run) -> None:
    running = run(READS)
    with scripts_ended(process.address, process.restart):
        with pytest.raises(redis.ResponseError, match="killed by user with SCRIPT KILL"):
            running.result(20)
        assert not is_busy(process.address)


def test_one_that_has_written_ends_with_its_server(process: LocalProcess, run: Run) -> None:
    running = run(WRITES)
    with scripts_ended(process.address, process.restart):
        with pytest.raises(redis.ConnectionError):
            running.result(20)
        assert wait_until(process.answers, deadline_s=20)
    with connect_node(process.address, process.address.nodes[0]) as client:
        assert client.dbsize() == 0


def test_a_restart_that_fails_is_tried_again(process: LocalProcess, run: Run) -> None:
    tries = []

    def restart() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise EnvironmentProblem("the port is in use")
        process.restart()

    running = run(WRITES)
    with scripts_ended(process.address, restart), suppress(redis.ConnectionError):
        running.result(20)
    assert len(tries) == 2


def test_a_redis_of_the_user_that_stays_busy_is_a_problem(process: LocalProcess, run: Run) -> None:
    run(WRITES)
    with pytest.raises(EnvironmentProblem, match="busy with a script that does not end and has written") as caught:
        insist_on_answers(process.address)
    assert caught.value.exit_code == 3
    assert process.running()


def test_a_redis_that_answers_is_left_alone(process: LocalProcess) -> None:
    insist_on_answers(process.address)
    assert process.answers()
