"""The page about the corpus: how many real bugs the kit catches, by port and area, and which are open."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from conformance.bugs.corpus import BlindDraw, Bug, Corpus

_HEAD = """# Real bugs

This page shows which bugs of BullMQ and its ports the kit catches. Every entry under "Bug Fixes" in the changelogs
until 21 August 2026 has a row: Node.js 5.0.0 to 6.2.0, Python from 1.0, Rust, Elixir and PHP (.NET has no such entry
yet). Open issues of the ports have rows too, as far as they were found.

| status | meaning |
|---|---|
| caught | a requirement fails with the release before the fix, and passes with the release of the fix or newer |
| open | a test could show the bug, and none of the kit does |
| not visible | no test that drives the client from outside can show it |

`bullmq-conformance bugs list` prints what each bug does to a user, and `bullmq-conformance bugs prove ID` repeats a
proof. A mutant with the same defect takes the place of releases that cannot be installed, or cannot be driven.
The page is generated from `conformance/bugs/data`.
"""


def bugs_page(corpus: Corpus, draw: BlindDraw) -> str:
    """Return the page as Markdown."""
    bugs = list(corpus.values())
    parts = [
        _HEAD,
        _measured(corpus, draw),
        _fuzzed(bugs),
        _table("By port", "port", bugs, lambda bug: bug.port),
        _table("By area", "area", bugs, lambda bug: bug.area),
        _listed("Caught", (bug for bug in bugs if bug.status == "caught")),
        _listed("Open", (bug for bug in bugs if bug.status == "open")),
        _hidden([bug for bug in bugs if bug.status == "not visible"]),
    ]
    return "\n".join(parts)


def _measured(corpus: Corpus, draw: BlindDraw) -> str:
    now = sum(corpus[bug_id].status == "caught" for bug_id in draw.ids)
    text = textwrap.fill(
        f"Measured blind: of {len(draw.ids)} visible bugs that were drawn on {draw.drawn} (seed {draw.seed}), before "
        f"scenarios were written for their classes, {draw.caught_then} were caught; now {now} are.",
        120,
    )
    return f"{text}\n"


def _fuzzed(bugs: Sequence[Bug]) -> str:
    caught = [bug for bug in bugs if bug.status == "caught"]
    reasons = Counter(bug.fuzz for bug in caught if isinstance(bug.fuzz, str))
    found = sum(isinstance(bug.fuzz, int) for bug in caught)
    unfound, unhunted = reasons.pop("unfound", 0), reasons.pop("unhunted", 0)
    others = ", ".join(f"{reason} {number}" for reason, number in reasons.most_common())
    text = (
        f"Fuzzed: of {len(caught)} caught bugs, {found + unfound + unhunted} can be provoked by a sequence of calls. "
        f"`fuzz --mode differential` finds {found} of them within a minute; {unfound} it did "
        f"not find in one to three such searches, and {unhunted} were not tried yet. "
        f"The others need more than such a sequence ({others})."
    )
    return f"{textwrap.fill(text, 120, break_on_hyphens=False)}\n"


def recall_text(bugs: Iterable[Bug]) -> str:
    """Return the share of visible bugs that are caught, such as `7 of 20 (35 %)`."""
    visible = [bug for bug in bugs if bug.status != "not visible"]
    caught = sum(bug.status == "caught" for bug in visible)
    return f"{caught} of {len(visible)} ({100 * caught // len(visible)} %)" if visible else "none"


def _table(title: str, name: str, bugs: Sequence[Bug], key: Callable[[Bug], str]) -> str:
    lines = [f"## {title}\n", f"| {name} | bugs | caught | by releases | open | not visible | caught of visible |"]
    lines.append("|---|---|---|---|---|---|---|")
    groups = [(group, [bug for bug in bugs if key(bug) == group]) for group in dict.fromkeys(map(key, bugs))]
    for group, members in [*groups, ("all", bugs)]:
        counts = Counter(bug.status for bug in members)
        by_releases = sum(bug.is_proven_by_releases for bug in members)
        numbers = f"{counts['caught']} | {by_releases} | {counts['open']} | {counts['not visible']}"
        lines.append(f"| {group} | {len(members)} | {numbers} | {recall_text(members)} |")
    return "\n".join(lines) + "\n"


def _listed(title: str, bugs: Iterable[Bug]) -> str:
    """The ids by area; `bugs list` has the sentence of each."""
    areas: dict[str, list[str]] = {}
    for bug in bugs:
        areas.setdefault(bug.area, []).append(bug.id)
    lines = [f"## {title}\n"]
    for area, ids in sorted(areas.items()):
        lines += textwrap.wrap(
            f"- {area}: {', '.join(ids)}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
    return "\n".join(lines) + "\n"


def _hidden(bugs: Sequence[Bug]) -> str:
    lines = ["## Not visible from outside\n", "| area | bugs | for example |", "|---|---|---|"]
    for area, number in Counter(bug.area for bug in bugs).most_common():
        example = next(bug for bug in bugs if bug.area == area)
        lines.append(f"| {area} | {number} | {example.id}: {_cell(example.reason)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
