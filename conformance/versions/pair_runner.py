"""One version of BullMQ run against another: a separate run, stored until the version of a participant changes."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from conformance.gate.records import RunHeader, ScenarioRecord
from conformance.gate.separate_run import kit_hash, read_records, start_run
from conformance.participants.marks import Tier
from conformance.problems import EnvironmentProblem


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
        words = self._words(oracle, client, select)
        # The digest contains everything that can change the result, so a stored run is valid as long as it exists.
        folder = self.runs / f"{oracle}--{client}--{_digest(words)}"
        words += ["--jobs", str(self.jobs)] if self.jobs else []  # not in the digest: it changes no result
        records = [] if again else read_records(folder)
        if records:
            self.announce(f"bullmq {oracle} against {client}: kept")
        else:
            # An incomplete run must not be read as a stored one.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            how = start_run(words, folder, within_s=self.limit_s)
            if how.problem:
                raise EnvironmentProblem(
                    f"bullmq {oracle} against {client}: {how.problem}", hint=f"what it printed is in {folder}"
                )
            records = read_records(folder)
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


def _digest(words: Collection[str]) -> str:
    """The name of a run, which depends on the kit and on the selection."""
    return hashlib.sha256("\0".join([kit_hash(), *words]).encode()).hexdigest()[:12]
