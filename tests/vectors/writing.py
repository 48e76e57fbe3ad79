"""Writes `vectors/` from recorded calls of the oracle.

    python -m tests.vectors.writing --write     # after a change of the corpus; read the difference before committing it

Needs Node.js and starts a private Redis. It writes the same bytes on every run and machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from gzip import GzipFile
from pathlib import Path
from typing import Any

import msgspec

from conformance.pages.compact_json import compact_json
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.upstream.manifest import load_manifest
from tests.reference_impl.corpus.all_cases import CASES
from tests.vectors.format import (
    FORMAT,
    PREFIX,
    CallFile,
    CallVector,
    PackingFile,
    ScoreFile,
    VectorFile,
    VectorManifest,
    VectorScript,
    schema_text,
)
from tests.vectors.recorder import VectorRecorder, is_repeatable, vector_recorder
from tests.vectors.unit_values import packed_values, scores

FOLDER = Path(__file__).resolve().parents[2] / "vectors"

ARCHIVE = "calls.tar.gz"
"""All of `calls/`. Two of its files are also in the tree, as examples; git ignores the others."""

LONGEST_BYTES = 5000
"""Longer vectors are not readable and are left out; the corpus still tests huge values."""

NEVER_OPENED = frozenset({"refused-queue-name-with-colon", "refused-queue-name-empty", "limit-options-out-of-range"})
"""Cases about objects that cannot be constructed, so there is no call to record."""

VECTOR_CASES = tuple(name for name, case in CASES.items() if name not in NEVER_OPENED and is_repeatable(case))

Calls = dict[str, list[CallVector]]
"""Vectors by operation."""


def recorded_calls(recorder: VectorRecorder, names: Iterable[str] = VECTOR_CASES) -> Calls:
    """The calls of these cases, by operation. Of equal calls on the same state, the first is kept."""
    calls: dict[str, dict[bytes, CallVector]] = {}
    for name in names:
        for operation, vector in recorder.record(name, CASES[name]):
            if len(msgspec.json.encode(vector)) <= LONGEST_BYTES:
                calls.setdefault(operation, {}).setdefault(occasion(vector), vector)
    return {operation: list(calls[operation].values()) for operation in sorted(calls)}


def occasion(vector: CallVector) -> bytes:
    """All that a call's outcome may depend on."""
    return msgspec.json.encode([vector.client, vector.now_ms, vector.arguments, vector.before], order="sorted")


def documents(recorder: VectorRecorder) -> dict[str, tuple[str, int]]:
    """The text of each file but the manifest, by its name, and how many vectors it holds."""
    calls = recorded_calls(recorder)
    delayed, prioritized = scores(recorder)
    packing, score_file = PackingFile(vectors=packed_values()), ScoreFile(delayed=delayed, prioritized=prioritized)
    return {
        **{
            f"calls/{operation}.json": (in_lines(CallFile(operation=operation, vectors=vectors)), len(vectors))
            for operation, vectors in calls.items()
        },
        "packing.json": (in_lines(packing), len(packing.vectors)),
        "scores.json": (in_lines(score_file), len(delayed) + len(prioritized)),
    }


def in_lines(document: msgspec.Struct) -> str:
    """JSON with a line for each vector, so that a difference shows which of them has changed."""
    fields = [f"{_json(name)}:{_field(value)}" for name, value in msgspec.to_builtins(document).items()]
    return "{" + ",\n".join(fields) + "}\n"


def _field(value: Any) -> str:
    return "[\n" + ",\n".join(map(_json, value)) + "\n]" if isinstance(value, list) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def manifest_of(written: Mapping[str, tuple[str, int]]) -> VectorManifest:
    """The manifest: the BullMQ version of the vectors, and the hash of each file."""
    files = {
        name: VectorFile(sha256=_sha256(text), vectors=vectors) for name, (text, vectors) in sorted(written.items())
    }
    scripts = {name: VectorScript(keys=it.keys, sha1=it.sha1) for name, it in load_manifest().scripts.items()}
    return VectorManifest(
        format=FORMAT,
        bullmq=BULLMQ_VERSION,
        prefix=PREFIX,
        hash=_sha256("".join(_lines_of(files))),
        files=files,
        scripts=scripts,
    )


def _lines_of(files: Mapping[str, VectorFile]) -> Iterator[str]:
    return (f"{file.sha256}  {name}\n" for name, file in files.items())


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write(folder: Path = FOLDER) -> None:
    """Write every file of the folder, and `ARCHIVE` with the calls; files of removed operations are deleted."""
    with vector_recorder() as recorder:
        written = documents(recorder)
    for path in (folder / "calls").glob("*.json"):
        path.unlink()
    (folder / "calls").mkdir(parents=True, exist_ok=True)
    manifest = msgspec.to_builtins(manifest_of(written))
    texts = {name: text for name, (text, _) in written.items()}
    texts |= {"manifest.json": compact_json(manifest), "schema.json": schema_text()}
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode())
    pack(folder)


def pack(folder: Path) -> None:
    """Write `ARCHIVE` from the files in `calls/`."""
    with GzipFile(folder / ARCHIVE, "wb", mtime=0) as file, tarfile.open(mode="w", fileobj=file) as archive:
        for path in sorted((folder / "calls").glob("*.json")):
            member = tarfile.TarInfo(f"calls/{path.name}")
            member.size = path.stat().st_size
            archive.addfile(member, io.BytesIO(path.read_bytes()))


def packed_calls(folder: Path = FOLDER) -> dict[str, bytes]:
    """The content of each file in `ARCHIVE`, by its name."""
    with tarfile.open(folder / ARCHIVE) as archive:
        found = {member.name: archive.extractfile(member) for member in archive}
        return {name: file.read() for name, file in found.items() if file is not None}


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    write()
