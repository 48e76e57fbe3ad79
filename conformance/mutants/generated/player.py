"""Plays cases in one process: a Redis of its own, an oracle that stays, and one client after the other."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from conformance.environment.clients import NOBODY, Launch
from conformance.environment.drivers import RestartableDriver
from conformance.environment.starvation import StarvationWatch
from conformance.findings import Finding
from conformance.gate.bench import Bench
from conformance.gate.records import Verdict
from conformance.gate.repeating import explains
from conformance.gate.time_limit import TimeLimit
from conformance.gate.trial import run_trial
from conformance.gate.verdicts import requirement_verdicts, unblamed
from conformance.ledger.loader import load_ledger
from conformance.mutants.matrix import ScenarioCase
from conformance.participants.wait_limits import WaitHistory
from conformance.servers import open_server

LIMIT_S, SLOW_LIMIT_S = 30.0, 90.0
"""What a mutant may take longer than the oracle: less than a client may, because a hang is noticed anyhow."""


class PlayerSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What a process needs to play.

    `scripts`: texts of the official scripts by name. `redis`: as users name one; empty for a server of its own.
    """

    oracle: Launch
    scripts: dict[str, str]
    redis: str = ""


@dataclass(frozen=True)
class PlayedCase:
    """What came to light. `against`: the first finding that fails or warns, with its verdict.

    `error`: why nothing is known. `starved`: the machine, too, may be why it is against the client.
    """

    against: Finding | None
    verdict: Verdict
    error: str
    starved: bool
    took_ms: float

    @property
    def noticed(self) -> bool:
        """Whether something speaks against the client."""
        return self.against is not None


class Player:
    """As a context manager, it ends its drivers and its Redis."""

    def __init__(self, setting: PlayerSetting) -> None:
        self._setting = setting
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.server = self._stack.enter_context(open_server(self._setting.redis or None, announce=_silent))
        self._nobody = RestartableDriver(NOBODY, seed=0)
        oracle = RestartableDriver(self._setting.oracle, seed=0)
        self._bench = Bench(self.server, oracle, self._nobody, self._setting.scripts)
        self._stack.callback(self._bench.close)
        self._watch = self._stack.enter_context(StarvationWatch(self._bench.processes, self._bench.redis.ping))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def redis(self) -> Any:
        """A connection to the Redis of this process."""
        return self._bench.redis

    def play(self, case: ScenarioCase, client: RestartableDriver) -> PlayedCase:
        """Play a case once. Never raises for what a client does."""
        self._bench.client = client
        try:
            self._watch.begin()
            result = run_trial(case.scenario, case.arguments, self._bench, load_ledger(), limit=_limit(case))
            starved = explains(self._watch.seen(), frozen=result.frozen)
        finally:
            self._bench.client = self._nobody
        verdicts = requirement_verdicts(
            case.scenario.requirements, result.findings, load_ledger(), unblamed=unblamed(result)
        )
        against = _worst(result.findings, verdicts)
        return PlayedCase(
            against=None if result.error else against,
            verdict=verdicts[against.requirement] if against else "pass",
            error=result.error or result.unsupported or result.inconclusive,
            starved=starved,
            took_ms=result.timings_ms["total"],
        )

    def forget(self) -> None:
        """Another client comes: nothing of the one before is left in Redis, nor in what is known of waits."""
        self._bench.redis.flushall()
        self._bench.waits = WaitHistory()


def _worst(findings: list[Finding], verdicts: Mapping[str, Verdict]) -> Finding | None:
    """The first finding that fails the run, else the first that warns."""
    for wanted in ("fail", "warn"):
        for finding in findings:
            if verdicts.get(finding.requirement) == wanted:
                return finding
    return None


def _limit(case: ScenarioCase) -> TimeLimit:
    client_s = SLOW_LIMIT_S if case.scenario.slow else LIMIT_S
    return TimeLimit(client_s, max(5 * client_s, TimeLimit.of(case.scenario).all_s))


def _silent(_text: str) -> None: ...
