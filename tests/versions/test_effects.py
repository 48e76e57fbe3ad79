"""Writes of releases: each kind of change is found, and gets the word of the features that show it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest
from click.testing import CliRunner

from conformance.cli import versions as verbs
from conformance.cli.fuzz import replay
from conformance.cli.versions import DifferenceConfig, WrittenChanges
from conformance.driver.ops.queue import Add
from conformance.environment.clients import Launch, Toolchain, find_toolchain
from conformance.report.versions import render_version_page
from conformance.servers import RedisInstance, open_server
from conformance.steps.shapes import CallStep
from conformance.upstream.declarations import Declarations, read_defaults
from conformance.upstream.manifest import script_names_by_sha1
from conformance.versions.changes import Effect, VersionDiff
from conformance.versions.effects import (
    NO_FEATURE,
    NOT_RUN,
    declared_changes,
    default_changes,
    judged_effects,
    with_option_features,
    written_changes,
)
from conformance.versions.mixed.features import Feature
from conformance.versions.mixed.judging import Word
from conformance.versions.mixed.observation import ObservedWrites, observe
from conformance.versions.mixed.probes import default_features, option_feature
from conformance.versions.mixed.record import MixedCell, MixedRecord, Row
from conformance.versions.mixed.session import MixedSession, chosen_features
from conformance.versions.mixed.writes import MonitorLine, parsed_line, writes_of

BASE = "bc00000001:q:"
SCRIPTS = {"aa": "moveToActive", "bb": "addStandardJob"}
PACKED = msgpack.packb({"token": "t", "lockDuration": 30_000})
JOB = ("name", "a", "timestamp", "1700000000000", "opts")
RUN = (
    ("evalsha", "bb", "1", f"{BASE}wait"),
    ("lua hmset", f"{BASE}1", *JOB, '{"attempts":0,"de":{"id":"d"}}'),
    ("lua lpush", f"{BASE}wait", "1"),
    ("lua set", f"{BASE}de:d", "1", "PX", "5000"),
    ("lua xadd", f"{BASE}events", "MAXLEN", "~", "10000", "*", "event", "added", "jobId", "1"),
    ("evalsha", "aa", "1", f"{BASE}active", BASE, "1700000000000", PACKED),
    ("lua rename", f"{BASE}wait", f"{BASE}paused"),
    ("bzpopmin", f"{BASE}marker", "5"),
)
"""Commands of a release: one of a driver, and those of a script after its call."""


def _lines(*commands: tuple[str | bytes, ...]) -> Iterator[MonitorLine]:
    for head, *words in commands:
        assert isinstance(head, str)
        source, _, name = head.rpartition(" ")
        encoded = (word if isinstance(word, bytes) else word.encode() for word in words)
        yield MonitorLine((name.encode(), *encoded), in_script=source == "lua")


def _changed(place: int, *words: str | bytes) -> ObservedWrites:
    other = [*RUN]
    other[place] = words
    runs = [{"f": writes_of(_lines(*run), BASE, SCRIPTS)} for run in (RUN, other)]
    return ObservedWrites(*runs)


@pytest.mark.parametrize(
    ("place", "words", "expected"),
    [
        (
            0,
            ("evalsha", "bb", "1", f"{BASE}pc"),
            {"script key addStandardJob: wait gone", "script key addStandardJob: pc new"},
        ),
        (
            1,
            ("lua hmset", f"{BASE}1", *JOB, '{"attempts":1,"de":{"id":"d"}}', "atm", "0"),
            {"field <job>.atm new", "value <job>.opts.attempts changed"},
        ),
        (
            2,
            ("lua zadd", f"{BASE}wait", "7", "1"),
            {f"key {name} {text}" for name in ("wait", "paused") for text in ("(list) gone", "(sorted set) new")},
        ),
        (
            3,
            ("lua set", f"{BASE}dedup:d", "1", "PX", "5000"),
            {"key de:<id> (string) gone", "key dedup:d (string) new"},
        ),
        (3, ("lua set", f"{BASE}de:e", "1", "PX", "5000"), set()),
        (3, ("lua set", f"{BASE}de:d", "1", "PX", "9000"), {"value de:<id> PX changed"}),
        (
            4,
            ("lua xadd", f"{BASE}events", "MAXLEN", "~", "500", "*", "event", "added", "jobId", "1", "name", "a"),
            {"event added.name new", "value events MAXLEN changed"},
        ),
        (
            4,
            ("lua xadd", f"{BASE}events", "MAXLEN", "~", "10000", "*", "event", "new", "jobId", "1"),
            {"event new new", "event added gone"},
        ),
        (
            5,
            ("evalsha", "aa", "1", f"{BASE}active", BASE, "1", msgpack.packb({"lockDuration": 9, "name": "w"})),
            {
                "value moveToActive: lockDuration changed",
                "script argument moveToActive: name new",
                "script argument moveToActive: token gone",
            },
        ),
        (6, ("lua rename", f"{BASE}wait", f"{BASE}parked"), {"key paused (list) gone", "key parked (list) new"}),
        (7, ("bzpopmin", f"{BASE}marker", "10"), {"value BZPOPMIN timeout changed"}),
    ],
)
def test_a_change_of_each_kind_is_found(place: int, words: tuple[str, ...], expected: set[str]) -> None:
    found = written_changes(_changed(place, *words))
    assert {f"{effect.subject} {effect.name} {effect.change}" for effect in found} == expected


def test_the_commands_of_the_kit_and_of_other_queues_are_left_out() -> None:
    lines = _lines(
        ("evalsha", "of-the-kit", "1", f"{BASE}x"),
        ("lua set", f"{BASE}x", "1"),
        ("set", "bc99:q:x", "1"),
        ("get", f"{BASE}x"),
    )
    assert writes_of(lines, BASE, SCRIPTS).places == set()


def test_a_line_of_monitor_is_read_with_its_escapes() -> None:
    line = parsed_line(r'1700000000.123456 [0 lua] "set" "a\"b" "\x00\xff\n\\"')
    assert line == MonitorLine((b"set", b'a"b', b"\x00\xff\n\\"), in_script=True)
    assert parsed_line("OK") is None


def test_names_that_move_to_another_type_are_not_a_change() -> None:
    older = Declarations(options={"JobsOptions.delay": "number", "KeepJobs.count": "number"}, methods={"Queue.old"})
    newer = Declarations(
        options=dict.fromkeys(("NewOptions.delay", "KeepJobs.count", "KeepJobs.limit", "RedisJobOptions.x"), "number")
    )
    found = declared_changes(older, newer)
    assert [(effect.subject, effect.name, effect.change) for effect in found] == [
        ("option", "KeepJobs.limit", "new"),
        ("method", "Queue.old", "gone"),
    ]
    # Features use other options of this name, and none this method.
    assert found[1].features == []


def test_an_option_that_no_feature_uses_gets_one_of_its_own() -> None:
    types = Declarations(options={"WorkerOptions.brandNew": "boolean", "RelayOptions.other": "number"})
    effects, made = with_option_features(declared_changes(Declarations(), types), Declarations(), types)
    assert [effect.features for effect in effects] == [[], ["option WorkerOptions.brandNew"]]
    assert made[0].options == {"brandNew": True}


@pytest.mark.parametrize(
    ("option", "kind", "given"),
    [
        ("DeduplicationOptions.x", "boolean", {"deduplication": {"id": "d", "x": True}}),
        ("BaseJobOptions.x", "number | string", {"x": 1}),
        ("KeepJobs.x", "number", {"removeOnComplete": {"age": 3600, "x": 1}, "removeOnFail": {"x": 1}}),
        ("DefaultJobOptions.x", "'left' | 'right'", {"x": "left"}),
    ],
)
def test_an_option_is_given_where_its_type_belongs(option: str, kind: str, given: dict[str, object]) -> None:
    feature = option_feature(option, kind)
    assert feature is not None
    added = [step.op for step in feature.steps if isinstance(step, CallStep)]
    assert [op.opts for op in added if isinstance(op, Add)] == [given] * 4


def test_an_option_without_a_certain_value_is_not_tried() -> None:
    assert option_feature("WorkerOptions.x", "( job : Job ) => void") is None
    assert option_feature("RelayOptions.x", "number") is None


def test_changed_defaults_of_objects_are_found() -> None:
    older, newer = {"W": {"drainDelay": 5, "gone": 1}}, {"W": {"drainDelay": 10, "new": 1}}
    (found,) = default_changes(older, newer)
    assert (found.name, found.before, found.after) == ("W.drainDelay", "5", "10")


def _row(feature: str, word: Word) -> Row:
    return Row(feature=feature, cells={"producers": MixedCell(word=word, newer=["adder"])})


def _effect(name: str, *features: str) -> Effect:
    return Effect(subject="key", name=name, change="new", features=list(features))


def _judged(*effects: Effect, **rows: Word) -> dict[str, tuple[str, list[str]]]:
    cells = [_row(feature, word) for feature, word in rows.items()]
    record = MixedRecord(older="1", newer="2", clients=["a", "b"], rows=cells)
    judged = judged_effects(effects, record, "folder")
    return {effect.name: (effect.word or effect.untried, [harm.feature for harm in effect.harms]) for effect in judged}


def test_a_harm_counts_for_the_change_that_the_fewest_features_show() -> None:
    found = _judged(_effect("special", "a"), _effect("general", "a", "b", "c"), a="lost", b="nothing", c="late")
    assert found == {"special": ("lost", ["a"]), "general": ("late", ["c"])}


def test_a_change_that_does_harm_in_every_use_is_not_safe() -> None:
    found = _judged(
        _effect("special", "a"), _effect("special too", "b"), _effect("both", "a", "b"), a="twice", b="late"
    )
    assert found["both"] == ("twice", ["a", "b"])


def test_a_change_that_was_not_run_has_a_reason() -> None:
    assert _judged(_effect("unused"), _effect("not run", "b"), a="lost") == {
        "unused": (NO_FEATURE, []),
        "not run": (NOT_RUN, []),
    }


def test_lost_and_twice_have_replay_files_on_the_page() -> None:
    record = MixedRecord(older="1", newer="2", clients=["a", "b"], rows=[_row("f", "lost"), _row("g", "nothing")])
    effects = judged_effects(
        [_effect("k", "f"), _effect("safe", "g"), _effect("un.used"), _effect("un.known")], record, "d"
    )
    page = render_version_page(
        VersionDiff(kit="1", older="1", newer="2", tier="core", scenarios=1, compared_ms=0, effects=effects)
    )
    assert "| key `k` | new | **lost** in f (replay [1](d/f.adder.jsonl)) |" in page
    assert "| key `safe` | new | nothing (1 feature) |" in page
    assert "Not tried, no feature uses it: key `un.used`, `.known` (new)." in page


# Planted and real releases.


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return find_toolchain("", lambda _: None)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisInstance]:
    with open_server(None, announce=lambda _: None) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("longer-locks", {"value <job>:lock PX: 30000 -> 45000"}),
        ("writes-an-option", {"field <job>.opts.brandNew: -> "}),
        ("parks-elsewhere", {"key parked (list): -> "}),
    ],
)
def test_a_planted_change_is_observed(
    name: str, expected: set[str], toolchain: Toolchain, server: RedisInstance
) -> None:
    planted = Launch(name, [sys.executable, "-m", "tests.versions.skews", name, "5.62.0"])
    session = MixedSession(toolchain.launch("node@5.62.0"), planted, server)
    features = chosen_features(["plain jobs", "pause"])
    found = written_changes(observe(session, features, script_names_by_sha1()))
    shown = {
        f"{effect.subject} {effect.name}: {effect.before} -> {effect.after}".replace(":  ->", ": ->")
        for effect in found
    }
    assert expected <= shown


@pytest.mark.slow
def test_a_release_writes_the_same_as_itself(toolchain: Toolchain, server: RedisInstance) -> None:
    launch = toolchain.launch("node@5.62.0")
    features = [*chosen_features(["flow", "scheduler, interval", "retention"]), *default_features()]
    observed = observe(MixedSession(launch, launch, server), features, script_names_by_sha1())
    assert written_changes(observed) == []
    values = observed.older["worker and event reader without options"].values
    assert values["BZPOPMIN timeout"] == {"5"}, "the default drainDelay, in seconds"


@pytest.mark.slow
def test_the_loss_of_the_last_job_is_an_effect_of_its_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = chosen_features(["plain jobs", "deduplication, keepLastIfActive"])
    for where in (verbs, sys.modules["conformance.versions.effects"]):
        monkeypatch.setattr(where, "FEATURES", features)
    monkeypatch.setattr(verbs, "default_features", lambda: iter(list[Feature]()))
    config = DifferenceConfig(out=str(tmp_path))
    effects = {effect.name: effect for effect in WrittenChanges(config, run=True).effects("5.62.0", "6.7.0") or ()}
    lost = effects["DeduplicationOptions.keepLastIfActive"]
    assert (lost.change, lost.word) == ("new", "lost")
    assert effects["dn:<id> (hash)"].word == "lost"
    assert effects["DeduplicationOptions.reschedule"].features == ["option DeduplicationOptions.reschedule"]
    (file,) = lost.harms[0].replays
    again = CliRunner().invoke(replay, (str(tmp_path / file),), standalone_mode=False, catch_exceptions=False)
    assert again.return_value == 1
    # The second time the stored result is read.
    monkeypatch.setattr(MixedSession, "compare", lambda *_: pytest.fail("run again"))
    assert WrittenChanges(config, run=True).effects("5.62.0", "6.7.0") == list(effects.values())


def test_defaults_are_read_from_new_objects(toolchain: Toolchain) -> None:
    found = read_defaults(toolchain.node, toolchain.package.root)
    assert (found["WorkerOptions"]["drainDelay"], found["QueueEventsOptions"]["blockingTimeout"]) == (5, 10_000)
