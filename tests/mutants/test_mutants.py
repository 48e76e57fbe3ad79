"""The mutants themselves: what breaks them and heals, what they declare, and one as a driver of its own."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from conformance.bugs.corpus import RELEASES, load_corpus
from conformance.driver.ops import lifecycle, queue
from conformance.driver.transports import ChildProcess
from conformance.gate.selection import scenarios_by_requirement
from conformance.ledger.loader import load_ledger
from conformance.mutants.damage import Damage, FilteredScript, filtered
from conformance.mutants.driver import main
from conformance.mutants.matrix import all_cases
from conformance.mutants.registry import MUTANTS, killed_rows, mutant
from conformance.participants.roles import assignments
from conformance.problems import UsageProblem
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.servers import RedisInstance


class Animal:
    legs = 4

    def sound(self, times: int) -> str:
        return "wuff" * times


class Dog(Animal):
    pass


@dataclass(frozen=True)
class Lua:
    text: str
    name: str = "sample"
    key_count: int = 1
    sha1: str = ""


@pytest.fixture
def redis(server: RedisInstance) -> Iterator[Any]:
    with server.connect() as connection:
        yield connection


@pytest.fixture
def key(server: RedisInstance) -> Iterator[str]:
    prefix = server.fresh_prefix()
    yield f"{prefix}:q:wait"
    server.remove_prefix(prefix)


SAMPLE = Lua(
    'local rcall = redis.call rcall("RPUSH", KEYS[1], "a") rcall("RPUSH", KEYS[1], "b") return rcall("LLEN", KEYS[1])'
)


def _run(redis: Any, body: str, key: str) -> tuple[Any, list[bytes]]:
    return redis.eval(filtered(SAMPLE, body).text, 1, key), redis.lrange(key, 0, -1)


def test_an_empty_filter_changes_nothing(redis: Any, key: str) -> None:
    assert _run(redis, "", key) == (2, [b"a", b"b"])


def test_a_filter_changes_commands(redis: Any, key: str) -> None:
    body = 'if command[1] == "RPUSH" then command[1] = "LPUSH" end'
    assert _run(redis, body, key) == (2, [b"b", b"a"])


def test_a_filter_replies_in_place_of_the_server(redis: Any, key: str) -> None:
    body = 'if command[1] == "RPUSH" and command[3] == "a" then return 0 end if command[1] == "LLEN" then return 7 end'
    assert _run(redis, body, key) == (7, [b"b"])


def test_a_filter_sends_commands_of_its_own_and_remembers(redis: Any, key: str) -> None:
    body = (
        'if on(command, "wait") and not memory.done then memory.done = true send("RPUSH", command[2], "first") end '
        'if on(command, "ait") then return 0 end'
    )
    assert _run(redis, body, key) == (3, [b"first", b"a", b"b"])


def test_a_filter_edits_the_fields_of_an_event(redis: Any, key: str) -> None:
    sample = Lua('return redis.call("XADD", KEYS[1], "*", "event", "added", "jobId", "1", "name", "n")')
    body = (
        'if event(command) == "added" then drop(command, "jobId") change(command, "name", "m") drop(command, "x") end'
    )
    redis.eval(filtered(sample, body).text, 1, key)
    assert redis.xrange(key)[0][1] == {b"event": b"added", b"name": b"m"}


def test_other_members_of_redis_are_still_there(redis: Any, key: str) -> None:
    sample = Lua('return redis.sha1hex("") .. redis.pcall("PING")["ok"]')
    assert redis.eval(filtered(sample, "").text, 1, key).endswith(b"PONG")


def test_a_filtered_script_has_a_digest_of_its_own() -> None:
    script = filtered(SAMPLE, "return 0")
    assert script.sha1 == hashlib.sha1(script.text.encode(), usedforsecurity=False).hexdigest()
    assert (script.name, script.key_count) == (SAMPLE.name, SAMPLE.key_count)


def test_only_the_named_scripts_are_filtered() -> None:
    damage = Damage("some.name")
    damage.commands("add*", "return 0")
    healthy = {name: Lua("return 1", name) for name in ("addLog", "addJob", "pause")}
    scripts = damage.scripts(healthy)
    assert [name for name, script in scripts.items() if isinstance(script, FilteredScript)] == ["addLog", "addJob"]
    assert scripts["pause"] is healthy["pause"]


def test_a_filter_for_no_script_names_the_mutant() -> None:
    damage = Damage("some.name")
    damage.commands("addNothing", "return 0")
    with pytest.raises(LookupError, match=r"mutant some\.name: no script is called addNothing"):
        damage.scripts({"addLog": Lua("return 1")})


def test_python_heals() -> None:
    with Damage("some.name") as damage:
        damage.around(Dog, "sound", lambda healthy: lambda dog, times: f"{healthy(dog, times)}!")
        damage.around(Dog, "sound", lambda healthy: lambda dog, times: f"{healthy(dog, times)}?")
        damage.replace(Animal, "legs", 3)
        assert (Dog().sound(2), Dog().legs, Animal().sound(1)) == ("wuffwuff!?", 3, "wuff")
    assert (Dog().sound(2), Dog().legs) == ("wuffwuff", 4)
    assert "sound" not in vars(Dog)


def test_a_missing_name_cannot_be_replaced() -> None:
    with Damage("some.name") as damage, pytest.raises(LookupError, match=r"mutant some\.name: Dog has no tail"):
        damage.replace(Dog, "tail", 1)
    assert not hasattr(Dog, "tail")


class Cat:
    async def sound(self, times: int, *, loud: bool) -> str:
        return ("MIAU" if loud else "miau") * times


async def _awaited(_cat: Cat, times: int, *, loud: bool) -> str:
    return f"{times} {loud}"


async def _short(_cat: Cat, *, loud: bool) -> str:
    return str(loud)


async def _deaf(_cat: Cat, _times: int) -> str:
    return ""


@pytest.mark.parametrize("other", [_short, _deaf, lambda _cat, times, *, loud: times * loud])
def test_a_replacement_is_called_like_what_it_replaces(other: Any) -> None:
    """Code that changes its shape breaks the mutant loudly, instead of a client that crashes."""
    with Damage("some.name") as damage:
        damage.replace(Cat, "sound", _awaited)
        with pytest.raises(LookupError, match=r"mutant some\.name: Cat\.sound is not called like its replacement"):
            damage.replace(Cat, "sound", other)


def test_builtins_and_values_replace_anything() -> None:
    with Damage("some.name") as damage:
        damage.replace(Dog, "sound", dict)
        damage.replace(Dog, "legs", 3)
        assert (vars(Dog)["sound"], Dog.legs) == (dict, 3)


def test_every_row_that_is_named_exists() -> None:
    named = {row for sick in MUTANTS.values() for row in sick.rows}
    assert sorted(named - set(load_ledger())) == []


def test_every_area_with_scenarios_has_a_mutant() -> None:
    ledger = load_ledger()
    areas = {ledger.row(row).area for row in scenarios_by_requirement() if row in load_ledger(BULLMQ_VERSION)}
    assert sorted(areas - {ledger.row(row).area for row in killed_rows()}) == []


FAILED_BY_RELEASES_ONLY = {"liveness.no-crash"}
"""Rows that a release with a real bug fails. No defect of the reference ends its process as a rejection ends Node's."""


