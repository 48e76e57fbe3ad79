"""Writing known.toml from a run, so that a client can adopt the gate as it is and only get better.

What failed and is not listed gets an entry, one for each cause, whose reason is to be filled in. What is listed stays
as it was written, comments included, unless the run has shown that it is stale or matches nothing.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import msgspec

from conformance.findings import Finding
from conformance.gate.known import (
    TO_DO,
    KnownFailure,
    KnownFile,
    is_stale,
    is_unmatched,
    judged_entries,
    load_known,
    parse_known,
    unexplained,
    without_parameters,
)
from conformance.gate.options import RunConfig
from conformance.gate.records import Record, RunFooter, RunHeader, ScenarioRecord
from conformance.gate.unsteady import UnsteadyFailure
from conformance.gate.verdicts import verdict_of
from conformance.ledger.loader import Ledger, load_ledger
from conformance.problems import UsageProblem

UNLOCATED = frozenset({"scenario", "driver"})
"""Locators that say nothing: with them, the scenario is what tells one cause from another."""

MOST_REASON = 120
"""Characters of a message that go into a reason."""

_HEAD = re.compile(r"\s*\[\[\s*(?P<table>known|unsteady)\s*\]\]\s*(#.*)?")
_WHICH_DRIVER = re.compile(r"^driver `[^`]*`: ")
_NO_TEXT = re.compile(r"[\ud800-\udfff]")


class KnownWriter:
    """Listens to a run, and writes the file when it has come to its end; a broken run writes nothing.

    `whole`: the run takes every scenario of its tier. `tell` is given one line on what was written. Raises UsageProblem
    for a path at which no file can be, and for a file that is there and cannot be read.
    """

    def __init__(self, path: Path, ledger: Ledger, *, whole: bool, tell: Callable[[str], None]) -> None:
        self._path, self._ledger, self._whole, self._tell = path, ledger, whole, tell
        if path.is_dir() or not path.parent.is_dir():
            raise UsageProblem(f"--write-known {path}: no file can be written there", hint="its folder has to exist")
        self._before = load_known(path, ledger) if path.exists() else ()
        self._planned = 0
        self._records: list[ScenarioRecord] = []

    def __call__(self, record: Record) -> None:
        """Take the next record of the run."""
        match record:
            case RunHeader():
                self._planned = record.planned
            case ScenarioRecord():
                self._records.append(record)
            case RunFooter():
                self._write()

    def _write(self) -> None:
        whole = self._whole and len(self._records) >= self._planned
        kept = still_known(self._before, self._records, self._ledger, whole=whole)
        added = list(new_entries(kept, self._records, self._ledger))
        text = self._path.read_text("utf-8") if self._path.exists() else ""
        self._path.write_text(rewritten(text, kept, added), "utf-8")
        dropped, to_do = len(self._before) - len(kept), unexplained([*kept, *added])
        self._tell(
            f"{self._path}: {len(added)} entries added, {len(kept)} kept, {dropped} dropped; "
            f"{to_do} reasons to be filled in"
        )


def known_writers(config: RunConfig, tell: Callable[[str], None]) -> list[Callable[[Record], None]]:
    """What writes the known.toml of `--write-known`, where that is asked for. Raises UsageProblem as it does."""
    path = config.written_list
    if path is None:
        return []
    return [KnownWriter(path, load_ledger(), whole=not config.is_narrowed, tell=tell)]


def still_known(
    entries: Collection[KnownFailure], records: Collection[ScenarioRecord], ledger: Ledger, *, whole: bool
) -> list[KnownFailure]:
    """The entries that this run does not show to be stale or without a match."""
    failing = [
        msgspec.structs.replace(record, findings=[found for found in record.findings if _fails(found, ledger)])
        for record in records
    ]
    judged = judged_entries(entries, records, whole=whole)
    return [
        entry
        for entry in entries
        if entry not in judged or not (is_stale(entry, failing) or is_unmatched(entry, failing))
    ]


def new_entries(
    known: Collection[KnownFailure], records: Collection[ScenarioRecord], ledger: Ledger
) -> Iterator[KnownFailure]:
    """One entry for each cause of a failure that no entry excuses, in the order of the run."""
    seen = list(known)
    for record in records:
        for finding in record.findings:
            is_failure = record.requirements.get(finding.requirement) == "fail" and _fails(finding, ledger)
            if is_failure and not any(entry.excuses(finding, record.id) for entry in seen):
                seen.append(entry_of(finding, record.id))
                yield seen[-1]


def entry_of(finding: Finding, scenario: str) -> KnownFailure:
    """The entry that speaks of this finding and of all that have the same cause; its reason is to be filled in."""
    # What cannot be written stands for itself in a glob.
    where = _NO_TEXT.sub("?", glob.escape(finding.where))
    reason = _NO_TEXT.sub("?", f"{TO_DO}: {_first_words(finding.message)}")
    about = without_parameters(scenario) if finding.where in UNLOCATED else "*"
    return KnownFailure(requirement=finding.requirement, reason=reason, where=where, scenario=about)


def _first_words(message: str) -> str:
    """Enough of a message to know it again: without the driver's command, which is another on every machine."""
    said = _WHICH_DRIVER.sub("", message).partition("\n")[0]
    return said if len(said) <= MOST_REASON else said[:MOST_REASON] + "…"


