"""Checks that a list of known failures is tight: without any one of its entries, a run would fail.

    python -m tests.clients.tightness conformance/clients/python_official/known.toml RUN [RUN ...]

RUN is the folder of `bullmq-conformance run --out RUN`, with this list or without one. Its records are judged again by
the rules of the gate, with the whole list and without each of its entries in turn. Exits with 0 if the whole list holds
in every run (also in one that leaves requirements undecided) and each entry is needed in at least one. An entry with
`sometimes` that matches nothing in any of these runs is printed, but does not count against the list; the same holds
for an `unsteady` one, which is needed by a run in which a scenario held only when it was repeated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.findings import Finding
from conformance.gate.conclusion import RunEvidence, draw_conclusion
from conformance.gate.known_failures import (
    KnownFailure,
    KnownFile,
    judged_entries,
    load_known_file,
    stale_entries,
    unmatched_entries,
)
from conformance.gate.options import RunConfig
from conformance.gate.records import RunFooter, ScenarioRecord
from conformance.gate.selection import whole_runs
from conformance.gate.verdicts import NOT_REACHED, UNFINISHED, verdict_of, with_excuses
from conformance.ledger.loader import Ledger, load_ledger
from conformance.ledger.profiles import load_profiles
from conformance.report.run_file import Run, find_run, read_run

HOLDS, FAILS, UNDECIDED = 0, 1, 4


@dataclass(frozen=True)
class Judgement:
    """How a run would have ended with a list. `failing`: the requirements that fail and are not excused."""

    exit_code: int
    failing: frozenset[str]


def judged_with(run: Run, entries: Sequence[KnownFailure], ledger: Ledger) -> Judgement:
    """The conclusion of a complete run with this list."""
    header = run.header
    scenarios = [_judged_again(record, entries, ledger) for record in run.scenarios]
    config = RunConfig(oracle=header.options.get("oracle", ""), redis=header.options.get("redis", ""))
    judged = judged_entries(entries, scenarios, whole_runs(config))
    footer = RunFooter(
        finished_ms=run.footer.finished_ms if run.footer else header.started_ms,
        exit_code=HOLDS,
        verdicts={},
        stale=stale_entries(judged, scenarios),
        problems=unmatched_entries(judged, scenarios),
        stopped=run.footer.stopped if run.footer else "",
    )
    levels = {row.id: row.level for row in ledger.values() if row.examined}
    evidence = RunEvidence(header=header, scenarios=scenarios, footer=footer, levels=levels, profiles=load_profiles())
    failing = {name for name, outcome in evidence.outcomes.items() if outcome.reported == "fail"}
    return Judgement(draw_conclusion(evidence).exit_code, frozenset(failing))


def _judged_again(record: ScenarioRecord, entries: Sequence[KnownFailure], ledger: Ledger) -> ScenarioRecord:
    if not record.findings:
        return record
    return with_excuses(record, entries, ledger, reached_end=_reached_end(record))


def _reached_end(record: ScenarioRecord) -> bool:
    """Whether the scenario ran to its end: recorded if something was known, else derived from unfinished requirements.

    A job that only one side has leaves its requirements unfinished, although the scenario may have ended.
    """
    if record.known:
        return NOT_REACHED not in record.known.values()
    one_sided = any(finding.kind in ("missing-job", "extra-job") for finding in record.findings)
    stopped = record.reason or not one_sided or any(finding.source == "assertion" for finding in record.findings)
    return not (stopped and any(verdict in UNFINISHED for verdict in record.requirements.values()))


def needed_in(run: Run, entries: Sequence[KnownFailure], ledger: Ledger) -> Iterator[bool]:
    """For each entry, whether the run fails without it, with more failing requirements than with the whole list."""
    whole_list = judged_with(run, entries, ledger)
    for number in range(len(entries)):
        others = [entry for other, entry in enumerate(entries) if other != number]
        without = judged_with(run, others, ledger)
        yield without.exit_code == FAILS and without.failing > whole_list.failing


def doubled_in(run: Run, entries: Sequence[KnownFailure], ledger: Ledger) -> list[KnownFailure]:
    """Entries that excuse a failure of this run, but are not needed in it because of other entries."""
    return [
        entry
        for entry, needed in zip(entries, needed_in(run, entries, ledger), strict=True)
        if not needed
        and any(entry.excuses(finding, record.id) for record in run.scenarios for finding in _failing(record, ledger))
    ]


def _failing(record: ScenarioRecord, ledger: Ledger) -> list[Finding]:
    return [finding for finding in record.findings if verdict_of(finding, ledger) == "fail"]


def met_in(run: Run, entry: KnownFailure) -> bool:
    """Whether a finding of the run matches the entry."""
    return any(entry.excuses(finding, record.id) for record in run.scenarios for finding in record.findings)


def complaints(runs: Sequence[Run], entries: Sequence[KnownFailure], ledger: Ledger) -> Iterator[str]:
    """Reasons why the list is incomplete or not tight."""
    for run in runs:
        judgement = judged_with(run, entries, ledger)
        # A client that cannot reach every requirement ends with UNDECIDED, although its list excuses all that fails.
        if judgement.exit_code not in (HOLDS, UNDECIDED):
            left = f": {', '.join(sorted(judgement.failing))} not excused" if judgement.failing else ""
            yield f"with the whole list, run {run.header.run} ends with {judgement.exit_code}{left}"
    answers = zip(*(needed_in(run, entries, ledger) for run in runs), strict=True)
    for number, (entry, needed) in enumerate(zip(entries, answers, strict=True), start=1):
        met = any(met_in(run, entry) for run in runs)
        if not any(needed) and (met or not entry.sometimes):
            yield f"entry {number} can be removed: {_named(entry)}"


def _named(entry: KnownFailure) -> str:
    narrowed = {"where": entry.where, "message": entry.message, "scenario": entry.scenario}
    filters = ", ".join(f"{name} {value!r}" for name, value in narrowed.items() if value not in ("", "*"))
    return entry.requirement + (f" ({filters})" if filters else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    options = parser.parse_args()
    runs = [read_run(find_run(path)) for path in options.runs]
    for run in runs:
        if run.footer is None:
            parser.error(f"run {run.header.run} was cut: it has no footer")
    oracles = {run.header.oracle.version for run in runs}
    if len(oracles) > 1:
        parser.error(f"a list belongs to one oracle, and these runs have {', '.join(sorted(oracles))}")
    ledger = load_ledger(oracles.pop())
    file = load_known_file(options.list, load_ledger())
    entries = file.known
    problems = list(complaints(runs, entries, ledger))
    for line in [*problems, *_unmet(runs, file)]:
        print(line)
    needed = "not tight" if problems else "tight: without any one of them, a run ends with 1"
    print(f"{options.list}: {len(entries)} entries, {needed}")
    return FAILS if problems else HOLDS


def _unmet(runs: Sequence[Run], file: KnownFile) -> Iterator[str]:
    """A line for each intermittent entry that matches nothing in these runs."""
    for entry in file.known:
        if entry.sometimes and not any(met_in(run, entry) for run in runs):
            yield f"not seen in these runs, which is allowed: {_named(entry)}"
    for unsteady in file.unsteady:
        if not any(record.unsteady == unsteady.reason for run in runs for record in run.scenarios):
            yield f"not seen in these runs, which is allowed: {unsteady.operation}, {unsteady.reason}"


if __name__ == "__main__":
    sys.exit(main())
