"""Known failures: a TOML file of requirements that a client fails, with reasons; entries are checked both ways.

    [[known]]
    requirement = "add.priority.limit"
    reason = "sends the score with the limit of a newer version"
    issue = "https://…"          # optional
    where = "job.opts.*"         # optional: only findings at these locators (glob)
    message = "expected …"       # optional: only findings whose message starts like this
    scenario = "lock/lost[*]"    # optional: only in these scenarios (glob; without brackets: with any parameters)
    sometimes = true             # optional: a race that not every run triggers
    tier = "full"                # optional: it shows only in runs of this tier; default: core

A failing requirement is excused only if an entry matches each of its findings. An entry whose requirement passes is
stale, and an entry that matches no finding although its requirement fails is useless; both fail the run, unless the
entry has `sometimes`. An entry is judged only by a run that covers what the entry was made from: every scenario of its
tier or, if the entry names a scenario, every case of that scenario in this tier.

The table `[cause]` has entries by their reason: `"the reason" = [{requirement = "…", where = "…"}, …]`.

Flaky failures, which can appear in any scenario, are in another table of the file, `[[unsteady]]`
(`conformance/gate/flaky_failures.py`).

A list belongs to the oracle version that it was made with: a difference from 5.62.0 shows nothing about 6.7.0. The list
of the default oracle is `known.toml`; others are in the same folder with the version in their name: `known-6.7.0.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from conformance.findings import Finding
from conformance.gate.flaky_failures import FlakyFailure
from conformance.gate.records import ScenarioRecord, Verdict, worst
from conformance.participants.marks import Tier
from conformance.problems import UsageProblem
from conformance.protocol.scripts import BULLMQ_VERSION

TO_DO = "TODO"
"""Start of the reason of an entry that has not been investigated yet."""

_LIST_OF_ANOTHER = re.compile(r"known-(?P<version>\d+\.\d+\.\d+.*)\.toml")


WholeRun = Callable[[Tier], Collection[str]]
"""Returns the ids of all scenarios, with parameters, that a run of a tier takes if nothing narrows it."""


class KnownFailure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One `[[known]]` entry of the file."""

    requirement: str
    reason: str
    issue: str = ""
    where: str = "*"
    message: str = ""
    scenario: str = "*"
    sometimes: bool = False
    tier: Tier = "core"

    def excuses(self, finding: Finding, scenario: str) -> bool:
        """Whether this entry covers a finding of a scenario (`area/name[parameters]`)."""
        return (
            finding.requirement == self.requirement
            and fnmatchcase(finding.where, self.where)
            and finding.message.startswith(self.message)
            and self.is_about(scenario)
        )

    def is_about(self, scenario: str) -> bool:
        """Whether this entry covers the scenario."""
        # Brackets in ids enclose parameters, so they are not character sets: patterns only have * and ?.
        pattern = self.scenario.replace("[", "[[]")
        # Both forms, so that a pattern without brackets covers every parameter.
        return fnmatchcase(scenario, pattern) or fnmatchcase(without_parameters(scenario), pattern)

    def is_judged_by(self, ran: Collection[str], whole_run: WholeRun) -> bool:
        """Whether a run of these scenarios covers what the entry was made from."""
        about = [name for name in whole_run(self.tier) if self.scenario == "*" or self.is_about(name)]
        return bool(about) and all(name in ran for name in about)


