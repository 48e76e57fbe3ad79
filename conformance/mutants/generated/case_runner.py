"""Runs cases in one process: with its own Redis, one oracle for all, and one client after the other."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from conformance.environment.clients import NO_CLIENT, Launch
from conformance.environment.drivers import RestartableDriver
from conformance.environment.starvation import StarvationWatch
from conformance.findings import Finding
from conformance.gate.bench import Bench
from conformance.gate.records import Verdict
from conformance.gate.repetition import explains
from conformance.gate.time_limit import TimeLimit
from conformance.gate.trial import run_trial
from conformance.gate.verdicts import requirement_verdicts, unblamed
from conformance.ledger.loader import load_ledger
from conformance.mutants.matrix import ScenarioCase
from conformance.participants.wait_limits import WaitHistory
from conformance.servers import open_server

LIMIT_S, SLOW_LIMIT_S = 30.0, 90.0
"""Seconds that a mutant may take longer than the oracle: less than a client may, as a hang is noticed anyway."""


class CaseRunnerSetting(msgspec.Struct, frozen=True, kw_only=True):
    """The setting of a process that runs cases.

    `scripts`: texts of the official scripts by name. `redis`: as users name one; empty for a server of its own.
    """

    oracle: Launch
    scripts: dict[str, str]
    redis: str = ""


@dataclass(frozen=True)
class CaseRun:
    """The result of a case. `against`: the first finding that fails or warns, with its verdict.

    `error`: why there is no result. `starved`: the finding may be due to CPU starvation.
    """

    against: Finding | None
    verdict: Verdict
    error: str
    starved: bool
    took_ms: float

    @property
    def noticed(self) -> bool:
        """Whether there is a finding against the client."""
        return self.against is not None


class CaseRunner:
    """Runs cases. As a context manager, it ends its drivers and its Redis."""

    def __init__(self, setting: CaseRunnerSetting) -> None:
        self._setting = setting
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.server = self._stack.enter_context(open_server(self._setting.redis or None, announce=_silent))
        self._nobody = RestartableDriver(NO_CLIENT, seed=0)
        oracle = RestartableDriver(self._setting.oracle, seed=0)
        self._bench = Bench(self.server, oracle, self._nobody, self._setting.scripts)
        self._stack.callback(self._bench.close)
        # After the bench, so that it is closed before the drivers that it watches.
        self._watch = self._stack.enter_context(StarvationWatch(self._bench.processes, self._bench.redis.ping))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def redis(self) -> Any:
        """A connection to the Redis of this process."""
        return self._bench.redis

    def run(self, case: ScenarioCase, client: RestartableDriver) -> CaseRun:
        """Run a case once. Never raises because of the client."""
        self._bench.client = client
        try:
            # Directly before the trial, so that starvation of an earlier case does not count.
            self._watch.start()
            result = run_trial(case.scenario, case.arguments, self._bench, load_ledger(), limit=_limit(case))
            starved = explains(self._watch.seen().worst, frozen=result.frozen)
        finally:
            # The caller owns the client, so the bench must not close it.
            self._bench.client = self._nobody
        verdicts = requirement_verdicts(
            case.scenario.requirements, result.findings, load_ledger(), unblamed=unblamed(result)
        )
        against = _worst(result.findings, verdicts)
        return CaseRun(
            against=None if result.error else against,
            verdict=verdicts[against.requirement] if against else "pass",
            error=result.error or result.unsupported or result.inconclusive,
            starved=starved,
            took_ms=result.timings_ms["total"],
        )

    def forget(self) -> None:
        """Forget the last client: empty Redis and the history of waits."""
        # Keys of the last mutant would break invariants of the next one.
        self._bench.redis.flushall()
        # Waits that one mutant lets time out must not shorten those of the next.
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
    # The outer limit also covers the oracle, which is healthy and may be slow.
    return TimeLimit(client_s, max(5 * client_s, TimeLimit.of(case.scenario).all_s))


def _silent(_text: str) -> None: ...
