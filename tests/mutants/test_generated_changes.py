"""The changed code, by which rule; how mutants are named and drawn; and that every one of them can be loaded."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from typing import Any

import pytest

from conformance.mutants.generated import lua_operators, python_operators
from conformance.mutants.generated.areas import area_of
from conformance.mutants.generated.catalogue import Catalogue, sample
from conformance.mutants.generated.change import Edit, GeneratedMutant, Place, lines_of_change
from conformance.mutants.generated.judgements import judgement_of, load_judgements
from conformance.mutants.generated.lua_operators import lua_mutants
from conformance.mutants.generated.lua_syntax import ends_for_certain, with_notes
from conformance.mutants.generated.python_operators import Module, python_mutants
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.servers import RedisInstance

LUA = b"""local rcall = redis.call
local function store(key, ttl)
  if key == "a" and ttl > 0 then
    rcall("LPUSH", key, "first", "second")
    rcall("SET", key, "value", "PX", ttl)
  end
  return true
end
store(KEYS[1], 2)
rcall("HSET", KEYS[1], "one", 1, "two", 2)
"""

PYTHON = b'''"""About."""
LIMIT: int = 3


async def work(queue: Queue, first: str = "x y") -> int:
    """Works."""
    if queue.open and len(queue) < LIMIT:
        await queue.push("left", "right", lifo=True)
        return {"one": 1, "two": 2}
    logger.info("nothing")
    return 0
'''


def _texts(text: bytes, mutants: list[GeneratedMutant], operator: str) -> list[str]:
    changed = [lines_of_change(text, mutant.edit)[1] for mutant in mutants if mutant.operator == operator]
    return [" ".join(" ".join(lines).split()) for lines in changed]


LUA_CHANGES = {
    "negate": ['if not (key == "a" and ttl > 0) then'],
    "boundary": ['if key ~= "a" and ttl > 0 then', 'if key == "a" and ttl >= 0 then'],
    "connective": ['if key == "a" or ttl > 0 then'],
    "flip-constant": ["return false"],
    "drop-call": ["", "", "", ""],
    "swap-ends": ['rcall("RPUSH", key, "first", "second")'],
    "other-word": [
        'if key == "first" and ttl > 0 then',
        'rcall("LPUSH", key, "second", "second")',
        'rcall("LPUSH", key, "first", "value")',
        'rcall("SET", key, "PX", "PX", ttl)',
        'rcall("SET", key, "value", "a", ttl)',
        'rcall("HSET", KEYS[1], "two", 1, "two", 2)',
        'rcall("HSET", KEYS[1], "one", 1, "a", 2)',
    ],
    "drop-field": ['rcall("HSET", KEYS[1], "two", 2)', 'rcall("HSET", KEYS[1], "one", 1)'],
    "other-ttl": ['rcall("SET", key, "value", "PX", 1000 * (ttl))'],
    "skip-branch": [""],
}


@pytest.mark.parametrize("operator", LUA_CHANGES)
def test_a_lua_operator_changes_this_and_nothing_else(operator: str) -> None:
    assert sorted(_texts(LUA, lua_mutants("s", LUA), operator)) == sorted(LUA_CHANGES[operator])


def test_numbers_of_lua_become_their_neighbours_and_arguments_go() -> None:
    mutants = lua_mutants("s", LUA)
    assert "store(KEYS[2], 2)" in _texts(LUA, mutants, "off-by-one")
    assert "store(KEYS[(-1)], 2)" not in _texts(LUA, mutants, "off-by-one")
    assert {"store(2)", "store(KEYS[1])"} < set(_texts(LUA, mutants, "drop-argument"))
    assert 'rcall("LPUSH", "first", "second")' not in _texts(LUA, mutants, "drop-argument")


PYTHON_CHANGES = {
    "negate": ["if (not (queue.open and len(queue) < LIMIT)):"],
    "boundary": ["if queue.open and (len(queue) <= LIMIT):"],
    "connective": ["if ((queue.open) or (len(queue) < LIMIT)):"],
    "off-by-one": [
        "LIMIT: int = 4",
        "LIMIT: int = (2)",
        'return {"one": 2, "two": 2}',
        'return {"one": (0), "two": 2}',
        'return {"one": 1, "two": 3}',
        'return {"one": 1, "two": (1)}',
        "return 1",
        "return (-1)",
    ],
    "flip-constant": ['await queue.push("left", "right", lifo=False)'],
    "drop-call": ["pass"],
    "drop-await": ['queue.push("left", "right", lifo=True)'],
    "swap-arguments": ['await queue.push("right", "left", lifo=True)'],
    "drop-argument": ['await queue.push("left", "right", )'],
    "drop-field": ['return {"two": 2}', 'return {"one": 1}'],
    "other-word": [
        'await queue.push("right", "right", lifo=True)',
        'await queue.push("left", "one", lifo=True)',
        'return {"two": 1, "two": 2}',
        'return {"one": 1, "nothing": 2}',
    ],
}


def _no_readers(_name: str) -> tuple[Place, ...]:
    return ()


@pytest.mark.parametrize("operator", PYTHON_CHANGES)
def test_a_python_operator_changes_this_and_nothing_else(operator: str) -> None:
    mutants = python_mutants(Module.of("m.py", PYTHON), _no_readers)
    assert sorted(_texts(PYTHON, mutants, operator)) == sorted(PYTHON_CHANGES[operator])


def test_every_operator_is_documented() -> None:
    """A new operator needs an example above."""
    shown = {*LUA_CHANGES, "off-by-one", "drop-argument"}
    assert shown == set(lua_operators.OPERATORS)
    assert {*PYTHON_CHANGES, "comparison", "skip-branch"} == set(python_operators.OPERATORS)


def test_a_key_survives_what_happens_around_it() -> None:
    moved = b"-- a comment\n" + LUA.replace(b"    rcall", b"      rcall")
    assert [mutant.key for mutant in lua_mutants("s", moved)] == [mutant.key for mutant in lua_mutants("s", LUA)]


def test_equal_lines_have_keys_of_their_own() -> None:
    keys = [mutant.key for mutant in lua_mutants("s", b'redis.call("INCR", KEYS[1])\nredis.call("INCR", KEYS[1])\n')]
    assert len(keys) == len(set(keys))
    assert any(key.endswith(".2") for key in keys)


def test_a_text_that_is_not_lua_is_refused() -> None:
    with pytest.raises(ValueError, match="not Lua"):
        lua_mutants("s", b"if then")


@pytest.fixture(scope="module")
def catalogue(scripts: ScriptTexts) -> Catalogue:
    return Catalogue.of({name: script.text for name, script in scripts.items()})


@pytest.fixture(scope="module")
def everything(catalogue: Catalogue) -> list[GeneratedMutant]:
    return catalogue.all()


@pytest.mark.slow
def test_every_script_and_module_is_changed(catalogue: Catalogue, everything: list[GeneratedMutant]) -> None:
    changed = {f"{mutant.language} {mutant.file}" for mutant in everything}
    assert set(catalogue.files) - changed == set()


def test_keys_are_unique(everything: list[GeneratedMutant]) -> None:
    assert len({mutant.key for mutant in everything}) == len(everything)


def test_a_mutant_is_found_by_its_key(catalogue: Catalogue, everything: list[GeneratedMutant]) -> None:
    for mutant in sample(everything, 8, seed=1):
        assert catalogue.find(mutant.key) == mutant
    with pytest.raises(UsageProblem, match="no generated mutant 'lua/nothing'"):
        catalogue.find("lua/nothing")


def test_no_such_file(catalogue: Catalogue) -> None:
    with pytest.raises(UsageProblem, match="--file nothing: there is no such script or module"):
        catalogue.all("nothing")


def test_a_sample_depends_on_its_seed_alone_and_is_spread(everything: list[GeneratedMutant]) -> None:
    drawn = sample(everything, 60, seed=7)
    assert drawn == sample(everything, 60, seed=7)
    assert drawn != sample(everything, 60, seed=8)
    assert Counter(mutant.language for mutant in drawn) == {"lua": 30, "python": 30}
    operators = Counter((mutant.language, mutant.operator) for mutant in drawn)
    assert len(operators) == len(lua_operators.OPERATORS) + len(python_operators.OPERATORS)


def test_drawn_mutants_load(server: RedisInstance, catalogue: Catalogue, everything: list[GeneratedMutant]) -> None:
    """Lua in Redis, Python in the compiler; and no change leaves the text as it was."""
    with server.connect() as redis:
        for mutant in sample(everything, 120, seed=3):
            healthy = catalogue.text(mutant)
            changed = mutant.edit.applied(healthy)
            assert changed != healthy
            if mutant.language == "lua":
                redis.script_load(ends_for_certain(changed))
            else:
                compile(changed, mutant.file, "exec")


def test_every_script_loads_with_notes_and_with_a_fuse(server: RedisInstance, catalogue: Catalogue) -> None:
    with server.connect() as redis:
        for text in catalogue.scripts.values():
            redis.script_load(ends_for_certain(text))
            redis.script_load(with_notes(text, "key"))


def test_notes_say_which_statements_were_passed(server: RedisInstance) -> None:
    text = b'local a = 1\nif ARGV[1] == "x" then\n  a = 2\nend\nreturn a'
    noted = with_notes(text, "generated-notes")
    with server.connect() as redis:
        assert redis.eval(noted, 0, "x") == 2
        assert {int(member) for member in redis.smembers("generated-notes")} == {0, 12, 37, 47}
        redis.delete("generated-notes")
        assert redis.eval(noted, 0, "y") == 1
        assert 37 not in {int(member) for member in redis.smembers("generated-notes")}
        redis.delete("generated-notes")


@pytest.mark.parametrize("endless", [b"while true do local a = 1 end", b"local function f() return f() end f()"])
def test_an_endless_script_ends(server: RedisInstance, endless: bytes) -> None:
    with server.connect() as redis, pytest.raises(Exception, match="endless"):
        redis.eval(ends_for_certain(endless), 0)


def test_a_constant_is_reached_where_it_is_read(catalogue: Catalogue) -> None:
    [first, *_] = [
        mutant
        for mutant in catalogue.all("jobs/options.py")
        if mutant.function == "module" and "_000" in _line(catalogue, mutant)
    ]
    read_in = {place.file for place in first.places}
    assert "jobs/options.py" in read_in
    assert all(b"MANY_KEPT_JOBS" in _lines(catalogue, place) for place in first.places)


def _line(catalogue: Catalogue, mutant: GeneratedMutant) -> str:
    return lines_of_change(catalogue.text(mutant), mutant.edit)[0][0]


def _lines(catalogue: Catalogue, place: Place) -> bytes:
    return b"\n".join(catalogue.modules[place.file].text.splitlines()[place.first - 1 : place.last])


@pytest.mark.slow
def test_every_mutant_has_an_area(catalogue: Catalogue) -> None:
    for file in catalogue.files:
        assert area_of(catalogue.of_file(file)[0].key)


@pytest.mark.slow
def test_every_judgement_is_about_mutants_that_exist(catalogue: Catalogue, everything: list[GeneratedMutant]) -> None:
    """Also each of its names, and of its lines of code."""
    stale = {
        (judgement.reason, part) for judgement in load_judgements() for part in (*judgement.mutants, *judgement.code)
    }
    for mutant in everything:
        code = mutant.code(catalogue.text(mutant))
        judgement = judgement_of(mutant.key, mutant.line, code)
        if judgement is not None:
            stale -= {(judgement.reason, name) for name in judgement.mutants if fnmatchcase(mutant.key, name)}
            stale -= {(judgement.reason, text) for text in judgement.code if text in code}
    assert stale == set()


def test_a_damaged_file_of_judgements_is_reported(tmp_path: Any) -> None:
    damaged = tmp_path / "judgements.toml"
    damaged.write_text('[[judgement]]\nmutants = ["*"]\nverdict = "harmless"\nreason = "x"\n')
    with pytest.raises(EnvironmentProblem, match=r"judgements in .* cannot be read"):
        load_judgements(damaged)


def test_an_edit_counts_bytes() -> None:
    assert Edit(3, 4, "x").applied("é=1".encode()) == "é=x".encode()
