"""Replay files: a sequence that shows a difference, small enough to read, and complete enough to repeat."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from conformance.fuzz.comparison import DifferenceClass, KnownDifferences, StepDifference
from conformance.fuzz.target import FuzzTarget, Mode
from conformance.pages.text import escaped_surrogates
from conformance.problems import UsageProblem
from conformance.steps.records import as_record, from_record
from conformance.steps.shapes import Step

FORMAT = 1
ReplayClock = Literal["frozen", "running"]


class ReplayHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line.

    `title`: one sentence for people. `requirement`: the ledger row that the difference violates, if known.
    `bullmq`: the oracle's version. `client`: the client under test, its version, and the versions of its
    dependencies (`packages`). `partner`: the client that took turns with it, as for `--partner`. `clock`: whether
    time was frozen. `beside`: known classes of differences that may occur on the way; they do not count. `without`:
    invariants that the oracle itself breaks here, with reasons, for the scenario made from the file.
    """

    replay: int = FORMAT
    title: str
    requirement: str = ""
    kit: str
    bullmq: str
    mode: Mode
    clock: ReplayClock
    seed: int
    client: str
    version: str = ""
    packages: list[str] = []
    partner: str = ""
    beside: list[DifferenceClass] = []
    without: dict[str, str] = {}


@dataclass(frozen=True)
class Replay:
    """A file's content. `differences` are what the last step shows."""

    header: ReplayHeader
    steps: tuple[Step, ...]
    differences: tuple[StepDifference, ...] = ()

    @property
    def groups(self) -> frozenset[DifferenceClass]:
        """The classes of the file's differences."""
        return frozenset(difference.group for difference in self.differences)


@dataclass(frozen=True)
class ReplayedStep:
    """One step, and the differences that are new after it. `beside`: those that do not count."""

    step: Step
    differences: tuple[StepDifference, ...] = ()
    beside: tuple[StepDifference, ...] = ()


@dataclass(frozen=True)
class ReplayOutcome:
    """The result of a replay. `unplayed`: why the remaining steps were not run; empty if all were."""

    steps: tuple[ReplayedStep, ...]
    unplayed: str = ""

    @property
    def fails(self) -> bool:
        """Whether the client differs from the oracle in a way that counts."""
        return any(step.differences for step in self.steps)

    def shows(self, replay: Replay) -> bool:
        """Whether one of the differences is of a class of the file."""
        return any(difference.group in replay.groups for step in self.steps for difference in step.differences)


def run_replay(target: FuzzTarget, replay: Replay) -> ReplayOutcome:
    """Run the file until the two systems diverge, or to its end."""
    runner = target.start(KnownDifferences(set(replay.header.beside)))
    replayed: list[ReplayedStep] = []
    try:
        for step in replay.steps:
            found = runner.perform(step)
            news = runner.news(found)
            beside = tuple(difference for difference in found if difference not in news)
            replayed.append(ReplayedStep(step, tuple(news), beside))
            # After a divergence, further differences would only be consequences.
            if not runner.live:
                break
    finally:
        target.end(runner)
    # If nothing was compared before the end, the file was not decided.
    decided = runner.live or any(taken.differences or taken.beside for taken in replayed)
    return ReplayOutcome(tuple(replayed), "" if decided else runner.why_over)


def write_replay(replay: Replay, path: Path) -> None:
    """Write the file. Raises UsageProblem if that is not possible."""
    records: list[dict[str, Any]] = [_without_empty(msgspec.to_builtins(replay.header))]
    records += [as_record(step) for step in replay.steps]
    if replay.differences:
        records[-1]["differs"] = [_difference_record(difference) for difference in replay.differences]
    text = "".join(f"{msgspec.json.encode(record).decode()}\n" for record in records)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except OSError as error:
        raise UsageProblem(f"cannot write {path}: {error.strerror}", hint="choose another --out") from error


def file_name(group: DifferenceClass) -> str:
    """A name for the file of a finding."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", f"{group.op}-{group.where}-{group.kind}").strip("-")[:100] + ".jsonl"


def read_replay(path: Path) -> Replay:
    """Read a file. Raises UsageProblem with the number of the line if it is not a replay file."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageProblem(f"cannot read {path}: {reason}", hint="name a replay file (.jsonl)") from error
    if not lines:
        raise UsageProblem(f"{path} is empty", hint="name a replay file (.jsonl)")
    header = _header(path, lines[0])
    steps: list[Step] = []
    differences: list[StepDifference] = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            record = _record(line)
            step = from_record(record)
            steps.append(step)
            differences += [_difference(step.name, differs) for differs in record.get("differs", [])]
        except (ValueError, TypeError) as error:
            raise UsageProblem(f"{path}, line {number}: {error}", hint="steps: docs/how-to/fuzz.md") from error
    if not steps:
        raise UsageProblem(f"{path} has no steps, so it shows nothing", hint="steps: docs/how-to/fuzz.md")
    return Replay(header, tuple(steps), tuple(differences))


def _header(path: Path, line: str) -> ReplayHeader:
    try:
        header = msgspec.convert(_record(line), ReplayHeader)
    except ValueError as error:
        raise UsageProblem(f"{path}, line 1: it is not a header of a replay file: {error}") from error
    if header.replay != FORMAT:
        raise UsageProblem(f"{path} has format {header.replay}, this kit reads {FORMAT}", hint="update the kit")
    return header


def _record(line: str) -> dict[str, Any]:
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError("a line is one JSON object")  # noqa: TRY004 - what reads it catches one kind of error
    return record


def _without_empty(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value not in ("", [], {})}


def _difference_record(difference: StepDifference) -> dict[str, str]:
    fields = {name: getattr(difference, name) for name in ("where", "kind", "key", "expected", "actual")}
    # A client may leave any bytes in Redis; they are shown, and not needed for the replay.
    return {name: escaped_surrogates(value) for name, value in fields.items() if value} | {
        "severity": difference.severity
    }


def _difference(op: str, record: Any) -> StepDifference:
    return msgspec.convert({"key": "", "expected": "", "actual": "", **record, "op": op}, StepDifference)
