"""The record of some sweeps, from which `docs/reference/kill-matrix.md` is written.

It has places, names and lines of Python, never text of Lua:

    python -m conformance.mutants.generated.record docs/reference/kill-matrix.json > docs/reference/kill-matrix.md

Judgements of survivors are not in it: the page uses those of today. Of killed mutants it has only the names.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from conformance.mutants.generated.hunt import HuntedMutant
from conformance.mutants.generated.judgements import judgement_of
from conformance.mutants.generated.outcome import JudgedMutant, SweepOutcome
from conformance.mutants.generated.page import kill_matrix_page
from conformance.pages.compact_json import compact_json


class RecordedMutant(msgspec.Struct, frozen=True, omit_defaults=True):
    """A mutant that was not killed: its place, for people and for judgements, and its fate. `code`: of Python only."""

    line: int
    hunted: HuntedMutant
    code: str = ""


class RecordedSweep(msgspec.Struct, frozen=True):
    """One sample, and how many cases might have noticed its mutants.

    `killed`: keys of the killed mutants, separated by spaces so that they are one line of the file; `warned`: how many
    of them only warn. `others`: all other mutants.
    """

    seed: int | None
    tier: str
    cases: int
    killed: str
    warned: int
    others: list[RecordedMutant]


class KillMatrixRecord(msgspec.Struct, frozen=True):
    """Some sweeps, and the command that made them."""

    command: str
    sweeps: list[RecordedSweep]

    @staticmethod
    def of(outcomes: Sequence[SweepOutcome], command: str) -> KillMatrixRecord:
        """The record of these outcomes, without what a machine or a moment is in them."""
        return KillMatrixRecord(command, [_recorded(outcome) for outcome in outcomes])

    @property
    def page(self) -> str:
        """The page in Markdown."""
        return kill_matrix_page([_judged(sweep) for sweep in self.sweeps], self.command)


def _recorded(outcome: SweepOutcome) -> RecordedSweep:
    others = [
        RecordedMutant(each.line, msgspec.structs.replace(each.hunted, message="", took_s=0.0, problems=[]), each.code)
        for each in outcome.mutants
        if not each.is_killed
    ]
    killed = " ".join(each.key for each in outcome.mutants if each.is_killed)
    return RecordedSweep(outcome.seed, outcome.tier, outcome.cases, killed, outcome.only_warned, others)


def _judged(sweep: RecordedSweep) -> SweepOutcome:
    killed = [
        JudgedMutant(HuntedMutant(key=key, fate="killed", warns=number < sweep.warned), 0, None)
        for number, key in enumerate(sweep.killed.split())
    ]
    others = [
        JudgedMutant(each.hunted, each.line, judgement_of(each.hunted.key, each.line, each.code), each.code)
        for each in sweep.others
    ]
    return SweepOutcome(sweep.seed, sweep.tier, sweep.cases, [*killed, *others])


def write_record(record: KillMatrixRecord, page: Path) -> None:
    """Write the page, and the record as `.json` next to it."""
    page.with_suffix(".json").write_text(compact_json(msgspec.to_builtins(record), depth=4), encoding="utf-8")
    page.write_text(record.page, encoding="utf-8")


def read_record(path: Path) -> KillMatrixRecord:
    """The record in this file. Raises msgspec.DecodeError for another one."""
    return msgspec.json.decode(path.read_bytes(), type=KillMatrixRecord)


if __name__ == "__main__":
    sys.stdout.write(read_record(Path(sys.argv[1])).page)
