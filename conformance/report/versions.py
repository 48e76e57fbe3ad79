"""Differences between two versions of BullMQ as a page, terminal text and JSON, computed from the record."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec
from packaging.version import Version
from rich.console import Console
from rich.markdown import Markdown

from conformance.pages.compact_json import compact_json
from conformance.pages.markdown import markdown_code, markdown_words
from conformance.pages.text import clip, count, moment
from conformance.problems import UsageProblem, printable
from conformance.report.output import write_text
from conformance.versions.changes import (
    Aspect,
    Change,
    Effect,
    EffectHarm,
    ScriptCall,
    ScriptChange,
    VersionDiff,
    by_requirement,
)
from conformance.versions.mixed.judging import WORDS

ASPECTS: Mapping[Aspect, str] = {
    "together": "On one queue, both versions at once",
    "redis": "In Redis",
    "events": "In events",
    "answers": "In answers",
    "calls": "In how scripts are called",
    "steps": "In the effects of calls",
}
"""Heading of each aspect; lost jobs come first."""

WIDTH = 110
"""Columns of the terminal's text, where it is not a terminal."""
LONGEST = 160
"""Longest text of a value on a page, in characters."""

_SENTENCES: Mapping[str, str] = {
    "missing-field": "{newer} does not write {where} (before: {before})",
    "extra-field": "{newer} writes {where}: {after}",
    "missing-key": "{newer} does not leave {where} (before: {before})",
    "extra-key": "{newer} leaves {where}: {after}",
    "missing-member": "{where} lacks {before}",
    "extra-member": "{where} has {after} as well",
    "missing-event": "{newer} does not send {where}",
    "extra-event": "{newer} sends {where} as well",
    "missing-job": "{newer} does not leave the job {before}",
    "extra-job": "{newer} leaves the job {after} as well",
    "wrong-state": "a job is in {after} and no longer in {before}",
}
"""The sentence for a kind of change; every other kind gives both values."""


_HARMS: Sequence[str] = WORDS
"""The words for what happens on a shared queue, the mildest first."""


def render_version_page(found: VersionDiff) -> str:
    """Render the comparison as Markdown."""
    return "\n".join(line.rstrip() for line in _page(found)).strip() + "\n"


def render_version_text(found: VersionDiff) -> str:
    """Render the comparison for a terminal."""
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, force_terminal=False, legacy_windows=False)
    console.print(Markdown(render_version_page(found)))
    assert isinstance(console.file, io.StringIO)
    # After the rendering, which takes the backslashes away.
    return printable("\n".join(line.rstrip() for line in console.file.getvalue().splitlines()))


def render_version_record(found: VersionDiff) -> str:
    """Render the record itself, one change per line."""
    return compact_json(msgspec.to_builtins(found), depth=2).rstrip("\n")


@dataclass(frozen=True)
class VersionFormat:
    """One way to show a comparison, and the ending of its file; none for what is only printed."""

    render: Callable[[VersionDiff], str]
    ending: str = ""


VERSION_FORMATS: Mapping[str, VersionFormat] = {
    "terminal": VersionFormat(render_version_text),
    "markdown": VersionFormat(render_version_page, ".md"),
    "json": VersionFormat(render_version_record, ".json"),
}


def write_version_pages(found: VersionDiff, folder: Path) -> list[Path]:
    """Write the page and the record, named after the versions. Raises EnvironmentProblem for an unwritable folder."""
    return [
        write_text(folder / f"{found.older}-{found.newer}{form.ending}", form.render(found))
        for form in VERSION_FORMATS.values()
        if form.ending
    ]


