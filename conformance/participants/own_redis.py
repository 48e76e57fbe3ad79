"""A private Redis for one participant of one scenario, which can restart or run out of memory without side effects.

    with own_redis(client, maxmemory_policy="volatile-lru") as alone:
        queue = alone.client.queue()
        ...
        alone.evict(until=lambda: not queue.redis.exists("1:lock"), what="the lock is evicted")

The kit does not compare the state there with the oracle: the scenario asserts what must hold.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis

from conformance.driver.errors import (
    DriverBroken,
    OperationFailed,
    OperationGivenUp,
    OperationIndeterminate,
    OperationUnsupported,
)
from conformance.driver.ops import lifecycle
from conformance.environment.drivers import TapPoint
from conformance.participants.expect import Mismatch
from conformance.participants.participant import Participant
from conformance.problems import EnvironmentProblem
from conformance.servers import PrivateServer, private_server

JUNK_KEY = "junk:%s"
JUNK_BYTES = 10_000
MOST_JUNK = 4000
HEADROOM_BYTES = 200_000
"""Memory that Redis may still use under pressure: enough for the commands of clients meanwhile."""

NO_TAP = "a private Redis has no tap"


@dataclass(frozen=True)
class OwnRedis:
    """A participant on its private Redis, and what a scenario can do to that Redis."""

    client: Participant
    redis: Any
    _place: PrivateServer

    def restart(self) -> None:
        """Shut Redis down and restart it at the same address with its saved data."""
        self._place.process.restart()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Redis is shut down inside the block: its port refuses connections."""
        self._place.process.shut_down()
        try:
            yield
        finally:
            self._place.process.start_again()

    def evict(self, *, until: Callable[[], bool], what: str) -> None:
        """Store junk without expiry until Redis has evicted the key that the scenario waits for; then free the memory.

        `until` is checked after each piece. Raises Mismatch (`what`) if memory is full and `until` still does not hold.
        """
        with self._limited_memory():
            written, has_room = 0, True
            while not until():
                if not has_room or written == MOST_JUNK:
                    raise Mismatch(what, expected="evicted", actual=f"still there after {written} pieces of junk")
                # Even for a piece that Redis then refuses it may have evicted the last keys: check `until` once more.
                has_room = self._store_junk(written)
                written += 1

    def press(self, pieces: int) -> int:
        """Try to store this number of pieces of junk without room for them; returns how many Redis accepted."""
        with self._limited_memory():
            return sum(self._store_junk(number) for number in range(pieces))

    @contextmanager
    def full_memory(self) -> Iterator[None]:
        """Memory is full inside the block: Redis refuses commands that need more."""
        with self._limited_memory():
            pieces = range(MOST_JUNK)
            if all(self._store_junk(number) for number in pieces):
                raise Mismatch("Redis is full", expected="refused", actual=f"{MOST_JUNK} pieces of junk are stored")
            yield

    @contextmanager
    def _limited_memory(self) -> Iterator[None]:
        # Relative to the current use, which differs between versions and allocators of Redis.
        self.redis.config_set("maxmemory", int(self.redis.info("memory")["used_memory"]) + HEADROOM_BYTES)
        try:
            yield
        finally:
            # Lifted before the cleanup: under pressure Redis refuses commands that allocate.
            self.redis.config_set("maxmemory", 0)
            # UNLINK needs at least one key, and all junk may have been evicted.
            self.redis.unlink(*self.redis.keys(JUNK_KEY % "*") or ["none"])

    def _store_junk(self, number: int) -> bool:
        """Whether Redis accepts a piece: it refuses if nothing is left to evict."""
        try:
            self.redis.set(JUNK_KEY % number, b"x" * JUNK_BYTES)
        # An answer, not an error: with nothing left to evict Redis refuses the write.
        except redis.exceptions.OutOfMemoryError:
            return False
        return True


@contextmanager
def own_redis(client: Participant, **settings: str) -> Iterator[OwnRedis]:
    """Give the participant a private Redis; `settings` as in redis.conf, with `_` for `-`.

    The handles that it opens there are closed at the end of the block. Raises OperationUnsupported with the reason if
    this machine has no server program, or if it refuses the settings.
    """
    program = client.server_program
    if program is None:
        raise OperationUnsupported("a private Redis", "this machine has no Redis server program")
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    with contextlib.ExitStack() as stack:
        try:
            place = stack.enter_context(private_server(program, named))
        except EnvironmentProblem as problem:
            raise OperationUnsupported("a private Redis", problem.what) from problem
        connection = stack.enter_context(place.server.connect())
        moved = _moved(client, place, connection)
        # Registered last, so it runs first: handles must close while their Redis still answers.
        stack.callback(_close_everything, moved)
        yield OwnRedis(moved, connection, place)


def _moved(client: Participant, place: PrivateServer, connection: Any) -> Participant:
    """A participant with the same driver, clock and transcript on another Redis."""
    point = TapPoint(place.server.for_drivers, None, NO_TAP, client.server_program)
    moved = Participant(
        client.role,
        client.driver,
        redis=connection,
        point=point,
        names=client.names,
        clock=client.clock,
        cancellation=client.cancellation,
        stand_in=client.stand_in and client.stand_in.moved(point.address),
    )
    moved.share(client)
    # The client may complain about a Redis that was restarted or full: such errors are expected.
    moved.transcript.disturbed = moved.transcript.on_private_redis = True
    moved.uses_loop_workers = client.uses_loop_workers
    return moved


_CANNOT_CLOSE = (DriverBroken, OperationFailed, OperationGivenUp, OperationIndeterminate, OperationUnsupported)


def _close_everything(client: Participant) -> None:
    if client.stand_in is not None:
        client.stand_in.reset()
    # The bench notices and replaces a driver that cannot reset.
    with contextlib.suppress(*_CANNOT_CLOSE):
        client.driver.call(lifecycle.Reset(), deadline_ms=15_000)