class _ListFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file as it is written."""

    known: tuple[KnownFailure, ...] = ()
    cause: dict[str, tuple[dict[str, str | bool], ...]] = {}
    unsteady: tuple[FlakyFailure, ...] = ()


class KnownFile(msgspec.Struct, frozen=True):
    """The contents of a file; the entries of its causes come after the others."""

    known: tuple[KnownFailure, ...] = ()
    unsteady: tuple[FlakyFailure, ...] = ()


def list_name(oracle: str) -> str:
    """Return the file name for an oracle: `known.toml` for the default one, otherwise like `known-6.7.0.toml`."""
    return "known.toml" if oracle == BULLMQ_VERSION else f"known-{oracle}.toml"


def list_for(path: Path, oracle: str, option: str) -> Path:
    """Return the list for an option's path: the file itself, or the list of this oracle in a folder.

    Raises UsageProblem if the file name contains the version of another oracle.
    """
    # A folder contains the lists of several oracles, and the version chooses among them.
    if path.is_dir():
        return path / list_name(oracle)
    named = _LIST_OF_ANOTHER.fullmatch(path.name)
    if named and named["version"] != oracle:
        raise UsageProblem(
            f"{option} {path}: this list is for oracle {named['version']}, but this run's oracle is {oracle}",
            hint=f"pass {list_name(oracle)} or the folder that contains it",
        )
    return path


def without_parameters(scenario: str) -> str:
    """Return `area/name` of a scenario without its parameters."""
    return scenario.split("[", maxsplit=1)[0]


def load_known(path: Path | None, requirements: Collection[str]) -> tuple[KnownFailure, ...]:
    """Return the known failures of a file. Raises UsageProblem like `load_known_file`."""
    return load_known_file(path, requirements).known


def load_known_file(path: Path | None, requirements: Collection[str]) -> KnownFile:
    """Read the file; None is an empty list.

    Raises UsageProblem if it is missing, not well-formed, gives no reason, or names an unknown requirement.
    """
    if path is None:
        return KnownFile()
    try:
        found = parse_known(path.read_text("utf-8"))
    except OSError as error:
        raise UsageProblem(f"--known {path}: {error.strerror}", hint="give the path of a known.toml") from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise UsageProblem(
            f"--known {path}: {error}", hint="entries look like [[known]] requirement=… reason=…"
        ) from error
    for entry in found.known:
        if entry.requirement not in requirements:
            raise UsageProblem(
                f"--known {path}: unknown requirement {entry.requirement!r}",
                hint="`bullmq-conformance list` prints every id",
            )
    reasons = [(entry.requirement, entry.reason) for entry in found.known]
    for name, reason in [*reasons, *((entry.operation, entry.reason) for entry in found.unsteady)]:
        if not reason.strip():
            raise UsageProblem(
                f"--known {path}: the entry of {name} has no reason",
                hint=f"write why the client fails it, or start the reason with {TO_DO} until you know",
            )
    return found


def parse_known(text: str) -> KnownFile:
    """Parse the text of a file. Raises TOMLDecodeError, ValidationError."""
    file = msgspec.convert(tomllib.loads(text), _ListFile)
    named = [{**entry, "reason": reason} for reason, entries in file.cause.items() for entry in entries]
    return KnownFile((*file.known, *msgspec.convert(named, list[KnownFailure])), file.unsteady)


def unexplained(entries: Iterable[KnownFailure]) -> int:
    """Count the entries whose reason is still to be written."""
    return sum(1 for entry in entries if re.match(rf"{TO_DO}\b", entry.reason))


def excuse(findings: Iterable[Finding], entries: Collection[KnownFailure], scenario: str) -> dict[str, str]:
    """Return the reason for each requirement whose findings in this scenario are all excused."""
    reasons: dict[str, list[str]] = {}
    refused: set[str] = set()
    for finding in findings:
        entry = next((entry for entry in entries if entry.excuses(finding, scenario)), None)
        if entry is None:
            # One finding that no entry covers keeps the requirement failing: it may be a new bug.
            refused.add(finding.requirement)
        else:
            reasons.setdefault(finding.requirement, []).append(entry.reason)
    return {name: "; ".join(dict.fromkeys(texts)) for name, texts in reasons.items() if name not in refused}


def judged_entries(
    entries: Iterable[KnownFailure], records: Collection[ScenarioRecord], whole_run: WholeRun
) -> list[KnownFailure]:
    """Return the entries that a run with these records may show to be stale or unused."""
    ran = {record.id for record in records}
    return [entry for entry in entries if entry.is_judged_by(ran, whole_run)]


def is_stale(entry: KnownFailure, records: Iterable[ScenarioRecord]) -> bool:
    """Whether the requirement passes in all scenarios that the entry covers."""
    # A race that did not happen in this run shows nothing about the entry.
    return _verdict(_covered(entry, records), entry.requirement) == "pass" and not entry.sometimes


def is_unmatched(entry: KnownFailure, records: Iterable[ScenarioRecord]) -> bool:
    """Whether the requirement fails, but no finding matches the entry."""
    about = _covered(entry, records)
    matched = any(entry.excuses(finding, record.id) for record in about for finding in record.findings)
    return _verdict(about, entry.requirement) in ("fail", "warn") and not matched and not entry.sometimes


def _covered(entry: KnownFailure, records: Iterable[ScenarioRecord]) -> list[ScenarioRecord]:
    return [record for record in records if entry.requirement in record.requirements and entry.is_about(record.id)]


def _verdict(records: Collection[ScenarioRecord], requirement: str) -> Verdict | None:
    """Return the verdict of a requirement over several scenarios; None if no scenario judges it."""
    return worst(record.requirements[requirement] for record in records) if records else None


def stale_entries(entries: Iterable[KnownFailure], records: Collection[ScenarioRecord]) -> dict[str, str]:
    """Return the reasons of stale entries by requirement."""
    return {entry.requirement: entry.reason for entry in entries if is_stale(entry, records)}


def unmatched_entries(entries: Iterable[KnownFailure], records: Collection[ScenarioRecord]) -> list[str]:
    """Return a message for each entry that excuses nothing although its requirement was judged and did not pass."""
    return [
        f"known entry {entry.requirement} (where {entry.where!r}, message {entry.message!r}"
        + (f", scenario {entry.scenario!r}" if entry.scenario != "*" else "")
        + ") matches nothing in the run"
        for entry in entries
        if is_unmatched(entry, records)
    ]
