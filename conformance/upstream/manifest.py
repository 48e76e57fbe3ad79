"""The manifest of the Lua scripts of the pinned package, with a hash of each, and its generator.

To pin another version, `python -m conformance.upstream.manifest` writes the manifest from its package. A manifest only
has hashes: this repository contains no upstream text.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from conformance.pages.compact_json import compact_json
from conformance.problems import EnvironmentProblem, Problem
from conformance.upstream.node import NodeBinary, find_node
from conformance.upstream.package import HARNESS, ensure_package, installed_version

MANIFEST = HARNESS / "scripts.manifest.json"

_EXTRACTION_TIMEOUT_S = 60
_ERROR = re.compile(r"\w*Error\b")


class RawScript(msgspec.Struct, frozen=True, kw_only=True):
    """A script as the package has it: the number of its KEYS and its exact text."""

    keys: int
    text: str


class ManifestEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One script: its number of KEYS, the SHA-1 for EVALSHA, and the SHA-256 for verification."""

    keys: int
    sha1: str
    sha256: str


class ScriptManifest(msgspec.Struct, frozen=True, kw_only=True):
    """All scripts of one version of bullmq, by name."""

    version: str
    scripts: dict[str, ManifestEntry]


def load_manifest(path: Path = MANIFEST) -> ScriptManifest:
    """Read a manifest. Raises EnvironmentProblem if it is missing or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ScriptManifest)
    except (OSError, msgspec.DecodeError) as error:
        raise EnvironmentProblem(
            f"the manifest of Lua scripts {path} cannot be read: {error}", hint="reinstall bullmq-conformance"
        ) from error


def script_names_by_sha1(texts: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the names of scripts by their digest for EVALSHA.

    `texts`: the scripts of any version by name; without them, the pinned ones.
    """
    if texts:
        return {sha1(text): name for name, text in texts.items()}
    return {entry.sha1: name for name, entry in load_manifest().scripts.items()}


def entry_of(script: RawScript) -> ManifestEntry:
    """Describe this script as the manifest does."""
    text = script.text.encode()
    return ManifestEntry(keys=script.keys, sha1=sha1(script.text), sha256=hashlib.sha256(text).hexdigest())


def sha1(text: str) -> str:
    """Return the hex digest under which Redis knows a script."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def write_manifest(version: str, scripts: Mapping[str, RawScript], path: Path) -> None:
    """Write the manifest of these scripts, ordered by name."""
    manifest = ScriptManifest(version=version, scripts={name: entry_of(scripts[name]) for name in sorted(scripts)})
    path.write_text(compact_json(msgspec.to_builtins(manifest)), encoding="utf-8")


def extract_scripts(node: NodeBinary, root: Path) -> dict[str, RawScript]:
    """Let Node evaluate the package below `root` and return its scripts by name.

    The texts are JavaScript template literals in `dist/cjs/scripts`: only evaluating them gives the bytes that BullMQ
    sends. Raises EnvironmentProblem if Node fails or prints something else.
    """
    command = [str(node.path), str(HARNESS / "extract.mjs"), str(root)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_EXTRACTION_TIMEOUT_S, check=True)
        return msgspec.json.decode(done.stdout, type=dict[str, RawScript])
    except subprocess.CalledProcessError as error:
        raise _failed(root, _error_line(error.stderr)) from error
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError) as error:
        raise _failed(root, str(error)) from error


def _error_line(stderr: bytes) -> str:
    """Pick the line of a Node stack trace that names the error."""
    lines = stderr.decode(errors="replace").splitlines()
    return next((line for line in lines if _ERROR.match(line)), "Node printed no error")


def _failed(root: Path, why: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"the Lua scripts below {root} cannot be read: {why}", hint=f"remove {root} and run again to install it again"
    )


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
        scripts = extract_scripts(node, root)
    except Problem as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    write_manifest(version, scripts, options.out)
    print(f"{len(scripts)} scripts of bullmq {version} -> {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
