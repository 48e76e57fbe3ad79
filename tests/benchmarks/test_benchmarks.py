"""The benchmarks measure what they say, on numbers small enough for a test."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import pytest
import redis
from rich.console import Console

from benchmarks import sessions
from benchmarks.sessions import prefix_on, processor_s, seconds_of_node, slow_proxy
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.servers import RedisInstance, open_server


@pytest.fixture(scope="module")
def server() -> Iterator[RedisInstance]:
    with open_server(None, announce=print) as opened:
        yield opened


def test_node_adds_every_job_and_nothing_is_left_behind(server: RedisInstance) -> None:
    with prefix_on(server) as prefix, server.connect() as client:
        assert 0 < seconds_of_node(server, prefix, "q", 1001) < 60
        assert client.llen(f"{prefix}:q:wait") == 1001
    with server.connect() as client:
        assert client.dbsize() == 0


def test_a_failure_of_node_is_shown(server: RedisInstance) -> None:
    with (
        prefix_on(server) as prefix,
        pytest.raises(EnvironmentProblem, match=r"(?s)could not add jobs: .*cannot contain :"),
    ):
        seconds_of_node(server, prefix, "a:queue", 1)


def test_the_proxy_delays_both_directions(server: RedisInstance) -> None:
    host, _, port = server.nodes[0].rpartition(":")
    with slow_proxy(host, int(port), 0.05) as slow_port, redis.Redis(host=host, port=slow_port) as client:
        client.ping()
        started = time.perf_counter()
        client.ping()
        assert time.perf_counter() - started >= 0.05


def test_ratios_are_taken_round_by_round() -> None:
    assert sessions.ratio([10, 40, 90], [10, 20, 30]) == 2
    assert sessions.ratio([1, 1], [2, 4]) == pytest.approx(0.375)


@pytest.mark.parametrize(("holds", "word"), [(True, "met"), (False, "missed")])
def test_verdicts_can_be_met_and_missed(holds: bool, word: str) -> None:
    table = sessions.verdict_table("targets")
    sessions.verdict_row(table, "load", "0.9", "at least 1.0", holds=holds)
    console = Console(width=100, file=io.StringIO())
    with console.capture() as captured:
        console.print(table)
    assert captured.get().splitlines()[-2].strip("│ ").split()[-1] == word


def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise UsageProblem("unknown peer")

    with pytest.raises(SystemExit) as ended:
        sessions.run(fail)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("unknown peer")


@pytest.mark.slow
def test_the_processor_time_of_a_process_grows_with_its_work() -> None:
    before = processor_s()
    deadline = time.monotonic() + 30
    while processor_s() <= before:
        assert time.monotonic() < deadline, f"still at {before} s"
    assert processor_s() > before