def read_version_record(path: Path) -> VersionDiff:
    """Read a record. Raises UsageProblem for a file that holds none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=VersionDiff)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageProblem(
            f"{path} holds no comparison of versions: {error}", hint="name a file that `versions diff --out` wrote"
        ) from error


# The page.


def _page(found: VersionDiff) -> Iterator[str]:
    yield from _heading(found)
    yield from _releases(found)
    for aspect, title in ASPECTS.items():
        yield from _aspect(title, [change for change in found.changes if change.aspect == aspect], found)
    yield from _scripts(found)
    yield from _methods(found)
    yield from _declared(found)
    yield from _declared_otherwise(found)
    yield from _effects(found)
    yield from _undecided(found)
    yield from _advice(found)


def _heading(found: VersionDiff) -> Iterator[str]:
    selected = "".join(f" --select {pattern}" for pattern in found.selected)
    searched = " --releases" if found.releases else ""
    searched += " --effects" if any(effect.word for effect in found.effects or ()) else ""
    tier = "" if found.tier == "core" else f" --tier {found.tier}"
    yield f"# BullMQ {found.older} → {found.newer}"
    yield ""
    yield (
        f"{count(found.scenarios, 'scenario')} of tier `{found.tier}` were run with both versions on "
        f"{moment(found.compared_ms)}, each on its own Redis keys, and hand-overs on one queue. "
        f"{count(len({change.requirement for change in found.changes}), 'requirement')} "
        f"and the calls of {count(len(found.scripts), 'script')} are different."
    )
    yield ""
    words = f"bullmq-conformance versions diff {found.older} {found.newer}{tier}{selected}{searched}"
    yield f"Made by {markdown_code(words)} (kit {found.kit})."
    sharing = f"bullmq-conformance versions mixed {found.older} {found.newer}"
    yield f"{markdown_code(sharing)} shows the effects on jobs while both share a queue."
    if found.releases:
        yield (
            f"A release is the first that shows a change. It and the previous release were both run; "
            f"{count(len(found.releases), 'release')} are published from {found.older} to {found.newer}."
        )


def _releases(found: VersionDiff) -> Iterator[str]:
    """Which release brought what, oldest first."""
    brought: dict[tuple[str, str], list[str]] = {}
    for change in found.changes:
        brought.setdefault((change.release, change.last_before), []).append(markdown_code(change.requirement))
    for script in found.scripts:
        brought.setdefault((script.release, script.last_before), []).append(f"script {markdown_code(script.name)}")
    known = sorted((pair for pair in brought if all(pair)), key=lambda pair: Version(pair[0]))
    if known:
        yield from ("", "## Releases", "", "| release | not yet in | changes |", "|---|---|---|")
    for release, before in known:
        yield f"| {release} | {before} | {', '.join(dict.fromkeys(brought[release, before]))} |"


def _aspect(title: str, changes: list[Change], found: VersionDiff) -> Iterator[str]:
    if not changes:
        return
    yield from ("", f"## {title}", "", "| requirement | what is different | since |", "|---|---|---|")
    for requirement, its in by_requirement(sorted(changes, key=lambda change: change.requirement)):
        for change in its:
            yield f"| {markdown_code(requirement)} | {_sentence(change, found)} | {_since(change)} |"


def _sentence(change: Change, found: VersionDiff) -> str:
    """The difference, in one sentence."""
    before, after = _value(change.before), _value(change.after)
    holder, other = (found.older, found.newer) if change.states == "older" else (found.newer, found.older)
    stated, seen = (before, after) if change.states == "older" else (after, before)
    if change.where == "driver":
        return f"with {other}, {markdown_words(change.what)}"
    if change.what:
        values = f": {stated}; {other} has {seen}" if seen or stated else f", and {other} does not"
        return f"in {holder}, {markdown_words(change.what)}{values}"
    if change.where.startswith("invariant."):
        rule, broken = (change.before, change.after) if change.states == "older" else (change.after, change.before)
        return f"{markdown_words(rule)} Not so in {other}: {markdown_words(broken)}"
    if change.kind in _SENTENCES:
        return _SENTENCES[change.kind].format(
            newer=found.newer, where=markdown_code(change.where), before=before or "nothing", after=after or "nothing"
        )
    return f"{markdown_code(change.where)}: {before or 'nothing'} → {after or 'nothing'}"


def _since(change: Change | ScriptChange) -> str:
    return change.release or (markdown_words(f"not found: {change.unknown}") if change.unknown else "")


def _scripts(found: VersionDiff) -> Iterator[str]:
    if found.scripts:
        yield from ("", "## Scripts that are called otherwise", "")
        yield from ("| script | before | after | since |", "|---|---|---|---|")
        for script in found.scripts:
            before, after = (_call(call) for call in (script.before, script.after))
            yield f"| {markdown_code(script.name)} | {before} | {after} | {_since(script)} |"
    if found.scripts_with_other_text:
        names = ", ".join(markdown_code(name) for name in found.scripts_with_other_text)
        yield from ("", f"Called as before, with another text: {names}.")


def _call(call: ScriptCall | None) -> str:
    if call is None:
        return "none"
    more = " and more" if call.more else ""
    names = f": {markdown_code(' '.join(call.key_names))}" if call.key_names else ""
    kinds = f": {markdown_code(' '.join(call.arg_kinds))}" if call.arg_kinds else ""
    return f"{call.keys} KEYS{names}<br>{call.args} ARGV{more}{kinds}"


def _methods(found: VersionDiff) -> Iterator[str]:
    if found.methods_gone or found.methods_new:
        yield from ("", "## Methods", "")
        for word, names in (("Gone", found.methods_gone), ("New", found.methods_new)):
            if names:
                yield f"- {word}: {', '.join(map(markdown_code, names))}"


def _declared(found: VersionDiff) -> Iterator[str]:
    if found.declared_gone or found.declared_new:
        yield from ("", "## Options, methods and events that users write", "")
        yield "From the types of both packages. A release ignores an option that it does not know."
        yield ""
        for word, names in (("Gone", found.declared_gone), ("New", found.declared_new)):
            if names:
                yield f"- {word}: {', '.join(map(markdown_code, names))}"


def _declared_otherwise(found: VersionDiff) -> Iterator[str]:
    if found.declared_otherwise:
        yield from ("", "Options of another type:", "", "| option | type in the newer release |", "|---|---|")
        for name, text in found.declared_otherwise.items():
            yield f"| {markdown_code(name)} | {_value(text)} |"


def _effects(found: VersionDiff) -> Iterator[str]:
    """Changes in what is written, harmful ones first."""
    if not found.effects:
        return
    yield from ("", "## Changes in what is written, and their effects on a shared queue", "")
    yield "Observed while each release ran the features of `versions mixed`; a word is of both on one queue."
    tried = [effect for effect in found.effects if effect.word]
    if tried:
        yield from ("", "| what | change | while both share a queue |", "|---|---|---|")
    for effect in sorted(tried, key=_harm, reverse=True):
        yield f"| {effect.subject} {markdown_code(effect.name)} | {_change_of(effect)} | {_word_of(effect)} |"
    for reason, effects in _untried(found.effects).items():
        yield from ("", f"Not tried, {markdown_words(reason)}: {', '.join(_names_of(effects))}.")


def _untried(effects: Iterable[Effect]) -> Mapping[str, list[Effect]]:
    """The changes without a word, by the reason."""
    found: dict[str, list[Effect]] = {}
    for effect in effects:
        if not effect.word:
            found.setdefault(effect.untried, []).append(effect)
    return found


def _names_of(effects: Iterable[Effect]) -> Iterator[str]:
    """The changes with their names; several names of one type together."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for effect in effects:
        owner, dot, name = effect.name.partition(".")
        found.setdefault((effect.subject, owner, _change_of(effect)), []).append(dot + name)
    for (subject, owner, change), names in found.items():
        yield f"{subject} {', '.join(map(markdown_code, [owner + names[0], *names[1:]]))} ({change})"


