"""What a stored snapshot says of itself. It is written last: a folder without it is no snapshot. No Spark."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec

from conformance.problems import EnvironmentProblem, UsageProblem
from reports.snapshot.files import ROWS
from reports.snapshot.schema import SCHEMA_VERSION

MANIFEST = "manifest.json"


class QueueFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a diff has to know of a queue before it begins.

    `rows`: of all tables. `events_complete`: no event has been trimmed yet. `generated_ids`: it has jobs whose ids are
    uuids or times of schedulers, which differ between two stores that are the same.
    """

    rows: int
    events_complete: bool
    generated_ids: bool


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a snapshot.

    `taken_ms`: the Redis server's clock when reading began, Unix ms. `rows`: number of rows by table. `moving`: queues
    whose event stream grew while it was read, so that the tables are of different instants. `queues`: by name.
    `buckets`: how many the rows lie in (`reports.snapshot.files`).
    `scripts_sha256`: over the SHA-1 of all pinned scripts, in the order of their names. `seed`, `workload`: of the load
    that filled the store, where there was one.
    """

    schema_version: int = SCHEMA_VERSION
    kit: str
    bullmq: str
    scripts_sha256: str
    source: str
    prefix: str
    queue: str
    taken_ms: int
    redis_settings: dict[str, str]
    redis_version: str
    rows: dict[str, int]
    moving: list[str]
    queues: dict[str, QueueFacts]
    buckets: int
    seed: int | None = None
    workload: dict[str, Any] | None = None

    @property
    def jobs(self) -> int:
        """Number of job hashes."""
        return self.rows.get("jobs", 0)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it under another name and rename it: it is there as a whole or not at all. Raises EnvironmentProblem."""
    unfinished = folder / f"{MANIFEST}.unfinished"
    try:
        unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
        unfinished.replace(folder / MANIFEST)
    except OSError as error:
        raise EnvironmentProblem(f"cannot write {unfinished}: {error}", hint="is the disk full?") from error


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a stored snapshot. Raises UsageProblem where there is none, or one of another schema."""
    path = folder / MANIFEST
    if not folder.is_dir():
        raise UsageProblem(f"{folder} is no folder", hint="give the folder of a snapshot, or redis://host:port#prefix")
    if not path.is_file():
        raise UsageProblem(
            f"{folder} holds no {MANIFEST}: it is no snapshot, or one that was not finished",
            hint="take it again with `bullmq-conformance snapshot`",
        )
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.MsgspecError as error:
        raise UsageProblem(f"{path} is not a manifest of this kit: {error}", hint="take the snapshot again") from error
    if manifest.schema_version != SCHEMA_VERSION:
        raise UsageProblem(
            f"{folder} has schema version {manifest.schema_version}, this kit reads {SCHEMA_VERSION}",
            hint="take the snapshot again with this version of the kit",
        )
    return manifest


def claim_folder(folder: Path) -> None:
    """Make a folder ready for a new snapshot: an old snapshot in it is no longer one from here on.

    Raises UsageProblem for a folder with anything else in it, EnvironmentProblem where it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        foreign = sorted({path.name for path in folder.iterdir()} - {ROWS, MANIFEST, f"{MANIFEST}.unfinished"})
        if not foreign:
            (folder / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(folder / ROWS, ignore_errors=True)
    except OSError as error:
        raise EnvironmentProblem(f"cannot write to {folder}: {error}", hint="choose another folder") from error
    if foreign:
        raise UsageProblem(f"{folder} holds something else: {', '.join(foreign[:3])}", hint="choose an empty folder")
