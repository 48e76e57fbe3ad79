"""The check of the wording: each pattern, the parts of a file that are checked, and the exceptions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.plain_english import PATTERNS, all_hits, checked_hits, hits_in, subject_hits

EXAMPLES = {
    "tell": ("The stream tells the event.", "The stream holds the event."),
    "nobody": ("Whoever asks gets it; nobody waits.".lower(), "Each caller gets it; no worker waits."),
    "what-clause": ("It ends. What was left is removed.", "It ends. What is left? The rest is removed."),
    "is no": ("A list is no object.", "There is no object, and a list is no longer one."),
    "stands in": ("The job stands in a list.", "The job is in a list."),
    "dated word": ("It begins anew beside the others.", "It starts again next to the others."),
    "play": ("Cases are played twice.", "Cases are run twice, and replayed from a file."),
    "where-clause": ("Where a driver lacks it, it is left out.", "If a driver lacks it, it is left out."),
    "so many": ("It waits so long.", "It waits 30 s."),
    "idiom": ("Both count all the same.", "Both still count."),
    "riddle name": ("for each in jobs", "for job in jobs"),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_is_found_and_a_correct_sentence_is_not(pattern: str) -> None:
    wrong, right = EXAMPLES[pattern]
    assert {name for name, _ in hits_in(wrong)} == {pattern}
    assert not list(hits_in(right))


def test_a_hit_has_its_line() -> None:
    source = "# Title\n\nGood.\n\n- **Where a driver lacks it**, it fails.\n"
    [hit] = checked_hits(Path("docs/page.md"), source)
    assert (hit.line, hit.pattern, hit.text) == (5, "where-clause", "Where a driver lacks it**, it fails.")


PYTHON = '''"""The module tells."""
NAME = "a message tells"
"""The attribute tells."""


class Thing:
    """The class tells."""

    def method(self):
        """The method tells."""
        raise ValueError(f"the error tells {NAME}")


def test_what_it_tells():
    """The scenario tells."""
    assert NAME, "the assertion tells"  # the comment tells


@mutant("name", kills=())
def broken(damage):
    """The mutant tells."""
'''


@pytest.mark.parametrize(
    ("path", "source", "lines"),
    [
        ("docs/page.md", "> It tells.\n", [1]),
        ("conformance/scenarios/test_area.py", PYTHON, [1, 2, 3, 7, 10, 11, 15, 16, 16, 21]),
        ("tests/gate/test_module.py", PYTHON, [1, 3, 7, 10, 14, 14, 15, 16, 16, 21]),
        ("conformance/ledger/area.yaml", "rows:\n  - statement: It tells.\n", [2]),
        ("conformance/node_harness/driver.mjs", "// It tells.\n", [1]),
        ("tests/mutants/data.toml", "reason = 'it tells'\n", []),
        ("conformance/speed/code.lua", "-- it tells\n", []),
    ],
    ids=lambda value: (
        value if isinstance(value, str) and value.endswith((".md", ".py", ".yaml", ".mjs", ".toml")) else ""
    ),
)
def test_the_checked_texts(path: str, source: str, lines: list[int]) -> None:
    assert sorted(hit.line for hit in checked_hits(Path(path), source)) == lines


def test_the_tree_includes_names_and_comments() -> None:
    hits = all_hits(Path("tests/gate/test_module.py"), "def it_tells():  # begins\n")
    assert {hit.pattern for hit in hits} == {"tell", "dated word"}


@pytest.mark.parametrize(
    ("subject", "patterns"),
    [
        ("Fix false timestamp failures of clients with `opts.timestamp`", []),
        ("Ask of long sequences only what each of them can show", ["what-clause"]),
        ("Slow floods down, and mend the throttle", ["dated word", "two changes"]),
        ("Remove worker tests of the reference client that the core scenarios repeat", ["long subject"]),
    ],
)
def test_the_subjects_of_commits(subject: str, patterns: list[str]) -> None:
    assert [hit.pattern for hit in subject_hits(f"75c86e31 {subject}\n")] == patterns


@pytest.mark.parametrize("text", ["nobody", "liveness.tells", "pause.resume-wakes-nobody", "replayed", "`played`"])
def test_names_that_cannot_change_are_allowed(text: str) -> None:
    assert not list(hits_in(text))


def test_an_allowed_name_does_not_hide_its_sentence() -> None:
    assert [name for name, _ in hits_in("`liveness.tells` is about what a worker tells")] == ["tell"]
