"""A comparison of two versions of BullMQ, from the runs to the record, and the releases in which the changes came."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

import msgspec

from conformance.gate.options import RunConfig
from conformance.gate.records import KIT_VERSION
from conformance.gate.selection import all_scenarios, chosen_scenarios
from conformance.ledger.loader import load_ledger
from conformance.problems import EnvironmentProblem
from conformance.protocol.script_versions import CHANGES
from conformance.upstream.declarations import Declarations
from conformance.upstream.manifest import RawScript
from conformance.versions.bisection import BisectionResult, find_releases
from conformance.versions.changes import (
    Change,
    ChangeContext,
    Effect,
    Side,
    Sign,
    VersionDiff,
    changes_of,
    signs_by_scenario,
    undecided,
)
from conformance.versions.pair_runner import PairResult, PairRunner
from conformance.versions.signatures import ScriptSign, changed_calls, other_texts

Announce = Callable[[str], None]
ScriptReader = Callable[[str], Mapping[str, RawScript]]
"""Gives the scripts of a version by name."""

TypeReader = Callable[[str], Declarations]
"""Gives what the types of a version declare."""

_RELEASE = re.compile(r"\d+(?:\.\d+)*")

Dated = TypeVar("Dated", bound=msgspec.Struct)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Compares two versions.

    `releases`: all releases from `older` to `newer`, oldest first, where it is to be found out in which of them each
    change came; empty where it is not. `scripts`, `types`: read those of a version.
    """

    runner: PairRunner
    scripts: ScriptReader
    types: TypeReader
    announce: Announce
    older: str
    newer: str
    select: Sequence[str] = ()
    releases: Sequence[str] = ()
    effects: Callable[[], list[Effect] | None] | None = None

    def compare(self) -> VersionDiff:
        """Run, compare and, if wanted, search. Raises EnvironmentProblem if a run fails or a package is unavailable."""
        forward = self.runner.run(self.older, self.newer, self.select)
        stated = self._stated_of_newer()
        # The other way round for what only the newer version does: only its own oracle can state that.
        backward = self.runner.run(self.newer, self.older, stated) if stated else None
        changes = {**self._changes(forward, "older"), **(self._changes(backward, "newer") if backward else {})}
        record = self._record(forward, backward, list(changes.values()))
        return self._with_releases(record, changes) if self.releases else record

    def _stated_of_newer(self) -> list[str]:
        """Scenarios that state what only the newer version does: it is the oracle in them."""
        older, newer = (self._chosen_for(version) for version in (self.older, self.newer))
        return [name for name in newer if name not in older]

    def _chosen_for(self, version: str) -> list[str]:
        config = RunConfig(oracle=version, tier=self.runner.tier, select=list(self.select))
        return chosen_scenarios(config, load_ledger(version))

    def _changes(self, result: PairResult, states: Side) -> dict[Sign, Change]:
        shared = {name for name, made in all_scenarios() if made.style != "differential"}
        context = ChangeContext(
            older=load_ledger(self.older),
            newer=load_ledger(self.newer),
            versions=(self.older, self.newer),
            shared=shared,
        )
        return changes_of(result.scenarios, states, context)

    def _record(self, forward: PairResult, backward: PairResult | None, changes: list[Change]) -> VersionDiff:
        scenarios = [*forward.scenarios, *(backward.scenarios if backward else ())]
        results = [forward, *([backward] if backward else [])]
        open_ones = undecided(scenarios, frozenset().union(*(found.oracle_ops | found.client_ops for found in results)))
        before, after = self.scripts(self.older), self.scripts(self.newer)
        types_before, types_after = self.types(self.older), self.types(self.newer)
        declared_before, declared_after = types_before.names, types_after.names
        called = [change for _, change in changed_calls(before, self.older, after, self.newer)]
        return VersionDiff(
            kit=KIT_VERSION,
            older=self.older,
            newer=self.newer,
            tier=self.runner.tier,
            selected=list(self.select),
            scenarios=len(scenarios) - len(open_ones),
            undecided=open_ones,
            changes=changes,
            scripts=called,
            scripts_with_other_text=other_texts(before, after, [change.name for change in called]),
            methods_gone=sorted(forward.oracle_ops - forward.client_ops),
            methods_new=sorted(forward.client_ops - forward.oracle_ops),
            declared_gone=sorted(declared_before - declared_after),
            declared_new=sorted(declared_after - declared_before),
            declared_otherwise={
                name: text
                for name, text in sorted(types_after.options.items())
                if types_before.options.get(name, text) != text
            },
            effects=self.effects() if self.effects is not None else None,
            compared_ms=time.time_ns() // 1_000_000,
        )

    def _with_releases(self, record: VersionDiff, changes: Mapping[Sign, Change]) -> VersionDiff:
        looking = _ReleaseProbe(self, {sign: change.scenarios[0] for sign, change in changes.items()})
        found = find_releases(_with_stated_releases(changes), self.releases, looking.look, self.announce)
        before, after = self.scripts(self.older), self.scripts(self.newer)
        calls = dict(changed_calls(before, self.older, after, self.newer))
        stated = {sign: {change.since for change in CHANGES if sign.name in change.signatures} for sign in calls}
        dates = find_releases(stated, self.releases, self._called, self.announce)
        return msgspec.structs.replace(
            record,
            releases=list(self.releases),
            changes=[_dated(change, found[sign]) for sign, change in changes.items()],
            scripts=[_dated(change, dates[sign]) for sign, change in calls.items()],
        )

    def _called(self, release: str, sought: Collection[ScriptSign]) -> dict[ScriptSign, bool | None]:
        scripts = self.scripts(release)
        return {sign: sign.holds(scripts, release) for sign in sought}


