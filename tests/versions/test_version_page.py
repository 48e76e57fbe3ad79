"""The page of a comparison is computed from the record alone; `make site` builds those of the committed records."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.problems import UsageProblem
from conformance.report.versions import (
    read_version_record,
    render_version_page,
    render_version_record,
    render_version_text,
    write_version_pages,
)
from conformance.versions.changes import Change, ScriptCall, ScriptChange, VersionDiff

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "versions"


def change(requirement: str = "pause.moves-wait", **words: Any) -> Change:
    plain: dict[str, Any] = {
        "level": "MUST",
        "statement": "Pausing moves the jobs.",
        "later": "Pausing leaves the jobs.",
        "aspect": "redis",
        "severity": "breaks-others",
        "where": "job.x",
        "kind": "wrong-value",
        "before": "1",
        "after": "2",
        "scenarios": ["pause/x"],
    }
    return Change(requirement=requirement, **{**plain, **words})


def record(*changes: Change, **words: Any) -> VersionDiff:
    plain: dict[str, Any] = {"kit": "1", "older": "5.62.0", "newer": "6.7.0", "tier": "core", "scenarios": 7}
    return VersionDiff(**{**plain, "changes": list(changes), "compared_ms": 1_700_000_000_000, **words})


def part(page: str, heading: str) -> str:
    """The text below a heading."""
    return page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_an_option_of_another_type_is_on_the_page() -> None:
    page = render_version_page(record(declared_otherwise={"RetryOptions.state": "'failed' | 'completed'"}))
    assert "| `RetryOptions.state` | `'failed' \\| 'completed'` |" in page


def test_a_difference_is_listed_by_aspect_with_its_release() -> None:
    page = render_version_page(record(change(release="6.0.0", last_before="5.81.5")))
    assert "| `pause.moves-wait` | `job.x`: `1` → `2` | 6.0.0 |" in part(page, "In Redis")
    assert "| 6.0.0 | 5.81.5 | `pause.moves-wait` |" in part(page, "Releases")
    assert "\n## In events\n" not in page


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"kind": "missing-field"}, "6.7.0 does not write `job.x` (before: `1`)"),
        ({"kind": "extra-event", "where": "event.paused"}, "6.7.0 sends `event.paused` as well"),
        ({"what": "it waits"}, "in 5.62.0, it waits: `1`; 6.7.0 has `2`"),
        ({"what": "it waits", "states": "newer"}, "in 6.7.0, it waits: `2`; 5.62.0 has `1`"),
        ({"where": "driver", "what": "add failed"}, "with 6.7.0, add failed"),
        ({"where": "invariant.y", "before": "No ghosts.", "after": "one"}, "No ghosts. Not so in 6.7.0: one"),
        (
            {"where": "invariant.y", "before": "one", "after": "No ghosts.", "states": "newer"},
            "No ghosts. Not so in 5.62.0: one",
        ),
    ],
)
def test_a_change_is_a_sentence(words: dict[str, Any], sentence: str) -> None:
    assert sentence in render_version_page(record(change(**words)))


def test_a_release_that_was_not_found_is_marked() -> None:
    assert "not found: with 6.0.0 it is not clear" in render_version_page(
        record(change(unknown="with 6.0.0 it is not clear"))
    )


def test_the_advice_goes_by_what_breaks() -> None:
    found = record(
        change("a.must"),
        change("b.should", severity="wrong-behaviour", later=""),
        change("c.may", severity="cosmetic"),
        change("d.shared", severity="wrong-behaviour", aspect="together"),
        scripts=[
            ScriptChange(name="gone", before=ScriptCall(keys=1, args=1), after=None),
            ScriptChange(name="new", before=None, after=ScriptCall(keys=1, args=2, more=True), release="6.0.0"),
            ScriptChange(name="other", before=ScriptCall(keys=1, args=1), after=ScriptCall(keys=3, args=4)),
        ],
    )
    advice = part(render_version_page(found), "Changes to a client")
    must, _, rest = advice.partition("**Should**")
    assert "`a.must`: Pausing leaves the jobs." in must
    assert "`d.shared`" in must
    assert "`b.should`: Pausing moves the jobs. Seen in `job.x`." in rest
    assert "**May** stay unchanged: `c.may`." in rest
    assert "stop calling `gone`" in must
    assert "`new` is new (since 6.0.0), with 1 KEYS and 2 ARGV or more" in must
    assert "call `other` with 3 KEYS and 4 ARGV; they were 1 and 1" in must


def test_versions_that_do_the_same_ask_for_nothing() -> None:
    assert "Nothing: all scenarios behave the same in 6.7.0." in render_version_page(record())


def test_foreign_text_is_escaped_and_breaks_no_table() -> None:
    page = render_version_page(record(change(what="<b>|*x*\n\x1b[31m", before="`|`\n", after="\u202e")))
    (row,) = [line for line in page.splitlines() if "in 5.62.0," in line]
    assert "<b>" not in page
    assert row.replace("\\|", "").count("|") == len("||||")
    assert not {"\x1b", "\u202e"} & set(page)


def test_options_of_one_release_are_named() -> None:
    page = render_version_page(record(declared_gone=["JobsOptions.old"], declared_new=["Queue.fresh"]))
    assert part(page, "Options, methods and events that users write").splitlines()[-2:] == [
        "- Gone: `JobsOptions.old`",
        "- New: `Queue.fresh`",
    ]


def test_undecided_scenarios_are_named() -> None:
    page = render_version_page(record(undecided={"pause/x": "the machine was too busy"}))
    assert "- `pause/x`: the machine was too busy" in part(page, "Not decided")


def test_the_terminal_gets_the_same_as_text() -> None:
    text = render_version_text(record(change()))
    assert "pause.moves-wait" in text
    assert "Changes to a client" in text
    assert "##" not in text


def test_the_record_is_read_back(tmp_path: Path) -> None:
    found = record(change(), undecided={"a": "b"})
    page, document = write_version_pages(found, tmp_path)
    assert read_version_record(document) == found
    assert page.read_text("utf-8") == render_version_page(found)
    assert msgspec.json.decode(render_version_record(found))["kind"] == "bullmq-version-diff"


def test_a_file_that_is_not_a_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(UsageProblem, match="holds no comparison of versions"):
        read_version_record(tmp_path / "x.json")


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.json")), ids=lambda path: path.stem)
def test_a_committed_record_is_current(path: Path) -> None:
    found = read_version_record(path)
    assert path.read_text("utf-8") == render_version_record(found)
    assert path.stem == f"{found.older}-{found.newer}"


def test_the_committed_records_name_releases_that_were_confirmed_by_their_neighbours() -> None:
    records = [read_version_record(path) for path in PAGES.glob("*.json")]
    assert {(record.older, record.newer) for record in records} == {("5.62.0", "5.81.5"), ("5.81.5", "6.7.0")}
    for record in records:
        dated = [(change.last_before, change.release) for change in record.changes if change.release]
        dated += [(script.last_before, script.release) for script in record.scripts if script.release]
        assert set(dated) <= set(pairwise(record.releases))
    confirmed = {
        (change.requirement, change.release) for record in records for change in record.changes if change.release
    }
    assert len({requirement for requirement, _ in confirmed}) >= 5
