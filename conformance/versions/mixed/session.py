"""One comparison: every feature with every assignment of its roles, and the worst word of each cell."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import product
from queue import SimpleQueue
from threading import Event

from conformance.environment.clients import Launch
from conformance.environment.drivers import RestartableDriver
from conformance.problems import UsageProblem
from conformance.protocol.versions import in_range
from conformance.servers.opening import RedisInstance
from conformance.steps.records import as_record
from conformance.versions.mixed.features import FEATURES, WORKING, Feature
from conformance.versions.mixed.judging import Alone, Harm, judge
from conformance.versions.mixed.record import SAFE, Column, MixedCell, MixedRecord, Row
from conformance.versions.mixed.replay import MixedReplay
from conformance.versions.mixed.stage import FeatureOutcome, Stage

OLDER, NEWER = "older", "newer"
Cast = Mapping[str, str]
"""The side of each role."""

ATTEMPTS = 2
"""An unsafe run counts only if it is unsafe this often in a row."""


def chosen_features(select: Sequence[str]) -> list[Feature]:
    """The features whose names match a pattern. Raises UsageProblem for a pattern that matches none."""
    for pattern in select:
        if not any(fnmatchcase(feature.name, pattern) for feature in FEATURES):
            names = ", ".join(feature.name for feature in FEATURES[:4])
            raise UsageProblem(f"no feature matches {pattern!r}", hint=f"features are: {names}, ...")
    return [item for item in FEATURES if not select or any(fnmatchcase(item.name, pattern) for pattern in select)]


def casts(roles: Sequence[str]) -> Iterator[tuple[Column, dict[str, str]]]:
    """Every assignment of roles to both sides, with the column that it belongs to."""
    for sides in product((OLDER, NEWER), repeat=len(roles)):
        if len({*sides}) == 1:
            continue
        cast = dict(zip(roles, sides, strict=True))
        yield _column(cast), cast


def _column(cast: Cast) -> Column:
    """The order of upgrading in which the assignment occurs: the first side may be mixed, or the second after it."""
    producers = {side for role, side in cast.items() if role not in WORKING}
    workers = {side for role, side in cast.items() if role in WORKING}
    if producers == {OLDER} or workers == {NEWER}:
        return "workers"
    return "producers" if producers == {NEWER} or workers == {OLDER} else "both"


@dataclass(frozen=True)
class MixedReplayOutcome:
    """The judgement of a replay, and a line for each of its three runs."""

    harm: Harm
    lines: tuple[str, ...]


@dataclass
class MixedSession:
    """Compares two versions on one Redis, with `pairs` pairs of drivers at once."""

    older: Launch
    newer: Launch
    server: RedisInstance
    pairs: int = 2
    stopped: Event = field(default_factory=Event)
    """Set if no further run is to start."""

    def compare(self, features: Sequence[Feature]) -> MixedRecord:
        """Run all features. Raises UsageProblem if a driver has no clock, DriverBroken if one cannot be started."""
        began = time.monotonic()
        with ExitStack() as stack:
            stages: SimpleQueue[Stage] = SimpleQueue()
            for _ in range(self.pairs):
                stages.put(self.stage(stack))
            first = stages.get()
            versions = {side: _version(driver) for side, driver in first.drivers.items()}
            stages.put(first)
            known = [feature for feature in features if _has(feature, versions.values())]
            rows = self._rows(stages, known)
        return MixedRecord(
            older=versions[OLDER],
            newer=versions[NEWER],
            clients=[self.older.text, self.newer.text],
            rows=rows,
            absent=[feature.name for feature in features if feature not in known],
            took_ms=round((time.monotonic() - began) * 1000),
            compared_ms=time.time_ns() // 1_000_000,
        )

    def replay(self, content: MixedReplay) -> MixedReplayOutcome:
        """Run a file: each version alone, and then both. Raises what `compare` raises."""
        header = content.header
        feature = Feature(header.feature, content.steps, options=header.options)
        with ExitStack() as stack:
            runs = FeatureRuns(self.stage(stack), feature)
            cast = {role: NEWER if role in header.roles else OLDER for role in feature.roles}
            alone = runs.alone()
            shown = [
                f"only {self.older.text}: {_summary(alone.older)}",
                f"only {self.newer.text}: {_summary(alone.newer)}",
                f"both, {self.newer.text} as {', '.join(header.roles)}: {_summary(runs.run(cast))}",
            ]
            return MixedReplayOutcome(runs.judged(cast, alone), tuple(shown))

    def stage(self, stack: ExitStack, fresh_prefix: Callable[[], str] | None = None) -> Stage:
        """Start a pair of drivers, which end with the stack. Raises what `compare` raises."""
        drivers = {OLDER: RestartableDriver(self.older, 0), NEWER: RestartableDriver(self.newer, 0)}
        for driver in drivers.values():
            stack.callback(driver.close)
            ready = driver.living().ready
            if "clock" not in ready.capabilities:
                raise UsageProblem(
                    f"the driver of {driver.launch.text} has no clock of its own",
                    hint="both must declare the capability clock",
                )
        redis = self.server.connect()
        stack.callback(redis.close)
        return Stage(drivers, self.server.for_drivers, redis, fresh_prefix or self.server.fresh_prefix, self.stopped)

    def _rows(self, stages: SimpleQueue[Stage], features: Sequence[Feature]) -> list[Row]:
        """The rows of all features; an interruption ends after the runs that are under way."""
        with ThreadPoolExecutor(self.pairs) as pool:
            futures = [pool.submit(self._row, stages, feature) for feature in features]
            try:
                return [future.result() for future in futures]
            except BaseException:
                self.stopped.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _row(self, stages: SimpleQueue[Stage], feature: Feature) -> Row:
        stage = stages.get()
        try:
            return FeatureRuns(stage, feature).row()
        finally:
            stages.put(stage)


@dataclass(frozen=True)
class FeatureRuns:
    """The runs of one feature."""

    stage: Stage
    feature: Feature

    def row(self) -> Row:
        """Its row of the table."""
        alone = self.alone()
        reason = next((outcome.unsupported for outcome in alone if outcome.unsupported), "")
        if reason:
            return Row(feature=self.feature.name, unsupported=reason)
        worst: dict[Column, tuple[Harm, dict[str, str]]] = {}
        for column, cast in casts(self.feature.roles):
            found = self.judged(cast, alone)
            if column not in worst or found.rank > worst[column][0].rank:
                worst[column] = found, cast
        # While both sides are mixed, every pair of clients may meet.
        worst["both"] = max(worst.values(), key=lambda found: found[0].rank)
        steps = [as_record(step) for step in self.feature.steps]
        cells = {
            column: MixedCell(
                word=found.word, detail=found.detail, newer=[role for role in cast if cast[role] == NEWER]
            )
            for column, (found, cast) in worst.items()
        }
        return Row(feature=self.feature.name, cells=cells, steps=steps, options=dict(self.feature.options))

    def judged(self, cast: Cast, alone: Alone) -> Harm:
        """The judgement of one assignment; of several attempts, the mildest."""
        found = self._harm(cast, alone)
        for _ in range(1, ATTEMPTS):
            if found.word in SAFE:
                break
            found = min(self._harm(cast, alone), found, key=lambda harm: harm.rank)
        return found

    def _harm(self, cast: Cast, alone: Alone) -> Harm:
        added_by = {job: cast[role] for job, role in self.feature.adders.items()}
        return judge(self.run(cast), alone, added_by)

    def alone(self) -> Alone:
        """The runs of each version alone."""
        return Alone(*(self.run(dict.fromkeys(self.feature.roles, side)) for side in (OLDER, NEWER)))

    def run(self, cast: Cast) -> FeatureOutcome:
        """One run."""
        return self.stage.run(self.feature.steps, cast, self.feature.options)


def _summary(outcome: FeatureOutcome) -> str:
    """Which jobs were handed out, and what is left."""
    handed = " ".join(delivery.job for delivery in outcome.deliveries) or "nothing"
    left = f"; left: {', '.join(outcome.left)}" if outcome.left else ""
    refused = "".join(f"; {refusal.op} fails: {refusal.message}" for refusal in outcome.refusals)
    return f"runs {handed}{left}{refused}"


def _version(driver: RestartableDriver) -> str:
    return driver.handshake().client.version


def _has(feature: Feature, versions: Collection[str]) -> bool:
    """Whether one of the versions has the feature."""
    return any(in_range(version, feature.since) for version in versions)
