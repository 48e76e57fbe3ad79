"""An archive for executors that have only Java and Spark installed: Python, the kit, Node and bullmq.

    python -m reports.executor_archive environment.tar.gz
    bullmq-conformance load … --master spark://host:7077 --archives environment.tar.gz

Spark unpacks the archive into the folder of each executor. Machines have to be alike: the same system, the same C
library. A driver's command that was put together here names places of this machine; in the archive stands where each of
them is now (`local_launch`). Clients with environments or builds of their own are not packed.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from conformance.environment.clients import Launch
from conformance.environment.prepare import announce
from conformance.problems import Problem
from conformance.upstream.node import bundled_node, find_node
from conformance.upstream.package import CACHE_VARIABLE, cache_folder, ensure_package
from reports.options import UNPACKED
from reports.snapshot.digests.library import library_path

PYTHON = f"./{UNPACKED}/bin/python"
"""How an executor starts Python from there."""

PACKED_VARIABLE = "BULLMQ_CONFORMANCE_PACKED"
"""In an executor with such an archive: where it was unpacked."""

_ROOT = Path(__file__).resolve().parent.parent
_KIT = ("conformance", "reports")
_PLACES = "places.json"
_OF_SPARK = frozenset({"pyspark", "py4j"})
"""Packages that every executor of Spark has."""

_OF_THE_COMMAND = frozenset({"matplotlib", "nodejs-bin"})
"""Packages that only the command uses, with all that they alone need: it draws reports. Node is packed by itself."""

_NOT_NEEDED = frozenset({"__pycache__", "site-packages", "test", "idlelib", "tkinter", "lib2to3", "ensurepip"})
_NOT_NEEDED_OF_PACKAGES = frozenset({"tests", "include"})

_START = """#!/bin/sh
here=$(cd "$(dirname "$0")/.." && pwd)
export {packed}="$here" {cache}="$here/cache"
export LD_LIBRARY_PATH="$here/python/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export PYTHONPATH="$here/kit:$here/packages${{PYTHONPATH:+:$PYTHONPATH}}"
exec "$here/python/bin/python" "$@"
"""


def pack(out: Path, *, level: int = 1) -> None:
    """Write the archive, which must be called `.tar.gz`: of a plain `.tar` Spark forgets what may be executed.

    `level`: how thoroughly it is compressed; 0, not at all, where it stays on one machine. Raises Problems where Node
    or bullmq cannot be had, OSError where the disk is full.
    """
    node = find_node()
    places = {
        str(node.path): "node/bin/node",
        str(ensure_package(node, announce=announce).root): "cache/" + ensure_package(node, announce=announce).root.name,
        str(cache_folder()): "cache",
        str(_ROOT): "kit",
    }
    with tarfile.open(out, "w:gz", compresslevel=level) as archive:
        for path, place in (*_files(), (bundled_node() or node.path, "node/bin/node")):
            archive.add(path.resolve(), place, recursive=False)
        start = _START.format(packed=PACKED_VARIABLE, cache=CACHE_VARIABLE)
        _add_text(archive, "bin/python", start, mode=0o755)
        _add_text(archive, _PLACES, json.dumps(places))


def _files() -> Iterator[tuple[Path, str]]:
    """Each file, and where it is in the archive."""
    yield Path(sys.executable).resolve(), "python/bin/python"
    shared = Path(sysconfig.get_config_var("LIBDIR")) / str(sysconfig.get_config_var("INSTSONAME"))
    if sysconfig.get_config_var("Py_ENABLE_SHARED") and shared.is_file():
        yield shared, f"python/lib/{shared.name}"
    standard = Path(sysconfig.get_path("stdlib"))
    yield from _below(standard, f"python/lib/{standard.name}")
    for name in _KIT:
        yield from _below(_ROOT / name, f"kit/{name}")
    for each in _distributions():
        yield from _of_distribution(each)
    package = ensure_package(find_node(), announce=announce).root
    yield from _below(package, f"cache/{package.name}")
    built = library_path()
    yield built, f"cache/{built.relative_to(cache_folder())}"


def _below(folder: Path, place: str) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.rglob("*")):
        below = path.relative_to(folder)
        if path.is_file() and not _NOT_NEEDED.intersection(below.parts):
            yield path, f"{place}/{below}"


def _of_distribution(found: Distribution) -> Iterator[tuple[Path, str]]:
    for file in found.files or ():
        path = Path(str(found.locate_file(file)))
        is_needed = path.suffix != ".pyc" and not _NOT_NEEDED_OF_PACKAGES.intersection(file.parts[:-1])
        if ".." not in file.parts and is_needed and path.is_file():
            yield path, f"packages/{file}"


def _distributions() -> list[Distribution]:
    """The dependencies of the kit with its extra `spark`, without Spark and packages that only the command uses."""
    found: dict[str, Distribution] = {}
    waiting = ["bullmq-conformance[spark]"]
    while waiting:
        wanted = Requirement(waiting.pop())
        name = wanted.name.lower().replace("_", "-")
        if name in {*found, *_OF_SPARK, *_OF_THE_COMMAND}:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # for another system
        extras = wanted.extras or {""}
        for line in found[name].requires or ():
            needed = Requirement(line)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(f"{needed.name}[{','.join(needed.extras)}]" if needed.extras else needed.name)
    found.pop("bullmq-conformance", None)
    return list(found.values())


def _add_text(archive: tarfile.TarFile, place: str, text: str, *, mode: int = 0o644) -> None:
    data = text.encode()
    described = tarfile.TarInfo(place)
    described.size, described.mode = len(data), mode
    archive.addfile(described, io.BytesIO(data))


def local_launch(launch: Launch) -> Launch:
    """The same driver where this process runs: in an executor with an archive, what was packed is at another place."""
    unpacked = os.environ.get(PACKED_VARIABLE)
    if not unpacked:
        return launch
    places: dict[str, str] = json.loads((Path(unpacked) / _PLACES).read_text("utf-8"))

    def moved(word: str) -> str:
        for origin, place in places.items():
            if word == origin or word.startswith(f"{origin}/"):
                return f"{unpacked}/{place}{word.removeprefix(origin)}"
        return word

    variables = {name: moved(value) for name, value in launch.environment.items()}
    return replace(launch, command=[moved(word) for word in launch.command], environment=variables)


def main() -> None:
    """Pack what this Python has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the archive to write, as in environment.tar.gz")
    options = parser.parse_args()
    try:
        pack(options.out)
    except (Problem, OSError) as problem:
        sys.exit(str(problem))
    print(f"{options.out}: {options.out.stat().st_size / 2**20:.0f} MB")


if __name__ == "__main__":
    main()
