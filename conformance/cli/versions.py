"""`versions diff` and `versions bisect`: what is different between two versions of BullMQ, and since which release."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from conformance.cli.options import run_options_of
from conformance.environment.prepare import announce
from conformance.ledger.loader import load_ledger
from conformance.participants.marks import Tier
from conformance.problems import UsageProblem
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.report.versions import VERSION_FORMATS, write_version_pages
from conformance.upstream.manifest import RawScript, extract_scripts
from conformance.upstream.node import NodeBinary, find_node
from conformance.upstream.package import ensure_bullmq
from conformance.upstream.registry import exact_version, published_versions
from conformance.versions.changes import VersionDiff
from conformance.versions.comparison import Comparison, ScriptReader
from conformance.versions.pair_runner import PairRunner

ALIKE, DIFFERENT, UNDECIDED = 0, 1, 4
RUNS = "runs"
"""Folder below `--out` in which what was played is kept."""


@click.group()
def versions() -> None:
    """Say what is different between two versions of BullMQ, and in which release it came."""


def _comparing(verb: Callable[..., int]) -> Callable[..., int]:
    """The options of both verbs."""
    options = (
        click.option("--out", default="", help="Folder of the pages, and of the runs, which are kept there."),
        click.option(
            "--format",
            "form",
            type=click.Choice(list(VERSION_FORMATS)),
            default="terminal",
            show_default=True,
            help="What is printed; --out gets all of them.",
        ),
        click.option("--jobs", type=click.IntRange(1), default=None, help="Processes of each run; default: cores + 1."),
        run_options_of("tier", "redis", "node"),
    )
    for option in reversed(options):
        verb = option(verb)
    return verb


@versions.command()
@click.argument("older")
@click.argument("newer")
@click.option("--releases", is_flag=True, help="Find the release of each change as well: dozens of shorter runs.")
@run_options_of("select")
@_comparing
def diff(  # noqa: PLR0917 - click passes options by name
    older: str, newer: str, releases: bool, select: tuple[str, ...], form: str, out: str, **options: Any
) -> int:
    """Play the scenarios with two versions, and say what is different in Redis, events, answers and scripts.

    OLDER and NEWER are versions such as 5.62.0, or newest, newest-5. The last part says what a client that speaks OLDER
    must change to speak NEWER. Exit codes: 0 nothing is different, 1 something is, 2 wrong usage, 3 environment.
    """
    found = _compared(older, newer, select, releases=releases, out=out, **options)
    click.echo(VERSION_FORMATS[form].render(found))
    return DIFFERENT if found.changes or found.scripts else ALIKE


@versions.command()
@click.argument("row")
@click.option("--from", "older", default=BULLMQ_VERSION, show_default=True, help="Version before the change.")
@click.option("--to", "newer", default="newest", show_default=True, help="Version that has it.")
@_comparing
def bisect(row: str, older: str, newer: str, form: str, out: str, **options: Any) -> int:
    """Find the releases in which BullMQ changed what requirement ROW is about, by playing its scenarios.

    Exit codes: 0 the release of each change was found, or nothing has changed, 2 wrong usage, 3 environment, 4 a
    release was not found.
    """
    if row not in load_ledger():
        raise UsageProblem(f"no requirement is called {row!r}", hint="`bullmq-conformance list` names them")
    found = _compared(older, newer, (row,), releases=True, out=out, **options)
    click.echo(VERSION_FORMATS[form].render(found))
    return UNDECIDED if found.undecided or any(change.unknown for change in found.changes) else ALIKE


def _compared(
    older: str,
    newer: str,
    select: Sequence[str],
    *,
    releases: bool,
    out: str,
    tier: Tier,
    redis: str,
    node: str,
    jobs: int | None,
) -> VersionDiff:
    """Compare, and write the pages where a folder was named."""
    with ExitStack() as stack:
        folder = Path(out or stack.enter_context(TemporaryDirectory(prefix="bullmq-conformance-versions-")))
        found_node = find_node(node or None)
        first, last = exact_version(found_node, older), exact_version(found_node, newer)
        runner = PairRunner(runs=folder / RUNS, announce=announce, tier=tier, redis=redis, node=node, jobs=jobs)
        comparison = Comparison(
            runner=runner,
            scripts=_script_reader(found_node),
            announce=announce,
            older=first,
            newer=last,
            select=select,
            releases=_between(published_versions(found_node), first, last) if releases else (),
        )
        found = comparison.compare()
        if out:
            write_version_pages(found, folder)
        return found


def _between(published: Sequence[str], first: str, last: str) -> list[str]:
    """The releases from the first to the last. Raises UsageProblem for one that npm does not have, or a wrong order."""
    for version in (first, last):
        if version not in published:
            raise UsageProblem(f"npm has no bullmq {version}", hint="only published releases can be searched")
    found = list(published[published.index(first) : published.index(last) + 1])
    if len(found) < len(("older", "newer")):
        raise UsageProblem(f"{last} is not newer than {first}", hint="name the older version first")
    return found


def _script_reader(node: NodeBinary) -> ScriptReader:
    @cache
    def read(version: str) -> Mapping[str, RawScript]:
        return extract_scripts(node, ensure_bullmq(node, version, announce=announce).root)

    return read
