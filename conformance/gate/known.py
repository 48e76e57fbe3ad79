"""Known failures: a TOML file of requirements that a client is known to fail, each with a reason. It bites both ways.

    [[known]]
    requirement = "add.priority.limit"
    reason = "sends the score with the limit of a newer version"
    issue = "https://…"          # optional
    where = "job.opts.*"         # optional: only findings at these locators (glob)
    message = "expected …"       # optional: only findings whose message starts so
    scenario = "lock/lost[*]"    # optional: only in these scenarios (glob; without brackets: with any parameters)
    sometimes = true             # optional: a race that not every run meets

A failing requirement is excused only if an entry matches each of its findings. An entry whose requirement passes is
stale, an entry that matches no finding although its requirement fails is useless; both fail the run, unless the entry
says `sometimes`. An entry is judged only by a run that shows all that it speaks of: a whole run, or, if it names one
scenario, every run of that scenario.

What no entry can name, because it comes and goes in any scenario, is another table of the file, `[[unsteady]]`
(`conformance/gate/unsteady.py`).

A list belongs to the oracle that it was made with: what differs from 5.62.0 says nothing about 6.7.0. That of the
default oracle is `known.toml`; that of another one stands beside it, with the version in its name: `known-6.7.0.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from conformance.findings import Finding
from conformance.gate.records import ScenarioRecord, Verdict, worst
from conformance.gate.unsteady import UnsteadyFailure
from conformance.problems import UsageProblem
from conformance.protocol.scripts import BULLMQ_VERSION

TO_DO = "TODO"
"""How the reason of an entry begins that nobody has looked into yet."""

_LIST_OF_ANOTHER = re.compile(r"known-(?P<version>\d+\.\d+\.\d+.*)\.toml")


class KnownFailure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry of the file."""

    requirement: str
    reason: str
    issue: str = ""
    where: str = "*"
    message: str = ""
    scenario: str = "*"
    sometimes: bool = False

    def excuses(self, finding: Finding, scenario: str) -> bool:
        """Whether this entry speaks about the finding of a scenario (`area/name[parameters]`)."""
        return (
            finding.requirement == self.requirement
            and fnmatchcase(finding.where, self.where)
            and finding.message.startswith(self.message)
            and self.is_about(scenario)
        )

    def is_about(self, scenario: str) -> bool:
        """Whether this entry speaks about the scenario."""
        # Brackets are those of parameters: a pattern has only * and ?.
        pattern = self.scenario.replace("[", "[[]")
        return fnmatchcase(scenario, pattern) or fnmatchcase(without_parameters(scenario), pattern)

    def is_judged_by(self, scenarios: Iterable[str], *, whole: bool) -> bool:
        """Whether a run of these scenarios shows all that the entry speaks of. `whole`: nothing was left out of it."""
        names = set(scenarios)
        return whole or self.scenario in names | {without_parameters(name) for name in names}


class KnownFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that a file says."""

    known: tuple[KnownFailure, ...] = ()
    unsteady: tuple[UnsteadyFailure, ...] = ()


def list_name(oracle: str) -> str:
    """How the list of an oracle is called: `known.toml`, and `known-6.7.0.toml` for another than the default one."""
    return "known.toml" if oracle == BULLMQ_VERSION else f"known-{oracle}.toml"


def list_for(path: Path, oracle: str, option: str) -> Path:
    """The list that an option's path stands for: a folder's own list of this oracle, or the file itself.

    Raises UsageProblem for a file whose name says that it is about another oracle.
    """
    if path.is_dir():
        return path / list_name(oracle)
    named = _LIST_OF_ANOTHER.fullmatch(path.name)
    if named and named["version"] != oracle:
        raise UsageProblem(
            f"{option} {path}: it is the list of {named['version']}, and this run's oracle is {oracle}",
            hint=f"the list of this oracle is called {list_name(oracle)}; give it, or the folder that it is in",
        )
    return path


def without_parameters(scenario: str) -> str:
    """`area/name` of a scenario, whatever its parameters."""
    return scenario.split("[", maxsplit=1)[0]


def load_known(path: Path | None, requirements: Collection[str]) -> tuple[KnownFailure, ...]:
    """The known failures of a file. Raises UsageProblem as `load_known_file` does."""
    return load_known_file(path, requirements).known


def load_known_file(path: Path | None, requirements: Collection[str]) -> KnownFile:
    """Read the file; without one, nothing is known.

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
    for name, reason in _reasons(found):
        if not reason.strip():
            raise UsageProblem(
                f"--known {path}: the entry of {name} gives no reason",
                hint=f"say why the client fails it; a reason may begin with {TO_DO} until somebody has looked",
            )
    return found


