"""Checks of the files in `vectors/`: bytes that differ from the manifest, and outdated outcomes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.vectors.format import CallFile, CallVector, VectorManifest
from tests.vectors.writing import FOLDER, Calls, occasion, packed_calls


def kept_calls(folder: Path = FOLDER) -> Calls:
    """All vectors of calls in the archive of a folder, by operation."""
    files = (msgspec.json.decode(text, type=CallFile) for text in packed_calls(folder).values())
    return {file.operation: file.vectors for file in files}


def outdated(kept: Calls, recorded: Calls) -> Iterator[str]:
    """A line for each recorded call without a stored vector or with another outcome."""
    for operation, vectors in recorded.items():
        known = {occasion(vector): vector for vector in kept.get(operation, [])}
        for vector in vectors:
            before = known.get(occasion(vector))
            if before is None:
                yield f"{operation}, {vector.name}: there is no such vector"
            elif _content(before) != _content(vector):
                yield f"{operation}, {before.name}: kept {_content(before)!r}, now {_content(vector)!r}"


def _content(vector: CallVector) -> bytes:
    """The content of a vector without its name: equal calls of several cases are stored once, under the first name."""
    return msgspec.json.encode(msgspec.structs.replace(vector, name=""), order="sorted")


def broken_files(folder: Path = FOLDER) -> Iterator[str]:
    """A line for each file, also of the archive, that differs from the manifest, is missing, or is not listed there."""
    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=VectorManifest)
    paths = [path for path in folder.glob("**/*.json") if path.name not in {"manifest.json", "schema.json"}]
    found = [(path.relative_to(folder).as_posix(), path.read_bytes()) for path in paths]
    found += packed_calls(folder).items()
    yield from (f"{name} is missing" for name in sorted(manifest.files.keys() - dict(found).keys()))
    for name, text in sorted(found):
        if name not in manifest.files:
            yield f"{name} is not in the manifest"
        elif hashlib.sha256(text).hexdigest() != manifest.files[name].sha256:
            yield f"{name} is not the file of the manifest"