def _harm(effect: Effect) -> int:
    # A record of another release of the kit may have other words.
    return _HARMS.index(effect.word) if effect.word in _HARMS else len(_HARMS)


def _change_of(effect: Effect) -> str:
    return f"{_value(effect.before)} → {_value(effect.after)}" if effect.change == "changed" else effect.change


def _word_of(effect: Effect) -> str:
    if effect.word == _HARMS[0]:
        return f"nothing ({count(len(effect.features), 'feature')})"
    return "; ".join(map(_harm_text, effect.harms))


def _harm_text(harm: EffectHarm) -> str:
    links = ", ".join(f"[{number}]({quote(file)})" for number, file in enumerate(harm.replays, start=1))
    return f"**{markdown_words(harm.word)}** in {markdown_words(harm.feature)} (replay {links})"


def _undecided(found: VersionDiff) -> Iterator[str]:
    if found.undecided:
        yield from ("", "## Not decided", "")
        for name, reason in found.undecided.items():
            yield f"- {markdown_code(name)}: {markdown_words(reason)}"


# Advice for authors of clients.

_BREAKS = frozenset({"lost-jobs", "breaks-others"})


def _advice(found: VersionDiff) -> Iterator[str]:
    """Changes that a client of the older version must make, should make, and may leave out."""
    yield from ("", "## Changes to a client", "")
    must, should, may = _sorted_by_need(found.changes)
    if not (found.changes or found.scripts):
        yield f"Nothing: all scenarios behave the same in {found.newer}."
        return
    yield f"For a client of {found.older} that shares queues with {found.newer} or adopts its scripts."
    yield from _script_advice(found.scripts)
    yield from _list_of("**Must**: other clients break on it, or jobs are lost", must)
    yield from _list_of("**Should**: it behaves differently", should)
    if may:
        yield from ("", f"**May** stay unchanged: {', '.join(markdown_code(name) for name, _ in by_requirement(may))}.")