def _fails(finding: Finding, ledger: Ledger) -> bool:
    return verdict_of(finding, ledger) == "fail"


# The text of the file.


def rewritten(text: str, kept: Collection[KnownFailure], added: Collection[KnownFailure]) -> str:
    """The file with these entries of its own, and others behind them; its comments stay where that is possible.

    What is unsteady stays as it is: a run that does not meet it says nothing about it.
    """
    before = parse_known(text)
    head, *blocks = _blocks(text)
    if len(blocks) == len(before.known) + len(before.unsteady):
        known = iter(before.known)
        parts = (
            block if _is_unsteady(block) or next(known) in kept else "".join(_comments_after(block)) for block in blocks
        )
        commented = _with_entries(head + "".join(parts), map(entry_text, added))
        if parse_known(commented) == KnownFile((*kept, *added), before.unsteady):
            return commented
    # A line inside of a text looks like the head of an entry: nobody can say where its comments belong.
    entries: list[KnownFailure | UnsteadyFailure] = [*before.unsteady, *kept, *added]
    return _with_entries("", map(entry_text, entries))


def _is_unsteady(block: str) -> bool:
    head = _HEAD.fullmatch(block.splitlines()[0])
    return head is not None and head["table"] == "unsteady"


def _blocks(text: str) -> list[str]:
    """What stands before the first entry, and then each entry, up to the head of the next."""
    blocks = [""]
    for line in text.splitlines(keepends=True):
        if _HEAD.fullmatch(line.rstrip("\r\n")):
            blocks.append("")
        blocks[-1] += line
    return blocks


def _comments_after(block: str) -> list[str]:
    """The comments and empty lines at the end of an entry: they are about what comes next."""
    lines = block.splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    return lines[last + 1 :]


def _with_entries(text: str, entries: Iterable[str]) -> str:
    parts = [text.rstrip("\n") + "\n"] if text.strip() else []
    return "\n".join([*parts, *entries])


def entry_text(entry: KnownFailure | UnsteadyFailure) -> str:
    """An entry as TOML."""
    fields = msgspec.to_builtins(entry)
    table = "known" if isinstance(entry, KnownFailure) else "unsteady"
    return f"[[{table}]]\n" + "".join(f"{name} = {_toml(value)}\n" for name, value in fields.items())


def _toml(value: str | bool | int) -> str:
    # A JSON text is a TOML text, but for the one control character that JSON lets stand as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
