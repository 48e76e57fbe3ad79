"""The pinned Lua scripts without Node and npm: from the package on the npm registry, or from a folder.

The package is verified with npm's integrity hash, and every script with its hash in the manifest.
`python -m conformance.upstream.lua_download FOLDER` writes the scripts as files, for machines without access to a
registry.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from conformance.problems import EnvironmentProblem, Problem
from conformance.upstream.manifest import MANIFEST, RawScript, load_manifest
from conformance.upstream.package import HARNESS, cache_folder, installed_version
from conformance.upstream.scripts import OfficialScript, verified

REGISTRY_VARIABLE: Final = "NPM_CONFIG_REGISTRY"
"""npm's own variable for another registry. Its packages must be identical to the public ones."""

FOLDER_VARIABLE: Final = "BULLMQ_SCRIPTS"
"""Environment variable with a folder of the scripts, which is then their only source."""

_PUBLIC_REGISTRY: Final = "https://registry.npmjs.org/"
_WITHIN_S: Final = 30
_LONGEST_PACKAGE: Final = 50 * 1024 * 1024

_IN_PACKAGE: Final = "package/dist/cjs/scripts/"
_IN_FOLDER: Final = ("", "dist/cjs/scripts", "package/dist/cjs/scripts", "node_modules/bullmq/dist/cjs/scripts")

_FILE_NAME: Final = re.compile(r"(?P<name>\w+)-(?P<keys>\d+)\.(?:js|lua)")
_CONTENT: Final = re.compile(r"const content = `((?:[^`\\]|\\.)*)`;", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}

Download = Callable[[str], bytes]
"""Downloads the content of an address. Raises OSError."""


class _PinnedPackage(msgspec.Struct, frozen=True):
    """The entry of bullmq in the lock file."""

    version: str
    resolved: str
    integrity: str


class _LockFile(msgspec.Struct, frozen=True):
    packages: dict[str, msgspec.Raw]


