"""The work that a new release still needs, as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from conformance.pages.markdown import markdown_code, markdown_words
from conformance.pages.text import clip, count
from conformance.versions.adoption import Adoption

LONGEST = 160


def render_adoption(found: Adoption) -> str:
    """Render as Markdown, with one heading for each step that is left."""
    return "\n".join(_page(found)).rstrip() + "\n"


def _page(found: Adoption) -> Iterator[str]:
    yield f"# Adopt BullMQ {found.version}"
    yield ""
    state = "Ready: add it to `SUPPORTED_ORACLES`." if found.is_ready else "Not ready: see below."
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in found.verdicts.items())
    yield f"{state} Compared with {found.older}; scenarios with {found.version} on both sides: {verdicts}."
    yield ""
    took = count(round(found.took_s / 60), "minute")
    yield f"The list took {took}. Package: {count(found.files, 'file')}, SHA-256 `{found.sha256}`."
    yield from _names(
        "Rows that need a range",
        "A scenario of the row does not hold on this release: give it a range, and write its sibling.",
        {row: ", ".join(scenarios) for row, scenarios in found.ranges.items()},
    )
    yield from _names("Scenarios that fail", "The kit or the Node driver does not fit this release.", found.broken)
    yield from _names(
        "Declared names without a row",
        "Write a scenario, or a line of `conformance/scenarios/unused.toml`.",
        dict.fromkeys(found.without_row, ""),
    )
    yield from _names("Scripts to describe", "In `conformance/protocol/script_versions.py`.", found.undescribed)
    changed = sorted({change.requirement for change in found.difference.changes})
    yield from _names(
        f"Changed since {found.older}",
        f"The page {found.older}-{found.version}.md has the details.",
        {
            **dict.fromkeys(changed, "behaviour"),
            **{change.name: "script, called otherwise" for change in found.difference.scripts},
            **dict.fromkeys(found.difference.declared_new, "new name"),
            **dict.fromkeys(found.difference.declared_gone, "name is gone"),
        },
    )


def _names(title: str, advice: str, names: Mapping[str, str]) -> Iterator[str]:
    if not names:
        return
    yield from ("", f"## {title} ({len(names)})", "", advice, "")
    for name, why in names.items():
        reason = markdown_words(clip(" ".join(why.split()), LONGEST))
        yield f"- {markdown_code(name)}{f': {reason}' if why else ''}"