def test_every_row_of_a_scenario_is_killed() -> None:
    """A row that no mutant violates is a check that has never been seen to fail.

    Those of newer versions are failed by an older Node (`test_mutants_older_versions.py`).
    """
    newer = set(load_ledger()) - set(load_ledger(BULLMQ_VERSION))
    proven = {bug.requirement for bug in load_corpus().values() if bug.proof == RELEASES}
    assert proven >= FAILED_BY_RELEASES_ONLY
    open_rows = set(scenarios_by_requirement()) - set(killed_rows()) - newer
    assert open_rows == FAILED_BY_RELEASES_ONLY


def test_every_mutant_can_be_made() -> None:
    """The Python functions that they replace exist, and are called like the replacements."""
    for sick in MUTANTS.values():
        with Damage(sick.name) as damage:
            sick.inflict(damage)


def test_only_must_rows_are_excused_to_a_warning() -> None:
    ledger = load_ledger()
    assert [sick.name for sick in MUTANTS.values() for row in sick.warns if ledger.row(row).level != "MUST"] == []


def test_every_scenario_that_is_named_exists() -> None:
    known = set().union(*(case.names for case in all_cases()))
    assert [sick.name for sick in MUTANTS.values() if set(sick.by) - known] == []


def test_killed_rows_name_their_mutants() -> None:
    assert "marker.missing" in killed_rows()["order.marker.base"]
    assert "keys.own-index" in killed_rows()["order.no-other-keys"]


