"""`python -m conformance.mutants.generated.driver KEY`: the reference's driver with one generated change.

The kit itself passes the mutant in the environment, so that no process has to look for it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import msgspec

from conformance.environment.clients import Launch
from conformance.mutants.generated.arrival import ARRIVED, REPORT, Arrival, ArrivingScripts, with_arrival
from conformance.mutants.generated.change import Edit, GeneratedMutant
from conformance.mutants.generated.lua_syntax import ends_for_certain
from conformance.problems import Problem

GIVEN = "BULLMQ_CONFORMANCE_MUTANT"
"""The variable with the mutant, as JSON."""
logger = logging.getLogger("bullmq")

_PACKAGE = "conformance.reference_impl"


UNCHANGED = GeneratedMutant("python", "", "", 0, "none", Edit(0, 0, ""), (), "unchanged")
"""The healthy reference, started like mutants: a case that notices this one notices the way of starting."""


def launch_of(mutant: GeneratedMutant, arrived: Path | None = None) -> Launch:
    """How the mutant's driver is started; it creates the file `arrived` once the changed code runs."""
    command = [sys.executable, "-m", "conformance.mutants.generated.driver", mutant.key]
    environment = {GIVEN: msgspec.json.encode(mutant).decode()}
    if arrived is not None:
        environment[REPORT] = str(arrived)
    return Launch(f"mutant {mutant.key}", command, environment)


@dataclass(frozen=True)
class ChangedScript:
    """An official script with a change."""

    name: str
    key_count: int
    text: str

    @property
    def sha1(self) -> str:
        """SHA-1 of the text, in hexadecimal."""
        from conformance.upstream.manifest import sha1  # noqa: PLC0415 - after the module that is to be changed

        return sha1(self.text)


class _ChangedLoader(SourceFileLoader):
    """Loads one module of the reference with the change in it; never from or into a cache of bytecode."""

    def __init__(self, name: str, path: str, mutant: GeneratedMutant, arrival: Arrival) -> None:
        super().__init__(name, path)
        self._mutant, self._arrival = mutant, arrival

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        edit = self._mutant.edit
        return compile(with_arrival(edit.applied(self.get_data(path)), edit.start), path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[ARRIVED] = self._arrival
        super().exec_module(module)


class _ChangeFinder(importlib.abc.MetaPathFinder):
    """Finds the module that is to be changed."""

    def __init__(self, mutant: GeneratedMutant, arrival: Arrival) -> None:
        self._mutant, self._arrival = mutant, arrival
        self._module = f"{_PACKAGE}.{mutant.file.removesuffix('.py').replace('/', '.')}"

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == self._module else None
        if spec is None or spec.origin is None:
            return None
        loader = _ChangedLoader(fullname, spec.origin, self._mutant, self._arrival)
        return importlib.machinery.ModuleSpec(fullname, loader, origin=spec.origin)


def serve(mutant: GeneratedMutant) -> None:
    """Serve stdin and stdout with the broken client. Nothing of the reference may be imported before."""
    arrival = Arrival.from_environment()
    if mutant.language == "python":
        sys.meta_path.insert(0, _ChangeFinder(mutant, arrival))
    from conformance.reference_impl.driver.main import DEEPEST_JSON, make_server, use_fast_loop  # noqa: PLC0415 - see above
    from conformance.reference_impl.scripts.runner import ScriptText, official_scripts  # noqa: PLC0415 - see above

    scripts: dict[str, ScriptText] = dict(official_scripts())
    if mutant.language == "lua":
        healthy = scripts[mutant.file]
        changed = ends_for_certain(mutant.edit.applied(healthy.text.encode()))
        scripts[mutant.file] = ChangedScript(healthy.name, healthy.key_count, changed.decode())
    sys.setrecursionlimit(DEEPEST_JSON)
    use_fast_loop()
    server = make_server(lambda: ArrivingScripts(scripts, mutant.file, arrival))
    server.client["name"] = "generated mutant"
    server.run()


def _mutant_of(arguments: Sequence[str]) -> GeneratedMutant:
    """The one in the environment, else the one whose key is given. Raises UsageProblem."""
    given = os.environ.get(GIVEN)
    if given:
        return msgspec.json.decode(given, type=GeneratedMutant)
    from conformance.mutants.generated.catalogue import Catalogue  # noqa: PLC0415 - only people need it
    from conformance.upstream.lua_download import scripts_without_node  # noqa: PLC0415 - same

    scripts = scripts_without_node(announce=logger.info)
    return Catalogue.of({name: script.text for name, script in scripts.items()}).find(arguments[0])


def main(arguments: Sequence[str]) -> int:
    """Serve until stdin ends. Exit code 2 for a wrong command line, 3 for a missing package or Node."""
    logging.disable()
    if len(arguments) != 1:
        print("usage: python -m conformance.mutants.generated.driver KEY", file=sys.stderr)
        return 2
    try:
        serve(_mutant_of(arguments))
    except Problem as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
