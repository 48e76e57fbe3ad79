"""What the Lua scripts of the pinned package must be, down to the byte; and the generator of that list.

`python -m conformance.upstream.manifest` writes the manifest anew from a package, for the day when another version is
pinned. A manifest holds hashes only: no upstream text is kept in this tree.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from conformance.problems import EnvironmentProblem, Problem
from conformance.upstream.extraction import RawScript, extract
from conformance.upstream.node import find_node
from conformance.upstream.package import HARNESS, ensure_package, installed_version

MANIFEST = HARNESS / "scripts.manifest.json"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One script: its number of KEYS, the SHA-1 that EVALSHA uses, and the SHA-256 that it is verified with."""

    keys: int
    sha1: str
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """All scripts of one version of bullmq, by name."""

    version: str
    scripts: dict[str, Entry]


def load_manifest(path: Path = MANIFEST) -> Manifest:
    """Read a manifest. Raises EnvironmentProblem if it is missing or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError) as error:
        raise EnvironmentProblem(
            f"the manifest of Lua scripts {path} cannot be read: {error}", hint="reinstall bullmq-conformance"
        ) from error


def entry_of(script: RawScript) -> Entry:
    """Describe this script as the manifest does."""
    text = script.text.encode()
    return Entry(keys=script.keys, sha1=sha1(script.text), sha256=hashlib.sha256(text).hexdigest())


def sha1(text: str) -> str:
    """Answer the hex digest under which Redis knows a script."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def write_manifest(version: str, scripts: Mapping[str, RawScript], path: Path) -> None:
    """Write the manifest of these scripts, ordered by name."""
    manifest = Manifest(version=version, scripts={name: entry_of(scripts[name]) for name in sorted(scripts)})
    path.write_text(json.dumps(msgspec.to_builtins(manifest), indent=2) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Write the manifest; the exit code is that of the problem, if there is one."""
    parser = argparse.ArgumentParser(prog="python -m conformance.upstream.manifest", description=__doc__)
    parser.add_argument("--node", help="Node.js binary to use")
    parser.add_argument("--package", type=Path, help="folder that holds node_modules (default: the pinned package)")
    parser.add_argument("--out", type=Path, default=MANIFEST, help="file to write (default: the kit's own manifest)")
    options = parser.parse_args(arguments)
    try:
        node = find_node(options.node)
        root = options.package or ensure_package(node, announce=lambda text: print(text, file=sys.stderr)).root
        version = installed_version(root)
        if version is None:
            raise EnvironmentProblem(f"there is no bullmq below {root}", hint="name the folder that holds node_modules")
        scripts = extract(node, root)
    except Problem as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    write_manifest(version, scripts, options.out)
    print(f"{len(scripts)} scripts of bullmq {version} -> {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