def _sorted_by_need(changes: Iterable[Change]) -> tuple[list[Change], list[Change], list[Change]]:
    must, should, may = [], [], []
    needed = {name for name, its in by_requirement(changes) if any(_is_needed(change) for change in its)}
    for change in changes:
        if change.requirement in needed:
            must.append(change)
        elif change.severity == "cosmetic" or change.level == "MAY":
            may.append(change)
        else:
            should.append(change)
    return must, should, may


def _is_needed(change: Change) -> bool:
    return change.level == "MUST" and (change.severity in _BREAKS or change.aspect == "together")


def _script_advice(scripts: Iterable[ScriptChange]) -> Iterator[str]:
    lines = [_advice_on(script) for script in scripts]
    if lines:
        yield from ("", "**Scripts**, for a client that includes those of BullMQ:", "", *lines)


def _advice_on(script: ScriptChange) -> str:
    since = f" (since {script.release})" if script.release else ""
    if script.after is None:
        return f"- stop calling {markdown_code(script.name)}: it is gone{since}"
    numbers = f"{script.after.keys} KEYS and {script.after.args} ARGV{' or more' if script.after.more else ''}"
    if script.before is None:
        return f"- {markdown_code(script.name)} is new{since}, with {numbers}"
    was = f"{script.before.keys} and {script.before.args}"
    return f"- call {markdown_code(script.name)} with {numbers}{since}; they were {was}"


def _list_of(title: str, changes: list[Change]) -> Iterator[str]:
    if not changes:
        return
    yield from ("", f"{title}:", "")
    for requirement, its in by_requirement(changes):
        releases = sorted({change.release for change in its if change.release}, key=Version)
        since = f" (since {', '.join(releases)})" if releases else ""
        words = its[0].later or its[0].statement
        changed = (
            ""
            if its[0].later
            else " Seen in " + ", ".join(sorted({markdown_code(change.where) for change in its})) + "."
        )
        yield f"- {markdown_code(requirement)}{since}: {markdown_words(words)}{changed}"


# Foreign text in Markdown.


def _value(text: str) -> str:
    return markdown_code(clip(text, LONGEST)) if text else ""
