"""Changes in what users and releases write, and what each does to jobs while both releases share a queue. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from conformance.steps.records import as_record
from conformance.steps.shapes import CallStep, FeatureStep
from conformance.upstream.declarations import Declarations
from conformance.versions.changes import Effect, EffectChange, EffectHarm, Subject
from conformance.versions.mixed.features import FEATURES, Feature
from conformance.versions.mixed.judging import WORDS
from conformance.versions.mixed.observation import ObservedWrites
from conformance.versions.mixed.probes import option_feature
from conformance.versions.mixed.record import MixedRecord, Row
from conformance.versions.mixed.replay import replay_name
from conformance.versions.mixed.writes import Kind, Writes

Defaults = Mapping[str, Mapping[str, Any]]
"""Of each type of options, the values that an object gives itself."""

_STORED = "RedisJobOptions."
"""The type of the stored form of options, which is observed as fields."""
_WORDS: Sequence[str] = WORDS
NO_FEATURE = "no feature uses it"
NOT_RUN = "run `versions diff --effects`"


def written_changes(observed: ObservedWrites) -> list[Effect]:
    """The keys, fields, events, KEYS and packed arguments that only one release writes, and values that differ."""
    both = [name for name in observed.older if name in observed.newer]
    found = list(_places(observed, both))
    keys = {effect.name.rpartition(" (")[0] for effect in found if effect.subject == "key"}
    events = {effect.name for effect in found if effect.subject == "event"}
    # The fields of a key, or of an event, that only one release has say nothing more.
    return [
        *(effect for effect in found if not _is_part(effect, keys if effect.subject == "field" else events)),
        *_values(observed, both),
    ]


def _is_part(effect: Effect, wholes: Iterable[str]) -> bool:
    return effect.subject in {"field", "event"} and any(effect.name.startswith(f"{whole}.") for whole in wholes)


def _places(observed: ObservedWrites, features: Sequence[str]) -> Iterator[Effect]:
    older, newer = (_where(of_release, features) for of_release in (observed.older, observed.newer))
    for place in sorted(older.keys() ^ newer.keys()):
        kind, name = place
        change: EffectChange = "new" if place in newer else "gone"
        yield Effect(subject=kind, name=name, change=change, features=(newer if place in newer else older)[place])


def _where(writes: Mapping[str, Writes], features: Sequence[str]) -> dict[tuple[Kind, str], list[str]]:
    found: dict[tuple[Kind, str], list[str]] = {}
    for feature in features:
        for place in writes[feature].places:
            found.setdefault(place, []).append(feature)
    return found


def _values(observed: ObservedWrites, features: Sequence[str]) -> Iterator[Effect]:
    """Values that a release chooses, or takes from the user, and that the other has otherwise in the same feature."""
    seen: dict[tuple[str, str, str], list[str]] = {}
    for feature in features:
        older, newer = observed.older[feature].values, observed.newer[feature].values
        for place in sorted(older.keys() & newer.keys()):
            # Several values in one feature are computed, from times or from numbers of attempts.
            if len(older[place]) == len(newer[place]) == 1 and older[place] != newer[place]:
                before, after = min(older[place]), min(newer[place])
                seen.setdefault((place, before, after), []).append(feature)
    for (place, before, after), shown_in in seen.items():
        yield Effect(
            subject="value", name=place, change="changed", before=before, after=after, features=sorted(shown_in)
        )


def default_changes(older: Defaults, newer: Defaults) -> list[Effect]:
    """Options that both releases have and that an object without options has otherwise."""
    return [
        Effect(
            subject="default",
            name=f"{owner}.{name}",
            change="changed",
            before=msgspec.json.encode(older[owner][name]).decode(),
            after=msgspec.json.encode(newer[owner][name]).decode(),
            features=[],
        )
        for owner in sorted(older.keys() & newer.keys())
        for name in sorted(older[owner].keys() & newer[owner].keys())
        if older[owner][name] != newer[owner][name]
    ]


def declared_changes(older: Declarations, newer: Declarations) -> list[Effect]:
    """Options and methods that only one release declares, with the features that use them.

    A name that has moved to another type is none of them.
    """
    return [
        *_declared("option", {*older.options}, {*newer.options}),
        *_declared("method", older.methods, newer.methods),
    ]


def _declared(subject: Subject, before: Collection[str], after: Collection[str]) -> Iterator[Effect]:
    gone, new = {*before} - {*after}, {*after} - {*before}
    moved = {name.rpartition(".")[2] for name in gone} & {name.rpartition(".")[2] for name in new}
    for name in sorted(gone | new):
        last = name.rpartition(".")[2]
        if name.startswith(_STORED) or last in moved:
            continue
        change: EffectChange = "new" if name in after else "gone"
        yield Effect(subject=subject, name=name, change=change, features=list(_using(subject, last)))


def _using(subject: str, name: str) -> Iterator[str]:
    for feature in FEATURES:
        used = _calls(feature.steps) if subject == "method" else {*_names({**feature.options}), *_given(feature.steps)}
        if name in used:
            yield feature.name


def _calls(steps: Sequence[FeatureStep]) -> set[str]:
    return {step.name.partition(".")[2] for step in steps if isinstance(step, CallStep)}


def _given(steps: Sequence[FeatureStep]) -> set[str]:
    return {name for step in steps for name in _options_of(as_record(step).get("args"))}


def _options_of(value: Any) -> Iterator[str]:
    """The names of all options in the arguments of a call."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _names(inner) if name in {"opts", "repeat"} else _options_of(inner)
    elif isinstance(value, list):
        yield from (name for inner in value for name in _options_of(inner))


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _names(inner)
    elif isinstance(value, list):
        yield from (name for inner in value for name in _names(inner))


