"""The taps of a bench: one participant is hurt alone, nothing stays in force, and all that was sent is judged."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
import redis.asyncio

from conformance.driver.breakdowns import MOST_HANGS
from conformance.driver.ops.lifecycle import Reset
from conformance.driver.serve import Handler, Json
from conformance.environment.clients import Launch
from conformance.environment.drivers import OVER_TLS, TapPoint, place_tap
from conformance.participants.cancellation import Cancellation
from conformance.participants.clock import FrozenClock
from conformance.participants.expect import Mismatch
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import Scenario
from conformance.participants.participant import Participant
from conformance.participants.pending import Pending
from conformance.participants.transcript import RecordedCall, Transcript
from conformance.scenarios.support.races import let_arrive
from conformance.servers import RedisInstance
from conformance.servers.opening import RedisInstance as ServerType

from .limited_in_process import LimitedDriver
from .miniature_drivers import BenchOf
from .small_scenarios import ASKS, NOTHING_TO_SAY, MiniatureDrivers, summary, tried
from .tap_scenarios import (
    ASKS_FOR_MORE,
    FORGETS_TO_RELEASE,
    IS_FORGOTTEN,
    IS_HELD,
    IS_HURT_ALONE,
    IS_IDLE,
    IS_UNBLOCKED,
    LEFT_IN_FORCE,
    WAITS_FOR_MORE,
    WAITS_FOR_ONE_WAY,
    WAITS_IN_VAIN,
)


def test_a_participant_can_be_held(bench_of: BenchOf, mini: MiniatureDrivers) -> None:
    assert summary(tried(IS_HELD, bench_of(mini(), mini()))) == NOTHING_TO_SAY


def test_nothing_stays_in_force_after_a_failure(bench_of: BenchOf, mini: MiniatureDrivers) -> None:
    bench = bench_of(mini(), mini())
    assert "it fails" in tried(FORGETS_TO_RELEASE, bench).error
    evidence = tried(IS_HELD, bench)
    assert summary(evidence) == NOTHING_TO_SAY
    assert evidence.timings_ms["total"] < 1000
    for disturbance in LEFT_IN_FORCE:
        disturbance.__exit__(None, None, None)  # leaving late does no harm
    assert summary(tried(IS_HELD, bench)) == NOTHING_TO_SAY


def test_one_participant_is_hurt_alone(bench_of: BenchOf, mini: MiniatureDrivers) -> None:
    evidence = tried(IS_HURT_ALONE, bench_of(mini(), mini()))
    assert [finding.kind for finding in evidence.findings] == ["operation-failed"]
    assert evidence.error == ""


def test_scripts_are_forgotten_until_their_text_is_sent_again(bench_of: BenchOf) -> None:
    oracle, client = (LimitedDriver(Launch(name, []), seed=1) for name in ("oracle", "client"))
    assert summary(tried(IS_FORGOTTEN, bench_of(oracle, client))) == NOTHING_TO_SAY


def test_a_finding_shows_what_was_done_to_the_connection(bench_of: BenchOf, mini: MiniatureDrivers) -> None:
    evidence = tried(IS_HURT_ALONE, bench_of(mini(), mini()))
    faults = [step.args["what"] for step in evidence.steps if step.do == "network"]
    assert [step.by for step in evidence.steps if step.do == "queue.pause"] == ["both"]
    assert faults == ["every connection is cut, and new ones are refused for a while"]


def test_a_command_that_never_comes_is_shown_with_what_came(bench_of: BenchOf, mini: MiniatureDrivers) -> None:
    evidence = tried(WAITS_IN_VAIN, bench_of(mini(), mini()))
    assert "expected within 50 ms, got call 1 of LPUSH, before-send: reached 0 of 1 times" in evidence.error
    assert "HSET" in evidence.error


def _sends_by_itself(*, sleeps: bool) -> dict[str, Handler | None]:
    """Operations of a driver whose handles send a command every 20 ms until a reset, or wait for jobs between them."""
    pinging: set[asyncio.Task[None]] = set()

    async def ping(address: str, jobs: str) -> None:
        async with redis.asyncio.Redis.from_url(f"redis://{address}") as client:
            while True:
                await client.ping()
                # Mostly not blocked, but often: the moment at which the kit looks must not decide.
                if sleeps:
                    await client.blpop([jobs], timeout=0.1)
                    await asyncio.sleep(0.3)
                await asyncio.sleep(0.02)

    async def open_handle(_handle: str | None, args: Json) -> Json:
        jobs = f"{args['prefix']}:{args['queue']}:wait"
        pinging.add(asyncio.get_running_loop().create_task(ping(args["redis"]["nodes"][0], jobs)))
        return {}

    async def reset(_handle: str | None, _args: Json) -> Json:
        for task in pinging:
            task.cancel()
        await asyncio.gather(*pinging, return_exceptions=True)
        pinging.clear()
        return {}

    return {"open": open_handle, "reset": reset}


@pytest.mark.parametrize(
    ("waits", "does", "gives_up"),
    [
        (WAITS_FOR_MORE, _sends_by_itself(sleeps=False), True),
        (WAITS_FOR_MORE, _sends_by_itself(sleeps=True), False),
        (WAITS_FOR_MORE, {}, False),
        (ASKS_FOR_MORE, {}, False),
    ],
)
def test_only_a_wait_for_a_client_that_is_awake_by_itself_ends_early(
    waits: Scenario, bench_of: BenchOf, mini: MiniatureDrivers, does: dict[str, Handler | None], *, gives_up: bool
) -> None:
    findings = tried(waits, bench_of(mini(), mini(ops=does))).findings
    # BLPOP is not how a worker should wait, which is a finding of its own.
    (ran_out,) = (finding for finding in findings if finding.source == "assertion")
    assert ran_out.expected == "within 1500 ms"
    assert ("gave up after" in ran_out.actual) == gives_up


def _sends(*words: str) -> dict[str, Handler | None]:
    """Operations of a driver whose `queue.count` sends a command of its own."""
    opened: list[Json] = []

    async def open_handle(_handle: str | None, args: Json) -> Json:
        opened.append(args)
        return {}

    async def count(_handle: str | None, _args: Json) -> Json:
        async with redis.asyncio.Redis.from_url(f"redis://{opened[-1]['redis']['nodes'][0]}") as client:
            sender: Any = client
            await sender.execute_command(*words)
        return {"count": 1}

    return {"open": open_handle, "queue.count": count}


def test_a_client_may_move_jobs_by_commands_of_its_own(bench_of: BenchOf, mini: MiniatureDrivers) -> None:
    push, other = _sends("LPUSH", "p:q:wait", "1"), _sends("RPUSH", "p:q:wait", "1")
    assert (
        "moves jobs outside of scripts"
        in tried(WAITS_FOR_ONE_WAY, bench_of(mini(ops=push), mini(ops=other))).unsupported
    )
    assert tried(WAITS_FOR_ONE_WAY, bench_of(mini(ops=push), mini(ops=_sends("GET", "p:q:id")))).findings


def _idles(*words: str) -> dict[str, Handler | None]:
    """Operations of a driver whose worker sends this command again and again, as soon as it was answered."""
    polling: list[asyncio.Task[None]] = []

    async def poll(node: str) -> None:
        async with redis.asyncio.Redis.from_url(f"redis://{node}") as client:
            sender: Any = client
            while True:
                await sender.execute_command(*words)

    async def open_handle(_handle: str | None, args: Json) -> Json:
        if args["role"] == "worker":
            polling.append(asyncio.create_task(poll(args["redis"]["nodes"][0])))
        return {}

    async def close(_handle: str | None, _args: Json) -> Json:
        for task in polling:
            task.cancel()
        await asyncio.gather(*polling, return_exceptions=True)
        return {}

    return {"open": open_handle, "close": close, "reset": close}


@pytest.mark.parametrize(
    "words",
    [
        ("RPOPLPUSH", "p:q:wait", "p:q:active"),
        ("BRPOPLPUSH", "p:q:wait", "p:q:active", "5"),
        ("EVAL", "return 1", "1", "p:q:marker"),
    ],
    ids=["polls", "blocks", "polls by script"],
)
def test_an_idle_worker_is_recognized_however_it_waits(
    bench_of: BenchOf, mini: MiniatureDrivers, words: tuple[str, ...]
) -> None:
    ways = [("BZPOPMIN", "p:q:marker", "5"), words]
    drivers = [mini(ops=_idles(*way), capabilities=("managed-worker",)) for way in ways]
    assert {finding.source for finding in tried(IS_IDLE, bench_of(*drivers)).findings} <= {"traffic"}


def test_a_worker_that_waits_in_redis_is_unblocked(bench_of: BenchOf, mini: MiniatureDrivers) -> None:
    drivers = [mini(ops=_idles("BZPOPMIN", "p:q:marker", "60"), capabilities=("managed-worker",)) for _ in range(2)]
    evidence = tried(IS_UNBLOCKED, bench_of(*drivers))
    assert (evidence.error, {finding.source for finding in evidence.findings} - {"traffic"}) == ("", set())


@pytest.mark.parametrize(
    ("words", "requirement", "where"),
    [
        (("KEYS", "x*"), "script.harmless", "traffic.dangerous-commands.KEYS.name"),
        (("EVAL", "return 1", "2", "a"), "script.keys", "traffic.key-count.EVAL.keys"),
    ],
)
def test_commands_of_a_client_are_judged(
    words: tuple[str, ...], requirement: str, where: str, bench_of: BenchOf, mini: MiniatureDrivers
) -> None:
    """Redis refuses the second command; it is checked nevertheless."""
    evidence = tried(ASKS, bench_of(mini(), mini(ops=_sends(*words))))
    [found] = [finding for finding in evidence.findings if finding.source == "traffic"]
    assert (found.requirement, found.where) == (requirement, where)


def test_a_check_that_node_breaks_is_an_error_of_the_kit(bench_of: BenchOf, mini: MiniatureDrivers) -> None:
    evidence = tried(ASKS, bench_of(mini(ops=_sends("KEYS", "x*")), mini()))
    assert "Node itself breaks a check of the kit: traffic dangerous-commands" in evidence.error


@pytest.mark.parametrize("sent_by_both", [True, False])
def test_clients_may_send_what_an_unprepared_version_sends_itself(
    bench_of: BenchOf, mini: MiniatureDrivers, *, sent_by_both: bool
) -> None:
    bench = bench_of(mini(ops=_sends("KEYS", "x*") if sent_by_both else {}), mini(ops=_sends("KEYS", "x*")))
    bench.oracle_version = "99.1.0"
    evidence = tried(ASKS, bench)
    assert (evidence.error, evidence.changed) == ("", "")
    assert [finding.source for finding in evidence.findings] == ([] if sent_by_both else ["traffic"])


def test_a_barrier_does_not_wait_for_a_call_that_is_unsupported(bench_of: BenchOf, mini: MiniatureDrivers) -> None:
    evidence = tried(IS_HELD, bench_of(mini(), mini(ops={"queue.pause": None})))
    assert evidence.unsupported == "queue.pause is unsupported: the driver does not declare it"
    assert evidence.timings_ms["total"] < 4000


def test_a_redis_behind_tls_has_no_tap(server: RedisInstance) -> None:
    over_tls = ServerType(
        mode="standalone", nodes=server.nodes, tls=True, source="x", version="7.0", settings={}, own=False
    )
    point = place_tap(over_tls, {})
    assert (point.address.nodes, point.address.tls, point.tap) == (server.nodes, True, None)
    point.start_scenario()
    point.heal()
    assert point.traffic() == ()
    point.close()


def test_a_barrier_does_not_wait_for_a_call_that_is_not_tried_again(bench_of: BenchOf, mini: MiniatureDrivers) -> None:
    client = mini()
    for _ in range(MOST_HANGS):
        client.breakdowns.hung("queue.pause")
    evidence = tried(IS_HELD, bench_of(mini(), client))
    assert evidence.findings == []
    assert evidence.given_up.startswith("queue.pause has hung")


def test_without_a_tap_a_scenario_is_unsupported_and_says_why(bench_of: BenchOf, mini: MiniatureDrivers) -> None:
    bench = bench_of(mini(), mini())
    bench.taps = {role: TapPoint(point.address, None, OVER_TLS) for role, point in bench.taps.items()}
    assert summary(tried(IS_HELD, bench)) == ([], "", f"tap is unsupported: {OVER_TLS}", "")


def test_answers_of_pending_calls_are_in_the_order_of_the_scenario() -> None:
    transcript, go = Transcript(), threading.Event()

    def late() -> int:
        go.wait(5)
        transcript.record(RecordedCall("late", "ok", 1))
        return 7

    pending = Pending(late, transcript, Cancellation())
    with transcript.silent():
        go.set()
        pending.settle(within_ms=5000)
        assert transcript.calls == []
    transcript.record(RecordedCall("early", "ok", 2))
    assert pending.result() == 7
    assert transcript.calls == [RecordedCall("early", "ok", 2), RecordedCall("late", "ok", 1)]


@pytest.mark.parametrize(
    ("name", "found_no_work", "loops", "looks"),
    [("ZADD", False, "w", 3), ("EVALSHA", False, "w", 1), ("RPOP", True, "w", 1), ("ZADD", False, "", 0)],
)
def test_a_loop_is_not_closed_between_two_commands(name: str, found_no_work: bool, loops: str, looks: int) -> None:
    client = Mock(running_loops=set(loops), sent_so_far=lambda: 1, _pending=[])
    just_now = Mock(blocking=False, found_no_work=found_no_work, arrived_s=time.monotonic() + 60)
    just_now.name, long_ago = name, Mock(blocking=False, arrived_s=0.0)
    client.sent_since = Mock(side_effect=[[just_now], [just_now], [long_ago]])
    client.is_between_commands = lambda: Participant.is_between_commands(client)
    Participant.settle(client)
    assert client.sent_since.call_count == looks


def test_a_pending_call_raises_what_the_client_raised_or_that_it_still_waits() -> None:
    transcript, go = Transcript(), threading.Event()
    failing: Pending[None] = Pending(lambda: FrozenClock().pass_ms("x"), transcript, Cancellation())  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        failing.result()
    waiting = Pending(lambda: go.wait(5), transcript, Cancellation())
    with pytest.raises(Mismatch, match="still waiting"):
        waiting.result(within_ms=20)
    go.set()
    assert waiting.result()


def test_a_call_has_been_sent_before_those_that_let_it_arrive(mini: MiniatureDrivers) -> None:
    """On a busy machine the thread of a call may start late: then its call would come after the other ones."""
    client, go, over = mini().living(), threading.Event(), threading.Event()

    def late() -> None:
        go.wait(5)
        client.call(Reset())
        over.wait(5)

    call = Pending(late, Transcript(), Cancellation())
    with pytest.raises(Mismatch, match="the kit sends the call"):
        call.wait_until_sent(within_ms=20)
    asked: list[bool] = []
    queue = SimpleNamespace(is_paused=lambda: asked.append(go.is_set()))
    threading.Timer(0.1, go.set).start()
    let_arrive(cast("QueueHandle", queue), call)
    assert set(asked) == {True}
    assert not call.done
    over.set()
    call.result()


def test_work_that_has_ended_has_nothing_left_to_send() -> None:
    Pending(lambda: 7, Transcript(), Cancellation()).wait_until_sent()
