"""The benchmarks measure what they say, on numbers small enough for a test."""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from rich.console import Console
from rich.table import Table

from benchmarks import producer, sessions, worker
from benchmarks.peers import (
    NODE,
    OFFICIAL,
    PURE_REFERENCE,
    REFERENCE,
    RUST_BUILD,
    RUST_OFFICIAL,
    chosen_names,
    command_of,
)
from benchmarks.sessions import Session, processor_s, slow_proxy
from benchmarks.worker import Resident
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.upstream.package import CACHE_VARIABLE

ROOT = Path(__file__).parents[2]
SMALL_PEERS = [NODE, REFERENCE, PURE_REFERENCE]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with sessions.session(SMALL_PEERS, None) as opened:
        yield opened


def shown(table: Table) -> str:
    console = Console(width=200, file=io.StringIO())
    with console.capture() as captured:
        console.print(table)
    return captured.get()


@pytest.mark.slow
def test_every_peer_does_every_task(session: Session) -> None:
    for peer in session.peers:
        assert worker.jobs_per_second(session, peer, 50) > 0
        assert producer.jobs_per_second(session, peer, "add", 20) > 0
        assert producer.jobs_per_second(session, peer, "addBulk", 1001) > 0
        assert all(0 < time_ms < 1000 for time_ms in worker.pickup_times(session, peer, 5))


@pytest.mark.slow
def test_processor_time_of_jobs_is_measured(session: Session) -> None:
    """The clock of processor times ticks every 10 ms, so there are enough jobs for some ticks."""
    rates, costs = session.in_turns(1, worker.works(session, 1000, 10), 1000)
    for peer in session.peers:
        assert rates[peer.name][0] > 0
        assert 10 <= costs[peer.name][0] < 10_000
    assert "x node" in shown(sessions.cost_table(costs, [NODE]))


def test_the_rust_peer_does_every_task(session: Session) -> None:
    if not RUST_BUILD.program.exists():
        pytest.skip(
            "the Rust peer is not built yet on this machine: `python -m benchmarks.worker --peers rust-official`"
        )
    with session.fresh_peer(RUST_OFFICIAL) as peer:
        assert worker.jobs_per_second(session, peer, 50, concurrency=10) > 0
        assert producer.jobs_per_second(session, peer, "add", 20) > 0
        assert all(0 < time_ms < 1000 for time_ms in worker.pickup_times(session, peer, 3))
        with session.place() as place, session.server.connect() as client:
            assert peer.do("addBulk", place, "q", jobs=1001) > 0
            assert client.llen(f"{place.prefix}:q:wait") == 1001
            with pytest.raises(EnvironmentProblem, match="peer rust-official could not dance: unknown task dance"):
                peer.do("dance", place, "q", jobs=1)


def test_a_peer_that_the_machine_cannot_run_is_left_out_with_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    lines: list[str] = []
    assert RUST_OFFICIAL not in chosen_names(None, lines.append)
    assert "rust-official is left out: needs cargo: install Rust, for example with rustup" in lines
    with pytest.raises(EnvironmentProblem, match="'rust-official-peer' needs cargo to be built, but it is not on PATH"):
        command_of(RUST_OFFICIAL, lines.append)


def test_the_pure_peer_runs_without_hiredis(session: Session) -> None:
    with session.place() as place:
        found = {peer.name: peer.do("isAccelerated", place, "q") for peer in session.references()}
    assert found == {REFERENCE: True, PURE_REFERENCE: False}


def test_peers_are_chosen_by_name() -> None:
    assert chosen_names("node,reference,node", pytest.fail) == [NODE, REFERENCE]


def test_commands_by_hand_add_every_job(session: Session) -> None:
    reference = session.references()[0]
    with session.place() as place, session.server.connect() as client:
        assert reference.do("byHand", place, "q", jobs=1001) > 0
        assert client.llen(f"{place.prefix}:q:wait") == 1 + 1001


def test_a_measurement_leaves_nothing_behind(session: Session) -> None:
    worker.jobs_per_second(session, session.peers[0], 10)
    with session.server.connect() as client:
        assert client.dbsize() == 0


def test_the_stalled_check_is_timed_on_locked_jobs(session: Session) -> None:
    reference = session.references()[0]
    times = worker.check_times(session, reference, 30)
    assert len(times) == 10
    with session.place() as place, pytest.raises(EnvironmentProblem, match="fewer jobs than it should have"):
        reference.do("stalled", place, "q", jobs=1, checks=1)


