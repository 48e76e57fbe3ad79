"""One version of BullMQ played against another: a run of its own, kept until something in it is of another version."""

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
    """What a run says: its scenarios, and the operations of the driver protocol that each version has."""

    scenarios: tuple[ScenarioRecord, ...]
    oracle_ops: frozenset[str]
    client_ops: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class PairRunner:
    """Plays one version as the oracle and another as the client, in a folder for each pair and selection.

    `redis` and `node` as users write them; `jobs`: processes of each run, None for the usual. After `limit_s` seconds a
    run is ended.
    """

    runs: Path
    announce: Callable[[str], None]
    tier: Tier = "core"
    redis: str = ""
    node: str = ""
    jobs: int | None = None
    limit_s: float = 3600

    def run(self, oracle: str, client: str, select: Collection[str] = (), *, again: bool = False) -> PairResult:
        """Play the selected scenarios, all where none is named, unless this very run is kept; `again` plays it anew.

        Raises EnvironmentProblem for a run that does not come to its end, in the words of that run.
        """
        words = self._words(oracle, client, select)
        folder = self.runs / f"{oracle}--{client}--{_digest(words)}"
        words += ["--jobs", str(self.jobs)] if self.jobs else []  # which changes nothing in what is played
        records = [] if again else read_records(folder)
        if records:
            self.announce(f"bullmq {oracle} against {client}: kept")
        else:
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
    """Names a run: another kit, or another selection, is another run."""
    return hashlib.sha256("\0".join([kit_hash(), *words]).encode()).hexdigest()[:12]
