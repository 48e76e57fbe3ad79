"""What may be wrong with the files in `vectors/`: bytes that the manifest does not have, outcomes of another day."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.vectors.format import CallFile, CallVector, VectorManifest
from tests.vectors.writing import FOLDER, Calls, occasion


def kept_calls(folder: Path = FOLDER) -> Calls:
    """All vectors of calls in a folder, by operation."""
    files = (msgspec.json.decode(path.read_bytes(), type=CallFile) for path in sorted((folder / "calls").glob("*")))
    return {file.operation: file.vectors for file in files}


def outdated(kept: Calls, recorded: Calls) -> Iterator[str]:
    """A line for each recorded call that is not among the kept ones, or that ended otherwise."""
    for operation, vectors in recorded.items():
        known = {occasion(vector): vector for vector in kept.get(operation, [])}
        for vector in vectors:
            before = known.get(occasion(vector))
            if before is None:
                yield f"{operation}, {vector.name}: there is no such vector"
            elif _told(before) != _told(vector):
                yield f"{operation}, {before.name}: kept {_told(before)!r}, now {_told(vector)!r}"


def _told(vector: CallVector) -> bytes:
    """All that a vector says beside its name: alike calls of several cases are kept once, under the first one's."""
    return msgspec.json.encode(msgspec.structs.replace(vector, name=""), order="sorted")


def broken_files(folder: Path = FOLDER) -> Iterator[str]:
    """A line for each file that is not as the manifest says, is missing, or is too many."""
    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=VectorManifest)
    found = {path.relative_to(folder).as_posix(): path for path in folder.glob("**/*.json")}
    for name in sorted({*found, *manifest.files} - {"manifest.json", "schema.json"}):
        if name.startswith("examples/"):
            continue
        if name not in found or name not in manifest.files:
            yield f"{name} is {'missing' if name in manifest.files else 'not in the manifest'}"
        elif hashlib.sha256(found[name].read_bytes()).hexdigest() != manifest.files[name].sha256:
            yield f"{name} is not the file of the manifest"