def with_option_features(
    effects: Iterable[Effect], older: Declarations, newer: Declarations
) -> tuple[list[Effect], list[Feature]]:
    """Give each option that no feature uses one of its own, if the kit knows how; returns these features as well."""
    types = {**older.options, **newer.options}
    found: list[Effect] = []
    made: list[Feature] = []
    for effect in effects:
        if effect.subject == "option" and not effect.features:
            feature = option_feature(effect.name, types[effect.name])
            if feature is not None:
                made.append(feature)
                effect = msgspec.structs.replace(effect, features=[feature.name])  # noqa: PLW2901
        found.append(effect)
    return found, made


def features_needed(effects: Iterable[Effect], made: Iterable[Feature]) -> list[Feature]:
    """The features that show a change, which have to be run with both releases."""
    wanted = {name for effect in effects for name in effect.features}
    return [feature for feature in (*FEATURES, *made) if feature.name in wanted]


# Effects on a shared queue.


@dataclass(frozen=True)
class _Judge:
    effects: Sequence[Effect]
    rows: Mapping[str, Row]
    folder: str

    def judged(self, effect: Effect) -> Effect:
        """The effect with its word, or with the reason why it has none."""
        tried = [self.rows[name] for name in effect.features if name in self.rows and self.rows[name].cells]
        if not tried:
            return msgspec.structs.replace(effect, untried=NOT_RUN if effect.features else NO_FEATURE)
        blamed = [row for row in tried if self._is_to_blame(effect, row)]
        # If every use does harm, the change is not safe, although a more special one explains the harm too.
        if not blamed and all(row.worst != "nothing" for row in tried):
            blamed = tried
        harms = [
            EffectHarm(feature=row.feature, word=row.worst, replays=sorted({*self._replays(row)})) for row in blamed
        ]
        harms.sort(key=lambda harm: _WORDS.index(harm.word), reverse=True)
        return msgspec.structs.replace(effect, word=harms[0].word if harms else _WORDS[0], harms=harms)

    def _is_to_blame(self, effect: Effect, row: Row) -> bool:
        """Whether a harm is explained by a change: by the ones that the fewest features show."""
        if row.worst == "nothing":
            return False
        shown = [other for other in self.effects if row.feature in other.features]
        return len(effect.features) == min(len(other.features) for other in shown)

    def _replays(self, row: Row) -> Iterator[str]:
        for cell in row.cells.values():
            if cell.word == row.worst:
                yield f"{self.folder}/{replay_name(row.feature, cell)}"


def judged_effects(effects: Sequence[Effect], record: MixedRecord | None, folder: str) -> list[Effect]:
    """Each change with what happens to jobs. `folder`: of the replay files, as the page links it."""
    rows = {row.feature: row for row in record.rows} if record is not None else {}
    judge = _Judge(effects, rows, folder)
    return [judge.judged(effect) for effect in effects]
