"""The work before a new release of BullMQ is a supported oracle: files, runs, changes, names without a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from conformance.gate.records import ScenarioRecord
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.protocol.script_versions import scripts_of
from conformance.protocol.versions import SUPPORTED_ORACLES, in_range
from conformance.upstream.installed_files import RECORDED, InstalledFiles
from conformance.upstream.manifest import RawScript
from conformance.versions.changes import VersionDiff

BROKEN = frozenset({"fail", "error"})
"""Verdicts that no run of a release against itself may have."""


@dataclass(frozen=True, kw_only=True)
class Adoption:
    """The findings about a release.

    `sha256`: of all files of its package. `verdicts`: of its scenarios, run with itself as client. `ranges`: rows with
    a scenario that does not hold on it, with these scenarios. `broken`: scenarios that failed, with the reason.
    `difference`: from the release `older`. `without_row`: declared names that are neither used nor left out for a
    reason. `undescribed`: scripts that the kit's table describes wrongly or not at all, with the reason. `took_s`:
    seconds of this call, without the runs that an earlier one has left.
    """

    version: str
    older: str
    sha256: str
    files: int
    verdicts: Mapping[str, int]
    ranges: Mapping[str, list[str]]
    broken: Mapping[str, str]
    difference: VersionDiff
    without_row: list[str]
    undescribed: Mapping[str, str]
    took_s: float = 0

    @property
    def is_ready(self) -> bool:
        """Whether nothing is left to do before the release is added to the supported oracles."""
        return not (self.ranges or self.broken or self.without_row or self.undescribed)


def nearest_supported(version: str) -> str:
    """The newest supported oracle that is older. Raises UsageProblem if there is none."""
    older = [known for known in SUPPORTED_ORACLES if in_range(known, f"<{version}")]
    if not older:
        raise UsageProblem(f"no supported oracle is older than {version}", hint="name one with --since")
    return older[-1]


def hashes_of(root: Path) -> tuple[str, int]:
    """SHA-256 of the package bullmq as npm installed it, and the number of its files.

    Raises EnvironmentProblem for a folder that has no record of them.
    """
    try:
        installed = msgspec.json.decode((root / RECORDED).read_bytes(), type=InstalledFiles)
        own = [path for path in installed.files if path.startswith("bullmq/")]
        return installed.by_package()["bullmq"], len(own)
    except (OSError, KeyError, msgspec.DecodeError) as error:
        raise EnvironmentProblem(f"{root} has no hashes of bullmq", hint="remove the folder, and retry") from error


def ranges_of(records: Iterable[ScenarioRecord]) -> dict[str, list[str]]:
    """The requirements of scenarios that the release does not satisfy: each needs a range."""
    found: dict[str, list[str]] = {}
    for record in records:
        if record.verdict == "changed":
            for requirement in record.about or record.requirements:
                found.setdefault(requirement, []).append(record.id)
    return dict(sorted(found.items()))


def broken_of(records: Iterable[ScenarioRecord]) -> dict[str, str]:
    """Scenarios that fail with the release on both sides: the kit or its driver does not fit."""
    return {
        record.id: record.reason or next((finding.message for finding in record.findings), record.verdict)
        for record in records
        if record.verdict in BROKEN
    }


def verdicts_of(records: Iterable[ScenarioRecord]) -> dict[str, int]:
    """The number of scenarios by verdict."""
    return dict(sorted(Counter(record.verdict for record in records).items()))


def undescribed_scripts(difference: VersionDiff, scripts: Mapping[str, RawScript]) -> dict[str, str]:
    """Scripts that are new or called otherwise, and that the kit's table of the release does not describe like that."""
    table = scripts_of(difference.newer).signatures
    found = {}
    for change in difference.scripts:
        script, described = scripts.get(change.name), table.get(change.name)
        if script is None:
            if described is not None:
                found[change.name] = "is gone, and the table has it"
        elif described is None:
            found[change.name] = "is not in the table"
        elif len(described.keys) != script.keys:
            found[change.name] = f"takes {script.keys} KEYS, and the table says {len(described.keys)}"
        elif change.after is not None and change.after.args > len(described.args) and not described.more:
            found[change.name] = f"reads {change.after.args} ARGV, and the table says {len(described.args)}"
    return found
