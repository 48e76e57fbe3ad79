"""Which two versions may share a queue, as a page, as text and as JSON, computed from the record."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markdown import Markdown

from conformance.pages.compact_json import compact_json
from conformance.pages.markdown import markdown_words
from conformance.pages.text import count, moment
from conformance.problems import UsageProblem, printable
from conformance.report.output import write_text
from conformance.versions.mixed.record import COLUMNS, Column, MixedRecord, Row
from conformance.versions.mixed.replay import replay_name

TITLES: Mapping[Column, str] = {
    "producers": "producers first",
    "workers": "workers first",
    "both": "in any order",
}
"""The order of the upgrade, one client after the other."""

WIDTH = 110
REPLAYS = "replays"
"""The folder of the replay files, next to the page."""


def render_mixed_page(record: MixedRecord) -> str:
    """Render as Markdown."""
    return "\n".join(_page(record)).rstrip() + "\n"


def render_mixed_text(record: MixedRecord) -> str:
    """Render for a terminal."""
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, force_terminal=False, legacy_windows=False)
    console.print(Markdown(render_mixed_page(record)))
    assert isinstance(console.file, io.StringIO)
    # After the rendering, which takes the backslashes away.
    return printable("\n".join(line.rstrip() for line in console.file.getvalue().splitlines()))


def render_mixed_record(record: MixedRecord) -> str:
    """Render the record itself, one row per line."""
    return compact_json(msgspec.to_builtins(record), depth=2).rstrip("\n")


MIXED_FORMATS: Mapping[str, Callable[[MixedRecord], str]] = {
    "terminal": render_mixed_text,
    "markdown": render_mixed_page,
    "json": render_mixed_record,
}


def write_mixed_pages(record: MixedRecord, folder: Path) -> list[Path]:
    """Write page and record, named after the versions. Raises EnvironmentProblem for an unwritable folder."""
    stem = f"{record.older}-{record.newer}"
    return [
        write_text(folder / f"{stem}.md", render_mixed_page(record)),
        write_text(folder / f"{stem}.json", render_mixed_record(record)),
    ]


def read_mixed_record(path: Path) -> MixedRecord:
    """Read a record. Raises UsageProblem for a file that holds none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=MixedRecord)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageProblem(
            f"{path} has no record of shared queues: {error}", hint="name a file that `versions mixed --out` wrote"
        ) from error


def _page(record: MixedRecord) -> Iterator[str]:
    yield f"# BullMQ {record.older} and {record.newer} on one queue"
    yield ""
    yield "With this page you decide whether to upgrade producers or workers first, and which features have to wait."
    yield ""
    runs = count(len(record.rows), "feature")
    yield f"{runs} were run with the roles shared between both releases in every way, on {moment(record.compared_ms)}."
    yield f"Made by `bullmq-conformance versions mixed {record.older} {record.newer}`."
    yield ""
    yield from (_sentence(record, column) for column in COLUMNS)
    unsafe = [row for row in record.rows if row.worst != "nothing"]
    if unsafe:
        yield from ("", "| feature | " + " | ".join(TITLES[column] for column in COLUMNS) + " |", "|---|---|---|---|")
    for row in unsafe:
        yield (
            f"| {markdown_words(row.feature)} | " + " | ".join(_word(record, row, column) for column in COLUMNS) + " |"
        )
    yield from _details(record, unsafe)
    safe = [markdown_words(row.feature) for row in record.rows if row.worst == "nothing" and not row.unsupported]
    if safe:
        yield from ("", "## Safe in every order", "", f"{'; '.join(safe)}.")
    for row in record.rows:
        if row.unsupported:
            yield from ("", f"Not run: {markdown_words(row.feature)} ({markdown_words(row.unsupported)})")
    if record.absent:
        yield from ("", f"Neither release has: {'; '.join(map(markdown_words, record.absent))}.")


def _sentence(record: MixedRecord, column: Column) -> str:
    bad = [row for row in record.rows if column in row.cells and row.cells[column].word != "nothing"]
    losing = [row for row in bad if row.cells[column].word == "lost"]
    if not bad:
        return f"- **{TITLES[column]}**: safe"
    lost = f"; jobs are lost in {len(losing)}" if losing else ""
    return f"- **{TITLES[column]}**: {count(len(bad), 'feature')} unsafe{lost}"


def _word(record: MixedRecord, row: Row, column: Column) -> str:
    cell = row.cells.get(column)
    if cell is None:
        return ""
    if cell.word == "nothing":
        return cell.word
    folder = f"{REPLAYS}/{record.older}-{record.newer}"
    return f"[**{cell.word}**]({folder}/{replay_name(row.feature, cell)})"


def _details(record: MixedRecord, unsafe: list[Row]) -> Iterator[str]:
    if not unsafe:
        return
    yield from (
        "",
        "## Effects",
        "",
        "Each word is a replay file: `bullmq-conformance replay FILE` shows the steps.",
        "",
    )
    for row in unsafe:
        seen: dict[str, list[str]] = {}
        for cell in row.cells.values():
            if cell.word != "nothing":
                seen.setdefault(cell.detail, []).append(" and ".join(cell.newer))
        for detail, roles in seen.items():
            who = ", or as ".join(dict.fromkeys(roles))
            yield f"- {markdown_words(row.feature)}, with {record.newer} as {who}: {markdown_words(detail)}"


def main(paths: list[str]) -> int:
    """Write the page of each record next to it."""
    for path in map(Path, paths):
        write_text(path.with_suffix(".md"), render_mixed_page(read_mixed_record(path)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
