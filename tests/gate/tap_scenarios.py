"""Scenarios that disturb a participant through its tap, for benches of miniature drivers."""

from __future__ import annotations

import time
from typing import Any

from conformance.driver.ops.queue import CountPending
from conformance.participants.expect import Mismatch, between, equal
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.races import NEVER_WAITS_S, let_idle

from .small_scenarios import HARMLESS

LEFT_IN_FORCE: list[Any] = []
"""Keeps what a scenario has forgotten to leave alive, so that nothing is healed by the garbage collector."""


@scenario(HARMLESS)
def is_held(client: Participant) -> None:
    """A call waits until it is let go, and others see that it waits."""
    queue = client.queue()
    with client.tap.hold("HSET") as barrier:
        pause = client.meanwhile(queue.pause)
        equal(barrier.wait().args[2:], (b"paused", b"1"), "the command is known")
        equal((pause.done, queue.redis.exists("meta")), (False, False), "Redis has not seen it")
        barrier.release()
        pause.result()
    equal(queue.redis.field("meta", "paused"), "1", "it arrives")


@scenario(HARMLESS)
def forgets_to_release(client: Participant) -> None:
    """A failed scenario leaves everything in force."""
    for disturbance in (client.tap.hold("HSET"), client.tap.silence(), client.tap.slow(latency_ms=1000)):
        LEFT_IN_FORCE.append(disturbance)
        disturbance.__enter__()
    client.meanwhile(client.queue().pause)
    raise Mismatch("it fails", expected=1, actual=2)


@scenario(HARMLESS)
def is_hurt_alone(client: Participant) -> None:
    """The client cannot reach Redis; the oracle can."""
    queue = client.queue()
    if client.role == "client":
        LEFT_IN_FORCE.append(client.tap.outage())
        LEFT_IN_FORCE[-1].__enter__()
    queue.pause()


@scenario(HARMLESS)
def waits_in_vain(client: Participant) -> None:
    """The client sends something else."""
    with client.tap.watch("LPUSH") as barrier:
        client.queue().pause()
        barrier.wait(within_ms=50)


@scenario(HARMLESS)
def waits_for_more(client: Participant) -> None:
    """The key exists only in the oracle's queue."""
    queue = client.queue()
    client.eventually(lambda: queue.redis.exists("meta"), lambda _: client.role == "oracle", "it holds", within_ms=1500)


@scenario(HARMLESS)
def asks_for_more(client: Participant) -> None:
    """The kit itself makes the client send commands."""
    queue = client.queue()
    client.eventually(queue.pause, lambda _: client.role == "oracle", "it holds", within_ms=1500)


@scenario(HARMLESS)
def is_forgotten(client: Participant) -> None:
    """Redis appears to have lost its scripts: the client sends the text again, once."""
    queue = client.queue()
    queue.add()
    with client.tap.forgotten_scripts():
        equal([queue.add(), queue.add()], ["2", "3"], "every call succeeds")
    refused = [command for command in client.tap.commands() if "NOSCRIPT" in str(command.reply)]
    equal(len(refused), 1, "only the first call is refused")


@scenario(HARMLESS)
def waits_for_one_way(client: Participant) -> None:
    """The oracle pushes; another client may do the same otherwise."""
    with client.tap.watch("LPUSH") as barrier:
        client.queue().call(CountPending())
        barrier.wait(within_ms=50)


@scenario(HARMLESS, clock="real")
def is_idle(client: Participant) -> None:
    """A worker waits for jobs in its own way."""
    client.worker("noop")
    started = time.monotonic()
    let_idle(client)
    between(time.monotonic() - started, 0, NEVER_WAITS_S, "the worker is seen to wait (s)")


@scenario(HARMLESS, clock="real")
def is_unblocked(client: Participant) -> None:
    """A worker that waits for jobs in Redis looks for them before its time."""
    client.worker("noop")
    client.eventually(lambda: client.is_blocked_since(0), bool, "it waits")
    sent = client.sent_so_far()
    client.unblock(0)
    client.eventually(client.sent_so_far, lambda now: now > sent, "it looks again")


IS_HELD, FORGETS_TO_RELEASE, IS_HURT_ALONE, WAITS_IN_VAIN, WAITS_FOR_MORE, ASKS_FOR_MORE = (
    vars(test)["scenario"]
    for test in (is_held, forgets_to_release, is_hurt_alone, waits_in_vain, waits_for_more, asks_for_more)
)
IS_FORGOTTEN, WAITS_FOR_ONE_WAY, IS_IDLE, IS_UNBLOCKED = (
    vars(test)["scenario"] for test in (is_forgotten, waits_for_one_way, is_idle, is_unblocked)
)