@dataclass(frozen=True)
class _ReleaseProbe:
    """Runs releases between the two. `shown_by`: the simplest scenario that shows each sign."""

    comparison: Comparison
    shown_by: Mapping[Sign, str]

    def look(self, release: str, sought: Collection[Sign]) -> dict[Sign, bool | None]:
        """Whether a release is changed: it shows what the newer version does, or no longer what the older one does."""
        of_older = [sign for sign in sought if sign.states == "older"]
        of_newer = [sign for sign in sought if sign.states == "newer"]
        shown = self._shown(self.comparison.older, release, of_older)
        not_yet = self._shown(self.comparison.newer, release, of_newer)
        return {**shown, **{sign: None if seen is None else not seen for sign, seen in not_yet.items()}}

    def _shown(self, oracle: str, release: str, sought: Collection[Sign]) -> dict[Sign, bool | None]:
        """Whether a release shows signs; scenarios that a busy machine left undecided are run again."""
        first = self._rerun(oracle, release, sought, again=False)
        unclear = [sign for sign, seen in first.items() if seen is None]
        # Once more: on a busy machine a scenario may be undecided by chance.
        return {**first, **self._rerun(oracle, release, unclear, again=True)}

    def _rerun(self, oracle: str, release: str, sought: Collection[Sign], *, again: bool) -> dict[Sign, bool | None]:
        if not sought:
            return {}
        states = next(iter(sought)).states
        try:
            result = self.comparison.runner.run(oracle, release, {self.shown_by[sign] for sign in sought}, again=again)
        # A release that cannot be run leaves its changes unclear and does not end the search.
        except EnvironmentProblem as problem:
            self.comparison.announce(str(problem))
            return dict.fromkeys(sought)
        shown = signs_by_scenario(result.scenarios, states)
        seen = {sign: shown.get(self.shown_by[sign]) for sign in sought}
        return {sign: None if signs is None else sign in signs for sign, signs in seen.items()}


def _with_stated_releases(signs: Collection[Sign]) -> dict[Sign, set[str]]:
    """The signs, with the releases that the ledger and the scenarios name as those of a change."""
    stated: dict[str, set[str]] = {}
    for row in load_ledger().values():
        texts = [row.versions, *(later.since for later in row.later)]
        stated[row.id] = _releases_of(" ".join(texts))
    for _, made in all_scenarios():
        for requirement in made.requirements:
            stated.setdefault(requirement, set()).update(_releases_of(made.bullmq))
    return {sign: stated.get(sign.requirement, set()) for sign in signs}


def _releases_of(versions: str) -> set[str]:
    """The bounds of a range: `<6` is about 6.0.0."""
    return {bound + ".0" * (2 - bound.count(".")) for bound in _RELEASE.findall(versions)}


def _dated(change: Dated, found: BisectionResult) -> Dated:
    return msgspec.structs.replace(change, **asdict(found))
