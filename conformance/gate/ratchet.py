"""The ratchet: known.toml is written from a run, so a client can adopt the gate on day one and improve from there.

Every unlisted failure gets an entry, one per cause, with a reason to be filled in. Existing entries and their comments
stay as they are, unless the run shows that an entry is stale or matches nothing.
"""

from __future__ import annotations

import glob
import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from conformance.findings import Finding
from conformance.gate.conclusion import completeness
from conformance.gate.flaky_failures import FlakyFailure
from conformance.gate.known_failures import (
    TO_DO,
    KnownFailure,
    WholeRun,
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
from conformance.gate.selection import whole_runs
from conformance.gate.verdicts import verdict_of
from conformance.ledger.loader import Ledger, load_ledger
from conformance.participants.marks import TIERS
from conformance.problems import UsageProblem

UNLOCATED = frozenset({"scenario", "driver"})
"""Locators without information; entries with them also name the scenario."""

MOST_REASON = 120
"""Characters of a message that are copied into a reason."""

_HEAD = re.compile(r"""\s*\[\[\s*(?:known|unsteady)\s*\]\]\s*(#.*)?|\[cause\]\s*(#.*)?|["'].*["']\s*=\s*\[.*""")
_WHICH_DRIVER = re.compile(r"^driver `[^`]*`: ")
_NO_TEXT = re.compile(r"[\ud800-\udfff]")


class KnownWriter:
    """Listens to a run, and writes the file at its end; a broken run writes nothing.

    `announce`: called with one line about what was written. Raises UsageProblem if the path cannot be a file, or an
    existing file cannot be read.
    """

    def __init__(self, path: Path, ledger: Ledger, *, whole_run: WholeRun, announce: Callable[[str], None]) -> None:
        self._path, self._ledger, self._whole_run, self._announce = path, ledger, whole_run, announce
        if path.is_dir() or not path.parent.is_dir():
            raise UsageProblem(
                f"--write-known {path}: cannot write a file there", hint="choose a file name in an existing folder"
            )
        # Read at the start, so that an unreadable file stops the run before it takes its time.
        self._before = load_known(path, ledger) if path.exists() else ()
        self._header: RunHeader | None = None
        self._records: list[ScenarioRecord] = []

    def __call__(self, record: Record) -> None:
        """Take the next record of the run."""
        match record:
            case RunHeader():
                self._header = record
            case ScenarioRecord():
                self._records.append(record)
            case RunFooter():
                assert self._header is not None
                self._write(self._header, record)

    def _write(self, header: RunHeader, footer: RunFooter) -> None:
        kept = still_known(self._before, self._records, self._ledger, self._whole_run)
        added = new_entries(kept, self._records, self._ledger, header.tier)
        text = self._path.read_text("utf-8") if self._path.exists() else ""
        self._path.write_text(rewritten(text, kept, added), "utf-8")
        dropped, to_do = len(self._before) - len(kept), unexplained([*kept, *added])
        self._announce(
            f"{self._path}: {len(added)} entries added, {len(kept)} kept, {dropped} dropped; "
            f"{to_do} reasons to be filled in"
        )
        ending = completeness(header, self._records, footer)
        if not ending.complete:
            self._announce(f"{self._path} is incomplete: {ending.sentence} Write it again with a complete run.")


def known_writers(config: RunConfig, announce: Callable[[str], None]) -> list[Callable[[Record], None]]:
    """Return the writer for `--write-known`, if given. Raises UsageProblem like `KnownWriter`."""
    path = config.written_list
    if path is None:
        return []
    return [KnownWriter(path, load_ledger(), whole_run=whole_runs(config), announce=announce)]


def still_known(
    entries: Collection[KnownFailure], records: Collection[ScenarioRecord], ledger: Ledger, whole_run: WholeRun
) -> list[KnownFailure]:
    """Return the entries that this run does not show to be stale or unmatched."""
    failing = [
        msgspec.structs.replace(record, findings=[finding for finding in record.findings if _fails(finding, ledger)])
        for record in records
    ]
    # Judged by all records, but compared with failures only: warnings need no entry.
    judged = judged_entries(entries, records, whole_run)
    return [
        entry
        for entry in entries
        if entry not in judged or not (is_stale(entry, failing) or is_unmatched(entry, failing))
    ]


def new_entries(
    known: Collection[KnownFailure], records: Collection[ScenarioRecord], ledger: Ledger, tier: str
) -> list[KnownFailure]:
    """Return one entry for each cause of a failure that no entry excuses, in the order of the run.

    `tier`: that of the run. An entry names the smallest tier, of `core` and above, in which the failure shows.
    """
    least = min(TIERS.index(tier), TIERS.index("core"))
    added: dict[KnownFailure, int] = {}
    for record in records:
        for finding in record.findings:
            is_failure = record.requirements.get(finding.requirement) == "fail" and _fails(finding, ledger)
            if not is_failure or any(entry.excuses(finding, record.id) for entry in known):
                continue
            # The new entry counts at once, so that one cause gets one entry however often it shows.
            entry = next((entry for entry in added if entry.excuses(finding, record.id)), None)
            entry = entry or entry_of(finding, record.id)
            # The largest: a smaller tier lacks some of the scenarios that the entry was made from.
            added[entry] = max(added.get(entry, least), TIERS.index(record.tier))
    return [msgspec.structs.replace(entry, tier=TIERS[rank]) for entry, rank in added.items()]


def entry_of(finding: Finding, scenario: str) -> KnownFailure:
    """Return an entry that covers this finding and others with the same cause; its reason is to be filled in."""
    # Lone surrogates cannot be written to a file; `?` matches them in a glob.
    where = _NO_TEXT.sub("?", glob.escape(finding.where))
    reason = _NO_TEXT.sub("?", f"{TO_DO}: {_first_words(finding.message)}")
    # Without a useful locator, an entry for all scenarios would hide new failures.
    about = without_parameters(scenario) if finding.where in UNLOCATED else "*"
    return KnownFailure(requirement=finding.requirement, reason=reason, where=where, scenario=about)


def _first_words(message: str) -> str:
    """Return the start of a message without the driver's command, which differs between machines."""
    line = _WHICH_DRIVER.sub("", message).partition("\n")[0]
    return line if len(line) <= MOST_REASON else line[:MOST_REASON] + "…"


def _fails(finding: Finding, ledger: Ledger) -> bool:
    return verdict_of(finding, ledger) == "fail"


# The text of the file.


def rewritten(text: str, kept: Collection[KnownFailure], added: Collection[KnownFailure]) -> str:
    """Return the file with the kept entries and the added ones after them; comments stay if possible.

    `[[unsteady]]` entries stay, because a run without the failure shows nothing about a flaky one.
    """
    before = parse_known(text)
    head, *blocks = _blocks(text)
    with suppress(tomllib.TOMLDecodeError, msgspec.ValidationError):
        commented = _with_entries(head + "".join(_kept_part(block, kept) for block in blocks), map(entry_text, added))
        # Parsed again, because comments can be assigned wrongly; losing an entry would be worse than losing comments.
        after = parse_known(commented)
        if set(after.known) == {*kept, *added} and after.unsteady == before.unsteady:
            return commented
    # A line inside a string looks like the head of an entry, so comments cannot be assigned to entries.
    entries: list[KnownFailure | FlakyFailure] = [*before.unsteady, *kept, *added]
    return _with_entries("", map(entry_text, entries))


def _kept_part(block: str, kept: Collection[KnownFailure]) -> str:
    """Return the block if all its entries are kept; else those that are, and the comments after it."""
    is_of_cause = block.startswith(('"', "'"))
    entries = parse_known("[cause]\n" * is_of_cause + block).known
    left = [entry for entry in entries if entry in kept]
    if len(left) == len(entries):
        return block
    texts = [_of_cause(left)] if is_of_cause and left else [entry_text(entry) + "\n" for entry in left]
    return "".join([*texts, *_comments_after(block)])


def _blocks(text: str) -> list[str]:
    """Split the text into the part before the first entry, and one part per entry."""
    blocks = [""]
    for line in text.splitlines(keepends=True):
        if _HEAD.fullmatch(line.rstrip("\r\n")):
            blocks.append("")
        blocks[-1] += line
    return blocks


def _comments_after(block: str) -> list[str]:
    """Return the comments and empty lines at the end of an entry, which belong to the next one."""
    lines = block.splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    return lines[last + 1 :]


def _with_entries(text: str, entries: Iterable[str]) -> str:
    parts = [text.rstrip("\n") + "\n"] if text.strip() else []
    return "\n".join([*parts, *entries])


def entry_text(entry: KnownFailure | FlakyFailure) -> str:
    """Return an entry as TOML."""
    fields = msgspec.to_builtins(entry)
    table = "known" if isinstance(entry, KnownFailure) else "unsteady"
    return f"[[{table}]]\n" + "".join(f"{name} = {_toml(value)}\n" for name, value in fields.items())


def _of_cause(entries: list[KnownFailure]) -> str:
    """Return entries with one reason as a row of the table `[cause]`."""
    fields = [msgspec.to_builtins(entry) for entry in entries]
    reason = {entry.pop("reason") for entry in fields}.pop()
    rows = [f"  {{{', '.join(f'{name} = {_toml(value)}' for name, value in entry.items())}}}" for entry in fields]
    return f"{_toml(reason)} = [\n" + ",\n".join(rows) + "]\n"


def _toml(value: str | bool | int) -> str:
    # A JSON string is a valid TOML string, except for DEL, which JSON does not escape.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