def scripts_without_node(
    *, announce: Callable[[str], None], cache_root: Path | None = None, download: Download | None = None
) -> Mapping[str, OfficialScript]:
    """Return the pinned scripts by name: from the folder of `BULLMQ_SCRIPTS`, the user's cache, or the registry.

    A download is kept in the cache. Blocks, so do not call it in an event loop. Raises EnvironmentProblem if none of
    them has the pinned scripts.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return scripts_in_folder(Path(named).expanduser())
    cache = cache_root or cache_folder()
    cached = cache / _cache_name()
    found = _read_cache(cached)
    if found is None:
        found = _installed(cache) or _download(announce, download or _over_https)
        _write_cache(cached, found)
    # The cache is verified each time too: any program of the user can write to it.
    return verified(found, load_manifest(), cached)


def scripts_in_folder(folder: Path) -> Mapping[str, OfficialScript]:
    """Return the scripts of a folder: an unpacked package, its `scripts`, or files `NAME-KEYS.lua`.

    Raises EnvironmentProblem if it has none, or if they are not the pinned scripts.
    """
    for place in _IN_FOLDER:
        found = _files_in(folder / place)
        if found:
            return verified(found, load_manifest(), folder)
    raise EnvironmentProblem(
        f"there are no Lua scripts of bullmq in {folder}",
        hint=f"write them with `python -m conformance.upstream.lua_download {folder}`",
    )


def read_scripts(files: Iterable[tuple[str, str]]) -> dict[str, RawScript]:
    """Read scripts from the texts of files named `NAME-KEYS.js` or `NAME-KEYS.lua`; other files are ignored."""
    found = {}
    for file_name, text in files:
        named = _FILE_NAME.fullmatch(file_name)
        if named is not None:
            lua = template_text(text) if file_name.endswith(".js") else text
            found[named["name"]] = RawScript(keys=int(named["keys"]), text=lua)
    return found


def template_text(module: str) -> str:
    """Return the JavaScript value of the template literal `content` in a module; empty if there is none."""
    found = _CONTENT.search(module)
    if found is None:
        return ""
    return _ESCAPE.sub(_unescaped, found[1].replace("\r\n", "\n"))


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    if escape[0] in "xu" and len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _ESCAPED.get(escape, escape)


def _installed(cache: Path) -> dict[str, RawScript]:
    """The scripts of the pinned package if npm has installed it for the oracle; this saves a download."""
    version = load_manifest().version
    roots = (root for root in sorted(cache.glob("npm-*")) if installed_version(root) == version)
    folders = (root / "node_modules" / "bullmq" / "dist" / "cjs" / "scripts" for root in roots)
    return next((_files_in(folder) for folder in folders), {})


def _files_in(folder: Path) -> dict[str, RawScript]:
    files = sorted(path for path in folder.glob("*-*.*") if _FILE_NAME.fullmatch(path.name))
    return read_scripts((path.name, path.read_text("utf-8")) for path in files)


def _download(announce: Callable[[str], None], download: Download) -> dict[str, RawScript]:
    pinned = _pinned()
    address = pinned.resolved.replace(_PUBLIC_REGISTRY, _registry(), 1)
    announce(f"Fetching the Lua scripts of bullmq {pinned.version} from {address} (once) ...")
    try:
        package = download(address)
    except (OSError, ValueError) as error:
        raise EnvironmentProblem(
            f"the Lua scripts cannot be fetched from {address}: {error}",
            hint=f"the registry is needed once: check network and proxy, or set {FOLDER_VARIABLE} to a folder of them",
        ) from error
    # Before unpacking: a manipulated archive must not reach the tar reader.
    _check_integrity(package, pinned.integrity, address)
    with tarfile.open(fileobj=io.BytesIO(package), mode="r:gz") as archive:
        members = [member for member in archive if member.isfile() and member.name.startswith(_IN_PACKAGE)]
        return read_scripts((Path(member.name).name, _text_of(archive, member)) for member in members)


def _text_of(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    opened = archive.extractfile(member)
    assert opened is not None
    return opened.read().decode()


def _check_integrity(package: bytes, integrity: str, address: str) -> None:
    algorithm, _, expected = integrity.partition("-")
    if base64.b64encode(hashlib.new(algorithm, package).digest()).decode() != expected:
        raise EnvironmentProblem(
            f"the package at {address} is not the pinned one: its {algorithm} differs",
            hint=f"check the registry and the proxy in between ({REGISTRY_VARIABLE})",
        )


def _over_https(address: str) -> bytes:
    if not address.startswith("https://"):
        raise ValueError("only https is trusted")
    with urllib.request.urlopen(address, timeout=_WITHIN_S) as answer:  # noqa: S310 - checked just above
        # Limited: a wrong address may answer without end; the hash refuses what was cut off.
        package: bytes = answer.read(_LONGEST_PACKAGE)
    return package


def _registry() -> str:
    chosen = os.environ.get(REGISTRY_VARIABLE) or os.environ.get(REGISTRY_VARIABLE.lower()) or _PUBLIC_REGISTRY
    return chosen.rstrip("/") + "/"


def _pinned() -> _PinnedPackage:
    try:
        lock = msgspec.json.decode((HARNESS / "package-lock.json").read_bytes(), type=_LockFile)
        return msgspec.json.decode(lock.packages["node_modules/bullmq"], type=_PinnedPackage)
    except (OSError, KeyError, msgspec.DecodeError) as error:
        raise EnvironmentProblem(
            f"the lock file of the kit cannot be read: {error}", hint="reinstall bullmq-conformance"
        ) from error


def _cache_name() -> str:
    """The name depends on the manifest, so that an old cache is never used for new scripts."""
    return f"lua-{hashlib.sha256(MANIFEST.read_bytes()).hexdigest()[:12]}.json"


def _read_cache(path: Path) -> dict[str, RawScript] | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, RawScript])
    except (OSError, msgspec.DecodeError):
        return None


def _write_cache(path: Path, scripts: Mapping[str, RawScript]) -> None:
    """Write to a second file and rename it, so that a concurrent reader sees all of it or nothing."""
    # With the process id: two processes must not write the same temporary file.
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(msgspec.json.encode(scripts))
        part.replace(path)
    except OSError:
        # A cache that cannot be written only costs time.
        part.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    """Write the pinned scripts into the folder given as argument; the exit code is that of the problem, if any."""
    (folder,) = map(Path, sys.argv[1:] if arguments is None else arguments)
    try:
        scripts = scripts_without_node(announce=lambda text: print(text, file=sys.stderr))
        folder.mkdir(parents=True, exist_ok=True)
        for script in scripts.values():
            (folder / f"{script.name}-{script.key_count}.lua").write_text(script.text, "utf-8")
    except Problem as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    print(f"{len(scripts)} scripts -> {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
