"""The Lua scripts of a bullmq version, for clients that run them and taps that recognize them: verified and cached."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import msgspec

from conformance.problems import EnvironmentProblem
from conformance.upstream.manifest import (
    MANIFEST,
    RawScript,
    ScriptManifest,
    extract_scripts,
    load_manifest,
    sha1,
)
from conformance.upstream.node import NodeBinary
from conformance.upstream.package import BullMQPackage


@dataclass(frozen=True)
class OfficialScript:
    """One Lua script: its name without the key count, the number of its KEYS, its exact text, its SHA-1 for EVALSHA."""

    name: str
    key_count: int
    text: str
    sha1: str


class _ScriptCache(msgspec.Struct, frozen=True, kw_only=True):
    """The cache file. `taken_from` changes when a script file of the package changes."""

    taken_from: str
    scripts: dict[str, RawScript]


def load_scripts(
    package: BullMQPackage, node: NodeBinary, *, manifest: Path = MANIFEST
) -> Mapping[str, OfficialScript]:
    """Return all scripts of the package by name. Those of the pinned version are verified against the manifest.

    Those of other versions come from files that `BullMQPackage.verify` has checked. Node is only needed the first time.
    Raises EnvironmentProblem with the name of the script if a text or key count differs, or if a script is missing or
    unexpected.
    """
    if not package.lock_sha256:
        return MappingProxyType(
            {
                name: OfficialScript(name, script.keys, script.text, sha1(script.text))
                for name, script in _cached_or_extracted(package, node).items()
            }
        )
    expected = load_manifest(manifest)
    if expected.version != package.version:
        raise EnvironmentProblem(
            f"the manifest is for bullmq {expected.version}, but the package is {package.version}",
            hint="write a new manifest with `python -m conformance.upstream.manifest`",
        )
    return verified(_cached_or_extracted(package, node), expected, package.root)


def verified(scripts: Mapping[str, RawScript], expected: ScriptManifest, root: Path) -> Mapping[str, OfficialScript]:
    """Compare scripts with the manifest. Raises EnvironmentProblem at the first difference."""
    for name in sorted(scripts.keys() ^ expected.scripts.keys()):
        wrong = "is missing" if name in expected.scripts else "is not in the manifest"
        raise _refused(name, wrong, root)
    for name, entry in expected.scripts.items():
        script = scripts[name]
        if script.keys != entry.keys:
            raise _refused(name, f"takes {script.keys} keys instead of {entry.keys}", root)
        if hashlib.sha256(script.text.encode(errors="surrogatepass")).hexdigest() != entry.sha256:
            raise _refused(name, "does not have the pinned text", root)
    return MappingProxyType(
        {
            name: OfficialScript(name, entry.keys, scripts[name].text, entry.sha1)
            for name, entry in expected.scripts.items()
        }
    )


def _cached_or_extracted(package: BullMQPackage, node: NodeBinary) -> dict[str, RawScript]:
    # Cheaper than starting Node for every run, and still different after a new installation.
    taken_from = _fingerprint(package.root / "node_modules" / "bullmq" / "dist" / "cjs" / "scripts")
    path = package.root / "scripts.json"
    cached = _read_cache(path)
    if cached is not None and cached.taken_from == taken_from:
        return cached.scripts
    scripts = extract_scripts(node, package.root)
    _write_cache(_ScriptCache(taken_from=taken_from, scripts=scripts), path)
    return scripts


def _fingerprint(folder: Path) -> str:
    """Names, sizes and times of the script files: cheap to read, and different after any change."""
    try:
        stats = sorted((entry.name, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in os.scandir(folder))
    except OSError as error:
        raise EnvironmentProblem(
            f"the bullmq package has no scripts folder: {error}", hint="remove its folder and run again"
        ) from error
    return hashlib.sha256(repr(stats).encode()).hexdigest()


def _read_cache(path: Path) -> _ScriptCache | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_ScriptCache)
    except (OSError, msgspec.DecodeError):
        return None


def _write_cache(cached: _ScriptCache, path: Path) -> None:
    """Write through a second file, so that a concurrent reader sees the old or the new file."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(msgspec.json.encode(cached))
        part.replace(path)
    except OSError:
        # A cache that cannot be written only costs time.
        part.unlink(missing_ok=True)


def _refused(name: str, wrong: str, root: Path) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"Lua script {name} of the bullmq package {wrong}", hint=f"remove {root} and run again to install it again"
    )
