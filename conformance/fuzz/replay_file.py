"""Replay files: a sequence that shows a difference, small enough to read, complete enough to be played by anyone.

JSONL: a header, then one line per step, in the words of `steps.as_record`. The step after which the difference was seen
carries it as `differs`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from conformance.fuzz.findings import DifferenceClass, StepDifference
from conformance.fuzz.modes import Mode
from conformance.fuzz.steps import Step, as_record, from_record
from conformance.problems import UsageProblem

FORMAT = 1

Clock = Literal["frozen", "running"]


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line.

    `title`: one sentence for people. `requirement`: the ledger row that the difference speaks against, where somebody
    has found that out. `client`: who showed it, with its version. `clock`: whether time stood still. `beside`: classes
    of differences that were known already and may be met on the way; they do not count when the file is played.
    `without`: invariants that the oracle itself breaks here, with reasons, for the scenario that the file becomes.
    """

    replay: int = FORMAT
    title: str
    requirement: str = ""
    kit: str
    bullmq: str
    mode: Mode
    clock: Clock
    seed: int
    client: str
    version: str = ""
    beside: list[DifferenceClass] = []
    without: dict[str, str] = {}


@dataclass(frozen=True)
class Replay:
    """A file's content. `differences` are what the last step shows."""

    header: Header
    steps: tuple[Step, ...]
    differences: tuple[StepDifference, ...] = ()

    @property
    def groups(self) -> frozenset[DifferenceClass]:
        """The classes that the file is about."""
        return frozenset(one.group for one in self.differences)


def write_replay(replay: Replay, path: Path) -> None:
    """Write the file. Raises UsageProblem where that is not possible."""
    records: list[dict[str, Any]] = [_without_empty(msgspec.to_builtins(replay.header))]
    records += [as_record(step) for step in replay.steps]
    if replay.differences:
        records[-1]["differs"] = [_difference_record(one) for one in replay.differences]
    text = "".join(f"{msgspec.json.encode(record).decode()}\n" for record in records)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except OSError as error:
        raise UsageProblem(f"cannot write {path}: {error.strerror}", hint="choose another --out") from error


def read_replay(path: Path) -> Replay:
    """Read a file. Raises UsageProblem, naming the line, for one that is no replay file."""
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
            differences += [_difference(step.name, one) for one in record.get("differs", [])]
        except (ValueError, TypeError) as error:
            raise UsageProblem(f"{path}, line {number}: {error}", hint="docs/fuzz.md tells what a step is") from error
    return Replay(header, tuple(steps), tuple(differences))


def file_name(group: DifferenceClass) -> str:
    """A name for the file of a finding."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", f"{group.op}-{group.where}-{group.kind}").strip("-")[:100] + ".jsonl"


def _header(path: Path, line: str) -> Header:
    try:
        header = msgspec.convert(_record(line), Header)
    except ValueError as error:
        raise UsageProblem(f"{path}, line 1: it is no header of a replay file: {error}") from error
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


def _difference_record(one: StepDifference) -> dict[str, str]:
    fields = {"where": one.where, "kind": one.kind, "key": one.key, "expected": one.expected, "actual": one.actual}
    return {name: value for name, value in fields.items() if value} | {"severity": one.severity}


def _difference(op: str, record: Any) -> StepDifference:
    return msgspec.convert({"key": "", "expected": "", "actual": "", **record, "op": op}, StepDifference)
