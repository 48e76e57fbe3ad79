"""`versions`: how two versions of BullMQ differ, since which release, and whether they may share a queue."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import click
import msgspec

from conformance.cli.options import configured
from conformance.environment.clients import find_toolchain
from conformance.environment.prepare import announce
from conformance.gate.options import AnyRedis, ChosenTier, NodeProgram, SingleRedis
from conformance.gate.selection import check_patterns
from conformance.ledger.loader import load_ledger
from conformance.options import Option
from conformance.problems import UsageProblem, printable
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.report.adoption import render_adoption
from conformance.report.mixed import MIXED_FORMATS, REPLAYS, read_mixed_record, write_mixed_pages
from conformance.report.output import write_text
from conformance.report.versions import VERSION_FORMATS, write_version_pages
from conformance.servers import open_server
from conformance.upstream.declarations import read_declarations, read_defaults
from conformance.upstream.manifest import RawScript, extract_scripts, sha1
from conformance.upstream.node import NodeBinary, find_node
from conformance.upstream.package import ensure_bullmq
from conformance.upstream.registry import exact_version, is_version, published_versions
from conformance.versions.adoption import (
    Adoption,
    broken_of,
    hashes_of,
    nearest_supported,
    ranges_of,
    undescribed_scripts,
    verdicts_of,
)
from conformance.versions.changes import Effect, VersionDiff
from conformance.versions.comparison import Comparison, ScriptReader
from conformance.versions.declared_names import without_row
from conformance.versions.effects import (
    declared_changes,
    default_changes,
    features_needed,
    judged_effects,
    with_option_features,
    written_changes,
)
from conformance.versions.mixed.features import FEATURES, Feature
from conformance.versions.mixed.observation import observe
from conformance.versions.mixed.probes import default_features
from conformance.versions.mixed.record import MixedRecord
from conformance.versions.mixed.replay import write_mixed_replays
from conformance.versions.mixed.session import MixedSession, chosen_features
from conformance.versions.pair_runner import PairRunner

ALIKE, DIFFERENT, UNDECIDED = 0, 1, 4
RUNS = "runs"
"""Folder below `--out` for the runs."""
MIXED = "mixed"
"""Folder below `--out` for the results of `versions mixed`."""


@click.group()
def versions() -> None:
    """Show how two versions of BullMQ differ, which release changed it, and whether they may share a queue."""


class ComparisonConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The options of both verbs. `out` empty: nothing is kept."""

    out: Annotated[str, Option("Folder for the pages, and for the runs, which are kept.")] = ""
    format: Annotated[str, Option("Format to print; --out gets all of them.", choices=tuple(VERSION_FORMATS))] = (
        "terminal"
    )
    jobs: Annotated[
        int | None, Option("Processes of each run; default: three for each core, at most 8.", at_least=1)
    ] = None
    tier: ChosenTier = "core"
    redis: AnyRedis = ""
    node: NodeProgram = ""


class DifferenceConfig(ComparisonConfig, frozen=True, kw_only=True):
    """The options of `versions diff`."""

    releases: Annotated[bool, Option("Find the release of each change as well: dozens of shorter runs.")] = False
    effects: Annotated[
        bool, Option("Run each written change with both releases on one queue, unless --out has the result.")
    ] = False
    select: Annotated[Sequence[str], Option("Glob over requirement ids, areas or scenario ids; repeatable.")] = ()


class AdoptConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `versions adopt`."""

    out: Annotated[str, Option("Folder for the page, the comparison and the runs, which are kept.")] = "adopt-out"
    since: Annotated[str, Option("Release to compare with; default: the newest supported one before it.")] = ""
    select: Annotated[Sequence[str], Option("Glob over requirement ids, areas or scenario ids; repeatable.")] = ()
    jobs: Annotated[
        int | None, Option("Processes of each run; default: three for each core, at most 8.", at_least=1)
    ] = None
    tier: ChosenTier = "full"
    redis: AnyRedis = ""
    node: NodeProgram = ""


class MixedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `versions mixed`."""

    out: Annotated[str, Option("Folder for the page, the record and the replay files.")] = "mixed-out"
    format: Annotated[str, Option("Format to print; --out gets page and record.", choices=tuple(MIXED_FORMATS))] = (
        "terminal"
    )
    feature: Annotated[Sequence[str], Option("Glob over features (`deduplication*`); repeatable.")] = ()
    jobs: Annotated[int, Option("Pairs of drivers at once.", at_least=1)] = 2
    redis: SingleRedis = ""
    node: NodeProgram = ""


