"""Flaky failures: intermittent mistakes of a client that can appear in any scenario.

    [[unsteady]]
    operation = "worker.*"       # only if the client performed one of these (glob over operations)
    reason = "a loop that is closed sometimes fetches one more job"
    at_most = 3                  # scenarios of a run in which it may appear
    where = "membership.*"       # optional: only findings at these locators (glob)
    issue = "https://…"          # optional

Entries of known failures name a scenario or requirement, so they cannot describe these. A scenario that fails in this
way is repeated when all others have run. If it then holds, it counts as held, and the record says that it was repeated
and why. If it fails every time, it fails. More than `at_most` such scenarios fail the run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from fnmatch import fnmatchcase

import msgspec

from conformance.findings import Finding
from conformance.gate.records import ScenarioRecord

# Two are enough: a failure that happens sometimes rarely happens three times in a row.
MOST_REPEATS = 2
MOST_SHOWN = 3
"""Findings of an attempt that are kept as text."""

RunScenario = Callable[[], ScenarioRecord]


class FlakyFailure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One `[[unsteady]]` entry of known.toml."""

    operation: str
    reason: str
    at_most: int
    where: str = "*"
    issue: str = ""

    def explains(self, record: ScenarioRecord) -> bool:
        """Whether it can explain why a scenario failed: the client did the operation, and nothing else is wrong."""
        did = any(step.by in ("both", "client") and fnmatchcase(step.do, self.operation) for step in record.steps)
        wrong = list(_not_excused(record))
        # Every finding has to match: one that the entry does not describe is a new failure.
        return did and bool(wrong) and all(fnmatchcase(finding.where, self.where) for finding in wrong)


def _not_excused(record: ScenarioRecord) -> Iterable[Finding]:
    return (
        finding
        for finding in record.findings
        if record.requirements.get(finding.requirement) == "fail" and finding.requirement not in record.known
    )


def retry_flaky(
    first: ScenarioRecord, again: RunScenario, entries: Collection[FlakyFailure], may_repeat: Callable[[], bool]
) -> ScenarioRecord:
    """Run a scenario `again` if an entry may explain its first failure. Returns the record of the attempt that counts.

    If every attempt fails, or none is allowed, the first record is returned: nothing is excused.
    """
    record = first
    repeated: list[str] = []
    while (entry := explanation(record, entries)) is not None and len(repeated) < MOST_REPEATS and may_repeat():
        repeated += [f"{entry.reason}: {outcome_text(record, _not_excused(record))}", *record.repeated]
        record = again()
        # A repetition that is inconclusive must not excuse the failure that was seen first.
        if record.verdict not in ("fail", "error", "inconclusive"):
            # `unsteady` is counted against `at_most` at the end of the run.
            return msgspec.structs.replace(record, repeated=[*repeated, *record.repeated], unsteady=entry.reason)
    return first


def explanation(record: ScenarioRecord, entries: Iterable[FlakyFailure]) -> FlakyFailure | None:
    """Return the entry that may explain why the scenario failed."""
    # `fail` only: errors and open questions have causes of their own, which the Repeater handles.
    if record.verdict != "fail":
        return None
    return next((entry for entry in entries if entry.explains(record)), None)


def outcome_text(record: ScenarioRecord, findings: Iterable[Finding]) -> str:
    """Return an attempt that does not count as text: its verdict, its reason, and the first of these findings."""
    every = [f"{finding.message} (expected {finding.expected}, actual {finding.actual})" for finding in findings]
    shown, more = every[:MOST_SHOWN], len(every) - MOST_SHOWN
    texts = [*([record.reason] if record.reason else []), *shown, *([f"{more} more findings"] if more > 0 else [])]
    return f"{record.verdict}, {'; '.join(texts)}" if texts else record.verdict


def too_often(entries: Iterable[FlakyFailure], records: Collection[ScenarioRecord]) -> list[str]:
    """Return a message for each entry that was needed in more scenarios than it allows."""
    met = {entry: [record.id for record in records if record.unsteady == entry.reason] for entry in entries}
    return [
        f"{len(scenarios)} scenarios failed at first and held when they were repeated ({', '.join(scenarios)}), and "
        f"the known entry {entry.reason!r} allows {entry.at_most}"
        for entry, scenarios in met.items()
        if len(scenarios) > entry.at_most
    ]
