"""A new release: each kind of thing that it needs is listed, and a supported one needs nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.cli.versions import versions
from conformance.gate.records import ScenarioRecord, Verdict
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.report.adoption import render_adoption
from conformance.upstream.declarations import Declarations
from conformance.upstream.manifest import RawScript
from conformance.versions.adoption import (
    Adoption,
    broken_of,
    hashes_of,
    nearest_supported,
    ranges_of,
    undescribed_scripts,
    verdicts_of,
)
from conformance.versions.changes import ScriptCall, ScriptChange, VersionDiff
from conformance.versions.declared_names import without_row


def _record(name: str, verdict: Verdict, reason: str = "") -> ScenarioRecord:
    return ScenarioRecord(
        id=name, title="", area="a", tier="core", verdict=verdict, requirements={"a.row": verdict}, reason=reason
    )


RECORDS = [_record("a/x", "pass"), _record("a/y", "changed"), _record("a/z", "error", "no such method")]
DIFFERENCE = VersionDiff(
    kit="1",
    older="6.5.4",
    newer="6.7.0",
    tier="core",
    scenarios=3,
    changes=[],
    scripts=[
        *(
            ScriptChange(name=name, before=None, after=ScriptCall(keys=1, args=1))
            for name in ("brandNew", "getCounts", "getState")
        ),
        ScriptChange(name="extendLock", before=None, after=ScriptCall(keys=2, args=9)),
    ],
    compared_ms=0,
)


def test_every_kind_of_work_is_on_the_page() -> None:
    scripts = {
        "brandNew": RawScript(keys=1, text=""),
        "getCounts": RawScript(keys=1, text=""),
        "getState": RawScript(keys=99, text=""),
        "extendLock": RawScript(keys=2, text=""),
    }
    names = without_row(Declarations(options={"JobsOptions.brandNew": "boolean"}, methods={"Queue.add"}))
    found = Adoption(
        version="6.7.0",
        older="6.5.4",
        sha256="0" * 64,
        files=7,
        verdicts=verdicts_of(RECORDS),
        ranges=ranges_of(RECORDS),
        broken=broken_of(RECORDS),
        difference=DIFFERENCE,
        without_row=names,
        undescribed=undescribed_scripts(DIFFERENCE, scripts),
        took_s=686,
    )
    page = render_adoption(found)
    assert not found.is_ready
    for line in (
        "1 changed, 1 error, 1 pass",
        "- `a.row`: a/y",
        "- `a/z`: no such method",
        "- `JobsOptions.brandNew`",
        "- `brandNew`: is not in the table",
        "- `getState`: takes 99 KEYS, and the table says 8",
        "- `extendLock`: reads 9 ARGV, and the table says 3",
        "The list took 11 minutes.",
    ):
        assert line in page
    assert "- `getCounts`: takes" not in page


def test_the_nearest_supported_release() -> None:
    assert nearest_supported("6.8.0") == "6.7.0"
    assert nearest_supported("6.7.0") == "5.81.5"
    with pytest.raises(UsageProblem, match="no supported oracle is older"):
        nearest_supported("5.62.0")


def test_the_hash_changes_with_any_file(tmp_path: Path) -> None:
    record = tmp_path / "files.json"
    record.write_text(json.dumps({"files": {"bullmq/a.js": "1", "ioredis/b.js": "2"}}), "utf-8")
    before, number = hashes_of(tmp_path)
    record.write_text(json.dumps({"files": {"bullmq/a.js": "3", "ioredis/b.js": "2"}}), "utf-8")
    assert number == 1
    assert hashes_of(tmp_path)[0] != before
    record.unlink()
    with pytest.raises(EnvironmentProblem, match="no hashes of bullmq"):
        hashes_of(tmp_path)


@pytest.mark.slow
def test_a_supported_release_needs_nothing(tmp_path: Path) -> None:
    words = ("6.7.0", "--since", "6.5.4", "--select", "pause.delayed-promoted", "--jobs", "1", "--out", str(tmp_path))
    result = CliRunner().invoke(versions, ("adopt", *words), standalone_mode=False, catch_exceptions=False)
    assert "## Scripts to describe" not in result.stdout
    assert "## Rows that need a range" not in result.stdout
    assert (tmp_path / "adopt-6.7.0.md").read_text("utf-8").startswith("# Adopt BullMQ 6.7.0\n\nReady")
    assert result.return_value == 0