def test_a_fresh_process_is_measured_for_growth(session: Session) -> None:
    measured = worker.memory(session, REFERENCE, 100)
    assert measured.before_mb > 1
    assert -50 < measured.growth_mb < 50


def test_the_slow_network_is_slow(session: Session) -> None:
    reference = session.references()[0]
    near = producer.cost_nearby(session, reference, 20)
    far = producer.cost_far_away(session, reference, argparse.Namespace(round_trip_ms=20.0, pairs=5))
    assert min(far.add_us, far.by_hand_us) >= 20_000
    # No bound of its own for what is near: on a busy machine that is slow as well.
    assert near.add_us < far.add_us
    assert near.by_hand_us < far.by_hand_us


def test_the_proxy_delays_both_directions(session: Session) -> None:
    host, _, port = session.server.nodes[0].rpartition(":")
    with slow_proxy(host, int(port), 0.05) as slow_port, redis.Redis(host=host, port=slow_port) as client:
        client.ping()
        started = time.perf_counter()
        client.ping()
        assert time.perf_counter() - started >= 0.05


def test_a_peer_that_fails_says_why(session: Session) -> None:
    with session.place() as place, pytest.raises(EnvironmentProblem, match="peer reference could not dance"):
        session.references()[0].do("dance", place, "q")


def test_a_peer_that_dies_says_what_it_said_last(session: Session) -> None:
    with session.fresh_peer(REFERENCE) as peer, session.place() as place:
        peer._process.kill()
        with pytest.raises(EnvironmentProblem, match="peer reference could not add: it ended without a word"):
            peer.do("add", place, "q", jobs=1)


def test_an_unknown_peer_is_a_usage_problem() -> None:
    with pytest.raises(UsageProblem, match="unknown peer 'mine'"), sessions.running(["mine"], print):
        pass


def test_ratios_are_taken_round_by_round() -> None:
    assert sessions.ratio([10, 40, 90], [10, 20, 30]) == 2
    assert sessions.ratio([1, 1], [2, 4]) == pytest.approx(0.375)


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(number) for number in range(1, 201)]
    assert sessions.percentile(values, 99) == 198
    assert sessions.percentile([5.0], 99) == 5
    assert sessions.percentile(values, 0) == 1


def test_verdicts_can_be_met_and_missed() -> None:
    def verdicts(fast: float, slow: float) -> str:
        options = argparse.Namespace(active=10, memory_jobs=10)
        rates = {NODE: [500.0], REFERENCE: [fast], OFFICIAL: [100.0]}
        single = {REFERENCE: [slow], NODE: [5.0]}
        memories = {REFERENCE: Resident(50, 50 + slow), NODE: Resident(80, 80)}
        checks = {REFERENCE: [slow]}
        return shown(worker._verdicts({10: rates, 100: rates}, single, checks, memories, options))

    assert "missed" not in verdicts(600, 1)
    assert verdicts(600, 1).count("met") == 9
    assert verdicts(300, 1).count("missed") == 4
    assert verdicts(600, 1000).count("missed") == 5


def test_costs_can_be_too_high() -> None:
    def verdicts(bulk: float, cost_us: float) -> str:
        cost = {REFERENCE: producer.Cost(add_us=0, by_hand_us=1000, difference_us=cost_us)}
        rates = {NODE: [1000.0], REFERENCE: [bulk]}
        return shown(producer._verdicts(rates, cost, cost, argparse.Namespace(round_trip_ms=1.0)))

    assert "missed" not in verdicts(1100, 20)
    assert verdicts(900, 20).count("missed") == 1
    assert verdicts(1100, 60).count("missed") == 2


@pytest.mark.parametrize("name", ["worker", "producer"])
@pytest.mark.slow
def test_the_command_line_measures_and_prints(name: str) -> None:
    sizes = {"worker": ["--pickups", "3", "--active", "5", "--memory-jobs", "5"], "producer": ["--pairs", "5"]}[name]
    command = [sys.executable, "-m", f"benchmarks.{name}", "--rounds", "1", "--jobs", "20", "--peers", "node,reference"]
    done = subprocess.run([*command, *sizes], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "targets of the reference client" in done.stdout


def test_a_mistake_is_one_line() -> None:
    command = [sys.executable, "-m", "benchmarks.worker", "--peers", "mine"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert "unknown peer 'mine'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_processor_time_of_a_process_grows_with_its_work() -> None:
    before = processor_s()
    deadline = time.monotonic() + 30
    while processor_s() <= before:
        assert time.monotonic() < deadline, f"still at {before} s"
    assert processor_s() > before