class BisectConfig(ComparisonConfig, frozen=True, kw_only=True):
    """The options of `versions bisect`."""

    older: Annotated[str, Option("Version before the change.", "--from")] = BULLMQ_VERSION
    newer: Annotated[str, Option("Version that has the change.", "--to")] = "newest"


@versions.command()
@click.argument("older")
@click.argument("newer")
@configured(DifferenceConfig)
def diff(config: DifferenceConfig, older: str, newer: str) -> int:
    """Run the scenarios with two versions, and show how Redis, events, results, scripts, options and methods differ.

    OLDER and NEWER are versions such as 5.62.0, or newest, newest-5. The last part lists what a client for OLDER must
    change to support NEWER. Exit codes: 0 nothing differs, 1 something does, 2 wrong usage, 3 environment, 4 nothing
    differs in the decided scenarios, and some are undecided.
    """
    check_patterns(config.select)
    difference = _compared(
        config,
        older,
        newer,
        config.select,
        releases=config.releases,
        written=WrittenChanges(config, run=config.effects) if config.effects or not config.select else None,
    )
    click.echo(VERSION_FORMATS[config.format].render(difference))
    return exit_code(difference)


def exit_code(difference: VersionDiff) -> int:
    """Return the exit code of `versions diff`: two versions are alike only if every scenario was decided."""
    declared = difference.declared_gone or difference.declared_new
    if difference.changes or difference.scripts or declared or difference.effects:
        return DIFFERENT
    return UNDECIDED if difference.undecided or not difference.scenarios else ALIKE


@versions.command()
@click.argument("version")
@configured(AdoptConfig)
def adopt(config: AdoptConfig, version: str) -> int:
    """Install VERSION, run everything with it, and list what it needs before it is a supported oracle.

    Lists what has changed since the newest supported release before it, declared names without a row, rows that need a
    range, and scripts to describe. Exit codes: 0 it is ready, 1 something is left, 2 wrong usage, 3 environment.
    """
    began = time.monotonic()
    node = find_node(config.node or None)
    newer = exact_version(node, version)
    older = exact_version(node, config.since) if config.since else nearest_supported(newer)
    package = ensure_bullmq(node, newer, announce=announce)
    sha256, files = hashes_of(package.root)
    folder = Path(config.out)
    runner = PairRunner(
        runs=folder / RUNS, announce=announce, tier=config.tier, redis=config.redis, node=config.node, jobs=config.jobs
    )
    own = runner.run(newer, newer, config.select).scenarios
    comparing = DifferenceConfig(
        out=config.out,
        jobs=config.jobs,
        tier=config.tier,
        redis=config.redis,
        node=config.node,
        select=config.select,
    )
    written = None if config.select else WrittenChanges(comparing)
    difference = _compared(comparing, older, newer, config.select, releases=False, written=written)
    adoption = Adoption(
        version=newer,
        older=older,
        sha256=sha256,
        files=files,
        verdicts=verdicts_of(own),
        ranges=ranges_of(own),
        broken=broken_of(own),
        difference=difference,
        without_row=without_row(read_declarations(package.root)),
        undescribed=undescribed_scripts(difference, extract_scripts(node, package.root)),
        took_s=time.monotonic() - began,
    )
    page = render_adoption(adoption)
    write_text(folder / f"adopt-{newer}.md", page)
    click.echo(printable(page))
    return ALIKE if adoption.is_ready else DIFFERENT


@versions.command()
@click.argument("older")
@click.argument("newer")
@configured(MixedConfig)
def mixed(config: MixedConfig, older: str, newer: str) -> int:
    """Show whether OLDER and NEWER may share a queue during an upgrade, and who goes first.

    Runs every feature with every assignment of the roles to both. OLDER and NEWER are versions such as 5.62.0, names of
    clients, or commands of drivers. Exit codes: 0 nothing happens to jobs, 1 something does, 2 wrong usage,
    3 environment.
    """
    features = chosen_features(config.feature)
    toolchain = find_toolchain(config.node, announce)
    launches = [toolchain.partner(f"node@{text}" if is_version(text) else text) for text in (older, newer)]
    with open_server(config.redis or None, announce=announce) as server:
        record = MixedSession(launches[0], launches[1], server, pairs=config.jobs).compare(features)
    folder = Path(config.out)
    write_mixed_pages(record, folder)
    write_mixed_replays(record, folder / REPLAYS / f"{record.older}-{record.newer}")
    render = MIXED_FORMATS[config.format]
    click.echo(render(record))
    return ALIKE if record.is_safe else DIFFERENT


