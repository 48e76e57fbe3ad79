"""One version of BullMQ run against another: a separate run, stored until the version of a participant changes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from conformance.gate.records import RunHeader, ScenarioRecord
from conformance.gate.separate_run import StoredRuns
from conformance.participants.marks import Tier


@dataclass(frozen=True, kw_only=True)
class PairResult:
    """The result of a run: its scenarios, and the operations of the driver protocol that each version has."""

    scenarios: tuple[ScenarioRecord, ...]
    oracle_ops: frozenset[str]
    client_ops: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class PairRunner:
    """Runs one version as the oracle and another as the client, in a folder for each pair and selection.

    `redis` and `node` as on the command line; `jobs`: processes per run, None for the default. A run is ended after
    `limit_s` seconds.
    """

    runs: Path
    announce: Callable[[str], None]
    tier: Tier = "core"
    redis: str = ""
    node: str = ""
    jobs: int | None = None
    limit_s: float = 3600

    def run(self, oracle: str, client: str, select: Collection[str] = (), *, again: bool = False) -> PairResult:
        """Run the selected scenarios (default: all), unless this very run is stored; `again` runs it in any case.

        Raises EnvironmentProblem with the run's own message if it does not end.
        """
        stored = StoredRuns(folder=self.runs, announce=self.announce, jobs=self.jobs, limit_s=self.limit_s)
        title = f"bullmq {oracle} against {client}"
        records = stored.records(title, self._words(oracle, client, select), again=again)
        header = records[0]
        assert isinstance(header, RunHeader)
        return PairResult(
            scenarios=tuple(record for record in records if isinstance(record, ScenarioRecord)),
            oracle_ops=frozenset(header.oracle.ops),
            client_ops=frozenset(header.client.ops),
        )

    def _words(self, oracle: str, client: str, select: Collection[str]) -> list[str]:
        settings = {"--tier": self.tier, "--redis": self.redis, "--node": self.node}
        return [
            *("--oracle", oracle, "--client", f"node@{client}", "--no-known", "--format", "json"),
            *(word for flag, value in settings.items() if value for word in (flag, value)),
            *(word for pattern in sorted(select) for word in ("--select", pattern)),
        ]
