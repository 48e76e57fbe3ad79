"""The folder of a run: findings as replay files, what was covered, and where to go on."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.fuzz.campaign import Campaign, Finding
from conformance.fuzz.replay_file import Header, Replay, file_name, read_replay, write_replay
from conformance.fuzz.stage import Stage
from conformance.gate.records import KIT_VERSION
from conformance.problems import UsageProblem

FINDINGS, EXAMPLES, COVERAGE, PROGRESS = "findings", "examples", "coverage.json", "progress.json"


@dataclass(frozen=True)
class RunFolder:
    """`findings/*.jsonl`, `examples/` (Hypothesis's database), `coverage.json`, `progress.json`."""

    path: Path

    @property
    def examples(self) -> Path:
        """Hypothesis's example database."""
        return self.path / EXAMPLES

    def replays(self) -> dict[Path, Replay]:
        """The findings of earlier runs. Raises UsageProblem for a file that is none."""
        return {path: read_replay(path) for path in sorted((self.path / FINDINGS).glob("*.jsonl"))}

    def save(self, finding: Finding, stage: Stage) -> Path:
        """Write a finding as a replay file."""
        path = self.file_of(finding)
        write_replay(as_replay(finding, stage), path)
        return path

    def file_of(self, finding: Finding) -> Path:
        """Where a finding is written."""
        return self.path / FINDINGS / file_name(finding.group)

    def rounds_done(self, seed: int) -> int:
        """How many rounds earlier runs with this seed have played."""
        try:
            progress = json.loads((self.path / PROGRESS).read_text("utf-8"))
            return int(progress[str(seed)])
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def note(self, campaign: Campaign, operations: Collection[str]) -> None:
        """Write down what was covered, and how far the run has come. Raises UsageProblem where it cannot be written."""
        progress = {str(campaign.seed): campaign.rounds}
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / PROGRESS).write_text(json.dumps(progress) + "\n", "utf-8")
            (self.path / COVERAGE).write_text(
                json.dumps(coverage_record(campaign, operations), indent=1) + "\n", "utf-8"
            )
        except OSError as error:
            raise UsageProblem(f"cannot write to {self.path}: {error.strerror}", hint="choose another --out") from error


def as_replay(finding: Finding, stage: Stage) -> Replay:
    """A finding as the content of a replay file."""
    client = stage.oracle if stage.mode == "model" else stage.client
    header = Header(
        title=str(finding.group),
        kit=KIT_VERSION,
        bullmq=stage.oracle.living().ready.client.version,
        mode=stage.mode,
        clock="frozen" if stage.frozen else "running",
        seed=finding.seed,
        client=client.launch.name,
        version=client.living().ready.client.version,
        beside=list(finding.beside),
    )
    return Replay(header, finding.steps, finding.differences)


def coverage_record(campaign: Campaign, operations: Collection[str]) -> dict[str, Any]:
    """What was tried how often, and which legal pairs of operation and state never were."""
    coverage = campaign.coverage
    return {
        "sequences": campaign.sequences,
        "steps": campaign.steps,
        "never_tried": [f"{op} on {state}" for op, state in coverage.never_tried(operations)],
        "tried": {f"{one.op} on {one.state} with {one.option}": n for one, n in sorted(coverage.seen.items())},
    }
