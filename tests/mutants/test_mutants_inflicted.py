"""A mutant must do its damage: broken code that never runs, or acts like the healthy code, is reported."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from conformance.mutants.damage import Damage, Function, filtered
from conformance.mutants.matrix import MutantRunner
from conformance.mutants.registry import MUTANTS, Mutant
from conformance.reference_impl import packing
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.workers.locks import LockKeeper
from conformance.servers import RedisInstance


class Shelf:
    @property
    def size(self) -> int:
        return 3

    @staticmethod
    def label(name: str) -> str:
        return name.upper()

    def take(self, count: int) -> list[int]:
        if count > 3:
            raise LookupError(count)
        return list(range(count))

    async def fetch(self, count: int) -> list[int]:
        return self.take(count)


@pytest.fixture
def damage() -> Iterator[Damage]:
    with Damage("some.name") as found:
        yield found


def _without_zero(healthy: Function) -> Function:
    def take(shelf: Shelf, count: int) -> list[int]:
        taken: list[int] = healthy(shelf, count)
        if len(taken) > 2:
            taken.remove(0)
        return taken

    return take


def test_a_function_that_was_not_called_has_no_effect(damage: Damage) -> None:
    damage.around(Shelf, "take", _without_zero)
    damage.replace(Shelf, "label", staticmethod(lambda name: name))
    damage.replace(Shelf, "size", property(lambda _shelf: 4))
    assert not damage.witness.inflicted


def test_only_a_changed_answer_is_an_effect(damage: Damage) -> None:
    """Also if it is changed in place; an equal answer is not."""
    damage.around(Shelf, "take", _without_zero)
    assert (Shelf().take(2), damage.witness.inflicted) == ([0, 1], False)
    assert (Shelf().take(3), damage.witness.inflicted) == ([1, 2], True)


def test_an_error_that_is_handed_on_is_not_an_effect(damage: Damage) -> None:
    damage.around(Shelf, "take", _without_zero)
    with pytest.raises(LookupError):
        Shelf().take(4)
    assert not damage.witness.inflicted


def _at_most_two(healthy: Function) -> Function:
    async def fetch(shelf: Shelf, count: int) -> list[int]:
        found: list[int] = await healthy(shelf, min(count, 2))
        return found

    return fetch


def _silent(healthy: Function) -> Function:
    async def fetch(shelf: Shelf, count: int) -> list[int]:
        with suppress(LookupError):
            found: list[int] = await healthy(shelf, count)
            return found
        return []

    return fetch


@pytest.mark.parametrize(("wrap", "harmless", "harmful"), [(_at_most_two, 1, 3), (_silent, 3, 4)])
def test_other_arguments_and_swallowed_errors_are_effects(
    damage: Damage, wrap: Any, harmless: int, harmful: int
) -> None:
    damage.around(Shelf, "fetch", wrap)
    asyncio.run(Shelf().fetch(harmless))
    assert not damage.witness.inflicted
    asyncio.run(Shelf().fetch(harmful))
    assert damage.witness.inflicted


def test_a_call_that_is_left_out_is_an_effect(damage: Damage) -> None:
    damage.around(Shelf, "take", lambda _healthy: lambda _shelf, _count: [])
    Shelf().take(0)
    assert damage.witness.inflicted


@pytest.mark.parametrize("use", [lambda: Shelf.label("a"), lambda: Shelf().size])
def test_a_replacement_of_a_function_has_an_effect_when_it_is_called(damage: Damage, use: Any) -> None:
    damage.replace(Shelf, "label", staticmethod(lambda name: name))
    damage.replace(Shelf, "size", property(lambda _shelf: 4))
    use()
    assert damage.witness.inflicted


@dataclass(frozen=True)
class PushScript:
    text: str = 'redis.call("EXISTS", KEYS[1]) return redis.call("RPUSH", KEYS[1], "a")'
    name: str = "pushing"
    key_count: int = 1
    sha1: str = ""


@pytest.mark.parametrize(
    ("body", "has_effect"),
    [
        ("", False),
        ('if command[1] == "EXISTS" then return send(unpack(command)) end', False),
        ('if command[1] == "LPUSH" then return 0 end', False),
        ('if command[1] == "EXISTS" then return 7 end', True),
        ('if command[1] == "RPUSH" then command[3] = "b" end', True),
        ('if command[1] == "RPUSH" then send("RPUSH", command[2], "b") end', True),
        ('if command[1] == "RPUSH" then error("no") end', True),
    ],
)
def test_a_broken_script_notes_its_effect(server: RedisInstance, body: str, *, has_effect: bool) -> None:
    note, prefix = f"note-{uuid.uuid4()}:", server.fresh_prefix()
    with server.connect() as redis:
        with suppress(Exception):
            redis.eval(filtered(PushScript(), body, note).text, 1, f"{prefix}:q:wait")
        keys = list(redis.scan_iter(match=f"{note}*"))
        assert keys == ([f"{note}{{{prefix}:q:wait}}".encode()] if has_effect else [])
        assert all(0 < redis.ttl(key) <= 600 for key in keys)
        assert redis.unlink(*keys) == 1 if keys else True
    server.remove_prefix(prefix)


def _never_called(damage: Damage) -> None:
    """Locks are not renewed."""
    damage.replace(LockKeeper, "_renew", damage_that_never_comes)


async def damage_that_never_comes(_keeper: LockKeeper, _jobs: list[Any]) -> None:
    raise AssertionError


def _as_before(damage: Damage) -> None:
    """Adding a job does what it did before."""

    def broken(add: Function) -> Function:
        async def add_if_named(queue: Queue, name: str, data: Any, opts: Any = None) -> Any:
            return None if name == "no job has this name" else await add(queue, name, data, opts)

        return add_if_named

    damage.around(Queue, "add", broken)


def _other_script(damage: Damage) -> None:
    """Draining leaves a job behind."""
    damage.commands("drain", "return 0")


@pytest.mark.parametrize("inflict", [_never_called, _as_before, _other_script])
def test_a_damage_that_inflicts_nothing_is_an_error_of_the_mutant(runner: MutantRunner, inflict: Any) -> None:
    dead = Mutant("dead", "Nothing breaks.", ("add.lifo",), inflict)
    [result] = runner.results(dead)
    assert not result.killed
    assert [error for error in result.errors if error.startswith("never reached: none of its cases")]


def test_a_mutant_that_is_noticed_without_its_damage_is_an_error_of_it(
    runner: MutantRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = MUTANTS.find("marker.missing")
    monkeypatch.setattr(MutantRunner, "_is_noted", lambda _runner: False)
    [result] = runner.results(living)
    assert result.killed
    assert [error for error in result.errors if "has had no effect, and yet there is" in error]


def test_remembered_values_are_neither_broken_afterwards_nor_healthy_meanwhile() -> None:
    """Options that come again are packed once: a broken client must pack them again, and a healthy one after it."""
    options = {"values": list(range(20))}
    healthy = packing.pack_known(options)
    with Damage("edge.lists-end-at-fifteen") as damage:
        MUTANTS.find("edge.lists-end-at-fifteen").inflict(damage)
        assert packing.pack_known(options) != healthy
    assert packing.pack_known(options) == healthy
