"""Known failures: a TOML file of requirements that a client is known to fail, each with a reason. It bites both ways.

    [[known]]
    requirement = "add.priority.limit"
    reason = "sends the score with the limit of a newer version"
    issue = "https://…"          # optional
    where = "job.opts.*"         # optional: only findings at these locators (glob)
    message = "expected …"       # optional: only findings whose message starts so
    sometimes = true             # optional: a race that not every run meets

A failing requirement is excused only if an entry matches each of its findings. An entry whose requirement passes is
stale, an entry that matches no finding although its requirement fails is useless; both fail the run, unless the entry
says `sometimes`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from conformance.findings import Finding
from conformance.gate.records import ScenarioRecord
from conformance.problems import UsageProblem


class KnownFailure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of the file."""

    requirement: str
    reason: str
    issue: str = ""
    where: str = "*"
    message: str = ""
    sometimes: bool = False

    def excuses(self, finding: Finding) -> bool:
        """Whether this entry speaks about the finding."""
        return (
            finding.requirement == self.requirement
            and fnmatchcase(finding.where, self.where)
            and finding.message.startswith(self.message)
        )


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    known: tuple[KnownFailure, ...] = ()


def load_known(path: Path | None, requirements: Collection[str]) -> tuple[KnownFailure, ...]:
    """Read the file. Raises UsageProblem if it is missing, not well-formed, or names an unknown requirement."""
    if path is None:
        return ()
    try:
        entries = msgspec.convert(tomllib.loads(path.read_text("utf-8")), _File).known
    except OSError as error:
        raise UsageProblem(f"--known {path}: {error.strerror}", hint="give the path of a known.toml") from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise UsageProblem(
            f"--known {path}: {error}", hint="entries look like [[known]] requirement=… reason=…"
        ) from error
    for entry in entries:
        if entry.requirement not in requirements:
            raise UsageProblem(
                f"--known {path}: unknown requirement {entry.requirement!r}",
                hint="`bullmq-conformance list` prints every id",
            )
    return entries


def excuse(findings: Iterable[Finding], entries: Collection[KnownFailure]) -> dict[str, str]:
    """Reason by requirement, for those whose every finding is excused."""
    reasons: dict[str, list[str]] = {}
    refused: set[str] = set()
    for finding in findings:
        entry = next((entry for entry in entries if entry.excuses(finding)), None)
        if entry is None:
            refused.add(finding.requirement)
        else:
            reasons.setdefault(finding.requirement, []).append(entry.reason)
    return {name: "; ".join(dict.fromkeys(texts)) for name, texts in reasons.items() if name not in refused}


def stale_entries(entries: Collection[KnownFailure], records: Collection[ScenarioRecord]) -> dict[str, str]:
    """Requirements that are listed and whose every judged scenario passes: reason by requirement."""
    judged: dict[str, set[str]] = {}
    for record in records:
        for requirement, verdict in record.requirements.items():
            judged.setdefault(requirement, set()).add(verdict)
    passes = {name for name, verdicts in judged.items() if verdicts == {"pass"}}
    return {entry.requirement: entry.reason for entry in entries if entry.requirement in passes and not entry.sometimes}


def unmatched_entries(entries: Collection[KnownFailure], records: Collection[ScenarioRecord]) -> list[str]:
    """Say which entries excuse nothing although their requirement was judged and did not pass."""
    findings = [finding for record in records for finding in record.findings]
    judged = {requirement for record in records for requirement in record.requirements}
    stale = stale_entries(entries, records)
    return [
        f"known entry {entry.requirement} (where {entry.where!r}, message {entry.message!r}) matches nothing in the run"
        for entry in entries
        if entry.requirement in judged
        and entry.requirement not in stale
        and not entry.sometimes
        and not any(entry.excuses(finding) for finding in findings)
    ]
