"""The end of scripts that do not end: Redis serves no client while one runs, so one would stop a whole run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import redis

from conformance.problems import EnvironmentProblem
from conformance.servers.connection import connect_node
from conformance.servers.setting import RedisUrl

LOOK_EVERY_S = 0.25
NOTICED_S = 1.0
"""Time (s) for taps to notice which call has no answer, before all of them lose their connections."""
_BUSY, _UNKILLABLE = "BUSY", "UNKILLABLE"


def is_busy(address: RedisUrl) -> bool:
    """Whether a script keeps a node of this Redis busy for longer than Redis allows."""
    return any(_answers_busy(client) for client in _nodes(address))


def end_script(address: RedisUrl) -> bool:
    """End the script that keeps a node of this Redis busy. Returns whether one that has written goes on."""
    return any(_answers_busy(client) and _cannot_be_killed(client) for client in _nodes(address))


def _nodes(address: RedisUrl) -> Iterator[redis.Redis]:
    for node in address.nodes:
        # Database 0: a busy Redis refuses SELECT.
        with connect_node(replace(address, db=0), node) as client:
            yield client


def _answers_busy(client: redis.Redis) -> bool:
    try:
        client.ping()
    except redis.ResponseError as error:
        return str(error).startswith(_BUSY)
    except (redis.ConnectionError, redis.TimeoutError):
        pass  # a Redis that is silent is not busy: it says so after `busy-reply-threshold`
    return False


def _cannot_be_killed(client: redis.Redis) -> bool:
    try:
        client.script_kill()
    except redis.RedisError as refusal:
        return str(refusal).startswith(_UNKILLABLE)
    return False


def insist_on_answers(address: RedisUrl) -> None:
    """Raise EnvironmentProblem if a script that cannot be killed keeps Redis busy."""
    if end_script(address):
        raise EnvironmentProblem(
            f"Redis at {', '.join(address.nodes)} is busy with a script that does not end and has written",
            hint="only SHUTDOWN NOSAVE ends it: use a Redis that the kit starts (without --redis)",
        )


@contextmanager
def scripts_ended(address: RedisUrl, restart: Callable[[], None] | None = None) -> Iterator[None]:
    """End scripts that keep Redis busy during the block. `restart`: for one that has written."""
    over = threading.Event()

    def look() -> None:
        is_stuck = False
        while not over.wait(LOOK_EVERY_S):
            is_stuck = is_stuck or end_script(address)
            if is_stuck and restart is not None and not over.wait(NOTICED_S):
                # If a restart fails, the next look tries it again.
                with suppress(EnvironmentProblem, redis.RedisError):
                    restart()
                    is_stuck = False

    thread = threading.Thread(target=look, name="endless scripts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
