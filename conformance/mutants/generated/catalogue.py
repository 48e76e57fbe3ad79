"""All generated mutants, by file; the one that a key names; and samples of them, drawn with a seed."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path

from conformance.mutants.generated.change import GeneratedMutant, Place
from conformance.mutants.generated.lua_operators import lua_mutants
from conformance.mutants.generated.python_operators import Module, python_mutants
from conformance.problems import UsageProblem

REFERENCE = Path(__file__).parents[2] / "reference_impl"
_NOT_EXAMINED = frozenset({"driver", "telemetry"})
"""Folders in which no mutant breaks a client that is examined: the reference's driver is how the kit reaches it, and
no operation of a driver turns telemetry on."""


@dataclass(frozen=True)
class Catalogue:
    """The texts that are changed: Lua scripts by name, Python modules by their path below `reference_impl`."""

    scripts: Mapping[str, bytes]
    modules: Mapping[str, Module]

    @staticmethod
    def of(scripts: Mapping[str, str]) -> Catalogue:
        """The catalogue of these scripts and of the reference client of this tree."""
        return Catalogue({name: text.encode() for name, text in scripts.items()}, _reference_modules())

    def text(self, mutant: GeneratedMutant) -> bytes:
        """The healthy text that the mutant changes."""
        return self.scripts[mutant.file] if mutant.language == "lua" else self.modules[mutant.file].text

    @property
    def files(self) -> list[str]:
        """Every file as `lua NAME` or `python PATH`."""
        return [f"lua {name}" for name in self.scripts] + [f"python {path}" for path in self.modules]

    def of_file(self, file: str) -> list[GeneratedMutant]:
        """The mutants of one of `files`."""
        language, _, name = file.partition(" ")
        if language == "lua":
            return lua_mutants(name, self.scripts[name])
        return python_mutants(self.modules[name], self._readers.places)

    def all(self, pattern: str = "*") -> list[GeneratedMutant]:
        """Those of every file whose name matches; `lua *` and `python *` are all of one language.

        Raises UsageProblem where no file is called so.
        """
        files = [file for file in self.files if fnmatchcase(file, pattern) or fnmatchcase(file.split()[1], pattern)]
        if not files:
            raise UsageProblem(f"--file {pattern}: there is no such script or module", hint=", ".join(self.files))
        return [mutant for file in files for mutant in self.of_file(file)]

    def find(self, key: str) -> GeneratedMutant:
        """The mutant with this key. Raises UsageProblem for an unknown one."""
        language, _, rest = key.partition("/")
        names = self.scripts if language == "lua" else self.modules
        file = next((name for name in names if rest.startswith(f"{name}/")), "")
        found = [mutant for mutant in self.of_file(f"{language} {file}") if mutant.key == key] if file else []
        if not found:
            raise UsageProblem(f"there is no generated mutant {key!r}", hint="`bullmq-conformance mutants --list`")
        return found[0]

    @cached_property
    def _readers(self) -> _Readers:
        return _Readers(self.modules)


def sample(mutants: Sequence[GeneratedMutant], size: int, seed: int) -> list[GeneratedMutant]:
    """Up to `size` of them, half from Lua and half from Python, and from each operator alike, if there are enough.

    Otherwise the operators that find most to change, and change it most noisily, would make up the sample.
    """
    chance = random.Random(seed)
    turns = [_by_turns([mutant for mutant in mutants if mutant.language == one], chance) for one in ("lua", "python")]
    return _interleaved(turns)[:size]


def _by_turns(mutants: Sequence[GeneratedMutant], chance: random.Random) -> list[GeneratedMutant]:
    by_operator: dict[str, list[GeneratedMutant]] = {}
    for mutant in mutants:
        by_operator.setdefault(mutant.operator, []).append(mutant)
    queues = list(by_operator.values())
    chance.shuffle(queues)
    for queue in queues:
        chance.shuffle(queue)
    return _interleaved(queues)


def _interleaved(queues: Sequence[Sequence[GeneratedMutant]]) -> list[GeneratedMutant]:
    """The first of each, then the second of each, and so on."""
    longest = max((len(queue) for queue in queues), default=0)
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


@cache
def _reference_modules() -> dict[str, Module]:
    paths = (path.relative_to(REFERENCE) for path in sorted(REFERENCE.rglob("*.py")))
    chosen = [path.as_posix() for path in paths if path.parts[0] not in _NOT_EXAMINED and path.name != "__init__.py"]
    return {path: Module.of(path, (REFERENCE / path).read_bytes()) for path in chosen}


class _Readers:
    """The places where functions read names, also through names that take their value from them."""

    def __init__(self, modules: Mapping[str, Module]) -> None:
        self._places: dict[str, set[Place]] = {}
        self._passed_on: dict[str, set[str]] = {}
        for module in modules.values():
            for name, line, giver in _reads(module.tree, ""):
                if giver:
                    self._passed_on.setdefault(name, set()).add(giver)
                else:
                    self._places.setdefault(name, set()).add(Place(module.path, line, line))

    def places(self, name: str) -> tuple[Place, ...]:
        """The places where the value of a name arrives."""
        names, waiting = {name}, [name]
        while waiting:
            new = self._passed_on.get(waiting.pop(), set()) - names
            names |= new
            waiting += new
        found = {place for name in names for place in self._places.get(name, ())}
        return tuple(sorted(found, key=lambda place: (place.file, place.first)))


def _reads(node: ast.AST, giver: str, *, inside: bool = False) -> Iterator[tuple[str, int, str]]:
    """Names that are read, their line, and, outside of functions, the name that gets a value there."""
    for child in ast.iter_child_nodes(node):
        name = _name_read(child)
        if name and (inside or giver):
            yield name, getattr(child, "lineno", 0), "" if inside else giver
        within = inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        given = child.targets[0] if isinstance(child, ast.Assign) else getattr(child, "target", None)
        gets = given.id if isinstance(given, ast.Name) and isinstance(child, ast.Assign | ast.AnnAssign) else giver
        yield from _reads(child, gets, inside=within)


def _name_read(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            return name
        case ast.Attribute(attr=name):
            return name
        case ast.keyword(arg=str(name)):
            return name
    return ""