@versions.command()
@click.argument("row")
@configured(BisectConfig)
def bisect(config: BisectConfig, row: str) -> int:
    """Find the releases that changed the behaviour described by requirement ROW, by running its scenarios.

    Exit codes: 0 the release of each change was found, or nothing has changed, 2 wrong usage, 3 environment, 4 a
    release was not found.
    """
    if row not in load_ledger():
        raise UsageProblem(f"unknown requirement {row!r}", hint="`bullmq-conformance list` prints every id")
    difference = _compared(config, config.older, config.newer, (row,), releases=True)
    click.echo(VERSION_FORMATS[config.format].render(difference))
    return UNDECIDED if difference.undecided or any(change.unknown for change in difference.changes) else ALIKE


@dataclass(frozen=True)
class WrittenChanges:
    """Observes the writes of both releases, and their effects on a shared queue.

    `run`: run the features that show a change and whose result is not in the folder of `--out`.
    """

    config: ComparisonConfig
    run: bool = False

    def effects(self, older: str, newer: str) -> list[Effect] | None:
        """Observe both releases; None on a cluster. Raises EnvironmentProblem if one cannot be started."""
        toolchain = find_toolchain(self.config.node, announce)
        roots = [ensure_bullmq(toolchain.node, version, announce=announce).root for version in (older, newer)]
        types = [read_declarations(root) for root in roots]
        names = {
            sha1(script.text): name for root in roots for name, script in extract_scripts(toolchain.node, root).items()
        }
        launches = [toolchain.launch(f"node@{version}") for version in (older, newer)]
        announce(f"observing what {older} and {newer} write")
        with open_server(self.config.redis or None, announce=announce) as server:
            if server.mode == "cluster":
                announce("no effects: two releases are only run on a single Redis")
                return None
            session = MixedSession(launches[0], launches[1], server)
            observed = observe(session, [*FEATURES, *default_features()], names)
            defaults = [read_defaults(toolchain.node, root) for root in roots]
            changes = [*declared_changes(*types), *default_changes(*defaults), *written_changes(observed)]
            changes, made = with_option_features(changes, *types)
            record = self._record(session, older, newer, features_needed(changes, made))
        return judged_effects(changes, record, f"{MIXED}/{REPLAYS}/{older}-{newer}")

    def _record(self, session: MixedSession, older: str, newer: str, needed: Sequence[Feature]) -> MixedRecord | None:
        """The stored results of `versions mixed`, with those of the features that have none."""
        folder = Path(self.config.out) / MIXED
        path = folder / f"{older}-{newer}.json"
        stored = read_mixed_record(path) if self.config.out and path.exists() else None
        known = {row.feature for row in stored.rows} if stored is not None else set()
        missing = [feature for feature in needed if feature.name not in known]
        if not self.run or not missing:
            return stored
        announce(f"running {len(missing)} features with both releases on one queue")
        record = session.compare(missing)
        if stored is not None:
            record = msgspec.structs.replace(stored, rows=[*stored.rows, *record.rows])
        if self.config.out:
            write_mixed_pages(record, folder)
            write_mixed_replays(record, folder / REPLAYS / f"{older}-{newer}")
        return record


def _compared(
    config: ComparisonConfig,
    older: str,
    newer: str,
    select: Sequence[str],
    *,
    releases: bool,
    written: WrittenChanges | None = None,
) -> VersionDiff:
    """Compare two versions, and write the pages if --out names a folder."""
    with ExitStack() as stack:
        folder = Path(config.out or stack.enter_context(TemporaryDirectory(prefix="bullmq-conformance-versions-")))
        found_node = find_node(config.node or None)
        # Exact versions, because `newest` may mean another release in the next run, and names the stored runs.
        first, last = exact_version(found_node, older), exact_version(found_node, newer)
        runner = PairRunner(
            runs=folder / RUNS,
            announce=announce,
            tier=config.tier,
            redis=config.redis,
            node=config.node,
            jobs=config.jobs,
        )
        comparison = Comparison(
            runner=runner,
            scripts=_script_reader(found_node),
            types=lambda version: read_declarations(ensure_bullmq(found_node, version, announce=announce).root),
            announce=announce,
            older=first,
            newer=last,
            select=select,
            releases=_between(published_versions(found_node), first, last) if releases else (),
            effects=partial(written.effects, first, last) if written is not None else None,
        )
        difference = comparison.compare()
        if config.out:
            write_version_pages(difference, folder)
        return difference


def _between(published: Sequence[str], first: str, last: str) -> list[str]:
    """The releases from the first to the last. Raises UsageProblem for an unpublished version or a wrong order."""
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