def test_every_mutant_says_what_is_broken_in_one_sentence() -> None:
    assert [sick.name for sick in MUTANTS.values() if not sick.what.endswith(".") or "\n" in sick.what] == []


def test_an_unknown_name_is_the_users_mistake() -> None:
    with pytest.raises(UsageProblem, match=r"unknown mutant 'marker\.mising'.*marker\.missing"):
        MUTANTS.find("marker.mising")


def _documented(_damage: Damage) -> None:
    """Break nothing."""


def _undocumented(_damage: Damage) -> None: ...


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="is registered twice"):
        mutant("marker.missing", kills=("order.marker.base",))(_documented)


def test_a_mutant_needs_rows_and_a_docstring() -> None:
    with pytest.raises(ValueError, match="rows to kill"):
        mutant("test.no-rows")(_documented)
    with pytest.raises(ValueError, match="docstring"):
        mutant("test.no-docstring", kills=("order.marker.base",))(_undocumented)


def test_cases_are_those_that_pytest_would_run() -> None:
    by_id = {case.id: [other.arguments for other in all_cases() if other.id == case.id] for case in all_cases()}
    assert by_id["add/a_plain_job_enters_wait_at_the_left"] == [{}]
    assert by_id["add/an_integer_id_is_refused"] == [{"job_id": "12"}, {"job_id": "-5"}]
    cast = [arguments["assignment"] for arguments in by_id["interop/plain_jobs_are_completed_by_the_other"]]
    assert cast == [*assignments(("producer", "consumer"))]
    assert len(by_id["getters/jobs_are_listed_in_order"]) == 10
    assert by_id["getters/changing_a_priority"][0] == {"before": 0, "after": 5}


COMMAND = [sys.executable, "-m", "conformance.mutants.driver"]


def test_a_mutant_serves_the_driver_protocol(server: RedisInstance) -> None:
    prefix = server.fresh_prefix()
    driver = ChildProcess.start([*COMMAND, "marker.missing"], seed=0)
    try:
        assert driver.ready.client.name == "mutant marker.missing"
        opening = lifecycle.Open(role="queue", queue="q", prefix=prefix, redis=server.for_drivers, options={})
        driver.call(opening, handle="q-1")
        assert driver.call(queue.Add(name="job", data_raw="{}", opts={}), handle="q-1").id == "1"
        with server.connect() as redis:
            assert redis.lrange(f"{prefix}:q:wait", 0, -1) == [b"1"]
            assert not redis.exists(f"{prefix}:q:marker")
    finally:
        driver.close()
        server.remove_prefix(prefix)


def test_without_a_name_all_mutants_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "  marker.missing: Adding a job does not wake a worker." in capsys.readouterr().err


def test_an_unknown_name_is_a_usage_problem(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["unknown"]) == 2
    assert "unknown mutant 'unknown'" in capsys.readouterr().err
