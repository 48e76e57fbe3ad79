"""Runs features with each release alone while MONITOR records what the release writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

from redis.exceptions import RedisError

from conformance.problems import EnvironmentProblem
from conformance.servers.opening import RedisInstance
from conformance.versions.mixed.features import Feature
from conformance.versions.mixed.session import NEWER, OLDER, MixedSession
from conformance.versions.mixed.stage import MAIN
from conformance.versions.mixed.writes import MonitorLine, Writes, parsed_line, writes_of

CAUGHT_UP_S = 10.0
"""How long MONITOR may be behind."""
_SIDES = (OLDER, NEWER)


@dataclass(frozen=True)
class ObservedWrites:
    """The writes of both releases by feature, without the features that a release cannot take part in."""

    older: Mapping[str, Writes]
    newer: Mapping[str, Writes]


def observe(session: MixedSession, features: Sequence[Feature], scripts: Mapping[str, str]) -> ObservedWrites:
    """Run each feature with one release, and then with the other. `scripts`: names of both releases' by SHA-1.

    Raises what `MixedSession.compare` raises, and EnvironmentProblem for a Redis that refuses MONITOR.
    """
    found: dict[str, dict[str, Writes]] = {side: {} for side in _SIDES}
    prefixes: list[str] = []

    def fresh_prefix() -> str:
        prefixes.append(session.server.fresh_prefix())
        return prefixes[-1]

    with ExitStack() as stack:
        stage = session.stage(stack, fresh_prefix)
        monitor = stack.enter_context(_monitor(session.server))
        for feature in features:
            for side in _SIDES:
                cast = dict.fromkeys(feature.roles, side)
                outcome = stage.run(feature.steps, cast, feature.options)
                lines = monitor.taken(stage.redis)
                if not outcome.unsupported:
                    found[side][feature.name] = writes_of(lines, f"{prefixes[-1]}:{MAIN}:", scripts)
    return ObservedWrites(found[OLDER], found[NEWER])


@dataclass
class _Monitor:
    connection: Any
    lines: list[MonitorLine] = field(default_factory=list)
    marks: int = 0
    reached: Event = field(default_factory=Event)

    def read(self) -> None:
        """Until the connection is closed."""
        try:
            while True:
                line = parsed_line(self.connection.read_response().decode("latin-1"))
                if line is not None:
                    self._note(line)
        except (RedisError, OSError, ValueError, AttributeError):
            # Closed by the end of the block; `taken` reports a loss before it.
            return

    def _note(self, line: MonitorLine) -> None:
        if line.words == (b"ECHO", self._mark()):
            self.reached.set()
        else:
            self.lines.append(line)

    def _mark(self) -> bytes:
        return f"bullmq-conformance-mark-{id(self)}-{self.marks}".encode()

    def taken(self, redis: Any) -> Sequence[MonitorLine]:
        """The commands since the last call. Raises EnvironmentProblem if MONITOR is behind for too long."""
        self.reached.clear()
        self.marks += 1
        redis.echo(self._mark())
        if not self.reached.wait(CAUGHT_UP_S):
            raise EnvironmentProblem("MONITOR of Redis has stopped", hint="use another Redis, or leave out --redis")
        found, self.lines = self.lines, []
        return found


@contextmanager
def _monitor(server: RedisInstance) -> Iterator[_Monitor]:
    with server.connect(timeout_s=3600) as client:
        connection = client.connection_pool.get_connection()
        try:
            connection.send_command("MONITOR")
            connection.read_response()
        except RedisError as error:
            raise EnvironmentProblem(f"Redis refuses MONITOR: {error}", hint="leave out --redis") from error
        monitor = _Monitor(connection)
        thread = Thread(target=monitor.read, daemon=True, name="monitor")
        thread.start()
        try:
            yield monitor
        finally:
            connection.disconnect()
            thread.join(CAUGHT_UP_S)