def _reasons(found: KnownFile) -> list[tuple[str, str]]:
    """The reason of every entry, with what it is about."""
    return [
        *((entry.requirement, entry.reason) for entry in found.known),
        *((entry.operation, entry.reason) for entry in found.unsteady),
    ]


def parse_known(text: str) -> KnownFile:
    """What a file's text says. Raises TOMLDecodeError, ValidationError."""
    return msgspec.convert(tomllib.loads(text), KnownFile)


def unexplained(entries: Iterable[KnownFailure]) -> int:
    """How many entries nobody has looked into yet."""
    return sum(1 for entry in entries if re.match(rf"{TO_DO}\b", entry.reason))


def excuse(findings: Iterable[Finding], entries: Collection[KnownFailure], scenario: str) -> dict[str, str]:
    """Reason by requirement, for those whose every finding in this scenario is excused."""
    reasons: dict[str, list[str]] = {}
    refused: set[str] = set()
    for finding in findings:
        entry = next((entry for entry in entries if entry.excuses(finding, scenario)), None)
        if entry is None:
            refused.add(finding.requirement)
        else:
            reasons.setdefault(finding.requirement, []).append(entry.reason)
    return {name: "; ".join(dict.fromkeys(texts)) for name, texts in reasons.items() if name not in refused}


def judged_entries(
    entries: Iterable[KnownFailure], records: Collection[ScenarioRecord], *, whole: bool
) -> list[KnownFailure]:
    """Those about which these records say all that there is to say. `whole`: the run left nothing out."""
    ran = [record.id for record in records]
    return [entry for entry in entries if entry.is_judged_by(ran, whole=whole)]


def is_stale(entry: KnownFailure, records: Iterable[ScenarioRecord]) -> bool:
    """Whether the requirement passes in the scenarios that the entry speaks of."""
    return _verdict(_spoken_of(entry, records), entry.requirement) == "pass" and not entry.sometimes


def is_unmatched(entry: KnownFailure, records: Iterable[ScenarioRecord]) -> bool:
    """Whether the requirement does not hold, and yet no finding is one that the entry speaks of."""
    about = _spoken_of(entry, records)
    matched = any(entry.excuses(finding, record.id) for record in about for finding in record.findings)
    return _verdict(about, entry.requirement) in ("fail", "warn") and not matched and not entry.sometimes


def _spoken_of(entry: KnownFailure, records: Iterable[ScenarioRecord]) -> list[ScenarioRecord]:
    return [record for record in records if entry.requirement in record.requirements and entry.is_about(record.id)]


def _verdict(records: Collection[ScenarioRecord], requirement: str) -> Verdict | None:
    """The verdict of a requirement over several scenarios; None where none judges it."""
    return worst(record.requirements[requirement] for record in records) if records else None


def stale_entries(entries: Iterable[KnownFailure], records: Collection[ScenarioRecord]) -> dict[str, str]:
    """Reasons of the stale entries, by requirement."""
    return {entry.requirement: entry.reason for entry in entries if is_stale(entry, records)}


def unmatched_entries(entries: Iterable[KnownFailure], records: Collection[ScenarioRecord]) -> list[str]:
    """Say which entries excuse nothing although their requirement was judged and did not pass."""
    return [
        f"known entry {entry.requirement} (where {entry.where!r}, message {entry.message!r}"
        + (f", scenario {entry.scenario!r}" if entry.scenario != "*" else "")
        + ") matches nothing in the run"
        for entry in entries
        if is_unmatched(entry, records)
    ]
