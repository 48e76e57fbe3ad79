"""Failures that come and go: what a client does wrong now and then, in whatever scenario it happens to meet.

    [[unsteady]]
    operation = "worker.*"       # only where the client has done one of these (glob over operations)
    reason = "a loop that is closed sometimes fetches one more job"
    at_most = 3                  # in so many scenarios of a run
    where = "membership.*"       # optional: only findings at these locators (glob)
    issue = "https://…"          # optional

No entry of known failures can name the scenario, or the requirement, of such a failure. A scenario that fails in this
way is played again, alone. Where it holds then, it is counted as held, and the run says that it was repeated, and why;
where it fails every time, it fails. More than `at_most` such scenarios fail the run: that is more than now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from fnmatch import fnmatchcase

import msgspec

from conformance.findings import Finding
from conformance.gate.records import ScenarioRecord

MOST_REPEATS = 2

Play = Callable[[], ScenarioRecord]


class UnsteadyFailure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry of the file."""

    operation: str
    reason: str
    at_most: int
    where: str = "*"
    issue: str = ""

    def explains(self, record: ScenarioRecord) -> bool:
        """Whether it may be why this scenario failed: the client did the operation, and nothing is wrong elsewhere."""
        did = any(step.by in ("both", "client") and fnmatchcase(step.do, self.operation) for step in record.steps)
        wrong = list(_not_excused(record))
        return did and bool(wrong) and all(fnmatchcase(finding.where, self.where) for finding in wrong)


def _not_excused(record: ScenarioRecord) -> Iterable[Finding]:
    return (
        finding
        for finding in record.findings
        if record.requirements.get(finding.requirement) == "fail" and finding.requirement not in record.known
    )


def steadied(play: Play, again: Play, entries: Collection[UnsteadyFailure]) -> ScenarioRecord:
    """The record of a scenario, repeated where an entry may explain its failure. `again` plays it alone.

    Of a scenario that fails every time, the record of its first attempt: nothing is forgiven.
    """
    first = record = play()
    said: list[str] = []
    while (entry := _explanation(record, entries)) is not None and len(said) < MOST_REPEATS:
        said += [f"{entry.reason}: {_outcome(record)}", *record.repeated]
        record = again()
        if record.verdict not in ("fail", "error", "inconclusive"):
            return msgspec.structs.replace(record, repeated=[*said, *record.repeated], unsteady=entry.reason)
    return first


def _explanation(record: ScenarioRecord, entries: Iterable[UnsteadyFailure]) -> UnsteadyFailure | None:
    if record.verdict != "fail":
        return None
    return next((entry for entry in entries if entry.explains(record)), None)


def _outcome(record: ScenarioRecord) -> str:
    return f"{record.verdict}, {next((finding.message for finding in _not_excused(record)), record.reason)}"


def too_often(entries: Iterable[UnsteadyFailure], records: Collection[ScenarioRecord]) -> list[str]:
    """Say which entries were needed in more scenarios than they allow."""
    met = {entry: [record.id for record in records if record.unsteady == entry.reason] for entry in entries}
    return [
        f"{len(scenarios)} scenarios failed at first and held when they were repeated ({', '.join(scenarios)}), and "
        f"the known entry {entry.reason!r} allows {entry.at_most}"
        for entry, scenarios in met.items()
        if len(scenarios) > entry.at_most
    ]
