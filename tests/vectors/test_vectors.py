"""The files in `vectors/` are what the oracle does, whole, and free of upstream text."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import filterfalse
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from conformance.driver.ops import REGISTRY
from conformance.driver.transports import ChildProcess
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.servers import open_server
from tests.reference_impl.corpus.all_cases import cases_for_every_operation
from tests.vectors.checks import broken_files, kept_calls, outdated
from tests.vectors.format import PackingFile, ScoreFile, StoredKey, schema_text
from tests.vectors.recorder import VectorRecorder, vector_recorder
from tests.vectors.runner import VectorRunner, has_uuids
from tests.vectors.unit_values import packed_values, scores
from tests.vectors.writing import FOLDER, VECTOR_CASES, pack, packed_calls, recorded_calls

RUN_PER_OPERATION = 2

MOST_OPERATIONS = 60
"""Of 71: the vectors of a few operations come from cases whose first ones are too long to be kept."""

WITHOUT_VECTORS = {
    "queue.getRateLimitTtl": "its answer depends on the server's clock",
    "queue.trimEvents": "what is trimmed depends on how Redis stores the stream",
    **dict.fromkeys(
        (
            *("job.removeDeduplicationKey", "queue.getMeta", "queue.removeOrphanedJobs"),
            *("worker.cancelJob", "worker.cancelAllJobs"),
        ),
        "BullMQ 5.62.0 has no such method",
    ),
    "resolve": "an answer to a worker's own loop",
    "queue.getWorkers": "it asks who is connected",
    "queue.getWorkersCount": "it asks who is connected",
    "job.waitUntilFinished": "it waits for an event",
    "queue.refuses": "BullMQ has no such rules",
}

CALLS = kept_calls()
RUNNABLE = [
    pytest.param(operation, vector, id=f"{operation}, {vector.name}")
    for operation, vectors in CALLS.items()
    for vector in list(filterfalse(has_uuids, vectors))[:: max(1, len(vectors) // RUN_PER_OPERATION)]
]


@pytest.fixture(scope="module")
def recorder() -> Iterator[VectorRecorder]:
    with vector_recorder() as made:
        yield made


@pytest.fixture(scope="module")
def reference() -> Iterator[VectorRunner]:
    driver = ChildProcess.start([sys.executable, "-m", "conformance.reference_impl.driver"], seed=1)
    with open_server(None, announce=print) as server, server.connect() as redis:
        yield VectorRunner(driver, server.nodes, redis)
    driver.close()


@pytest.mark.slow
def test_a_part_that_is_recorded_again_is_the_same(recorder: VectorRecorder) -> None:
    recorded = recorded_calls(recorder, cases_for_every_operation(VECTOR_CASES))
    assert len(set(recorded) & set(CALLS)) > MOST_OPERATIONS, "the part is too small to say anything"
    found = list(outdated(CALLS, recorded))
    assert not found, "run `make vectors` to write them again:\n" + "\n".join(found)
    _, vector = _one_call("queue.add")
    damaged = msgspec.structs.replace(vector, answer={"id": "2"})
    assert [line.partition(":")[0] for line in outdated({"queue.add": [damaged]}, {"queue.add": [vector]})] == [
        f"queue.add, {vector.name}"
    ]


def test_scores_are_those_of_today(recorder: VectorRecorder) -> None:
    kept = msgspec.json.decode((FOLDER / "scores.json").read_bytes(), type=ScoreFile)
    assert (kept.delayed, kept.prioritized) == scores(recorder)


def test_packed_values_are_those_of_today() -> None:
    kept = msgspec.json.decode((FOLDER / "packing.json").read_bytes(), type=PackingFile)
    assert kept.vectors == packed_values()


def test_every_operation_has_vectors() -> None:
    on_objects = {name for name, operation in REGISTRY.items() if operation.on in {"queue", "job", "flow", "worker"}}
    assert on_objects - set(CALLS) == set(WITHOUT_VECTORS)


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "vector"), RUNNABLE)
def test_another_client_passes_with_the_vector_alone(reference: VectorRunner, operation: str, vector: Any) -> None:
    found = reference.differences(operation, vector)
    assert not found, "\n".join(found)


def test_a_vector_that_is_wrong_is_noticed(reference: VectorRunner) -> None:
    operation, vector = _one_call("queue.add")
    answer = msgspec.structs.replace(vector, answer={"id": "7"})
    assert any("expected ('answer', {'id': '7'})" in line for line in reference.differences(operation, answer))
    key, stored = next((key, stored) for key, stored in vector.changes.items() if key.endswith(":wait"))
    assert isinstance(stored, StoredKey)
    changes = {**vector.changes, key: msgspec.structs.replace(stored, value=["9"])}
    state = msgspec.structs.replace(vector, changes=changes)
    assert [line.partition(":")[0] for line in reference.differences(operation, state)] == ["bull"]


@pytest.mark.slow
def test_the_schema_is_current_and_fits_every_file() -> None:
    assert (FOLDER / "schema.json").read_text("utf-8") == schema_text()
    schema = json.loads(schema_text())
    texts = {path.name: path.read_bytes() for path in FOLDER.glob("*.json") if path.name != "schema.json"}
    texts |= packed_calls()
    described = [(name, _definition(schema, name)) for name in texts]
    for name, definition in described:
        if definition is not None:
            jsonschema.validate(json.loads(texts[name]), definition)
    assert all(definition for _, definition in described), described


def test_the_schema_refuses_an_invalid_vector() -> None:
    definition = _definition(json.loads(schema_text()), "calls/queue.add.json")
    assert definition is not None
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"operation": "queue.add", "vectors": [{"name": "no client"}]}, definition)


def test_the_manifest_has_every_file(tmp_path: Path) -> None:
    assert not list(broken_files())
    copy = tmp_path / "vectors"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("examples"))
    (copy / "calls" / "job.log.json").write_text("{}")
    (copy / "calls" / "queue.new.json").write_text("{}")
    (copy / "scores.json").unlink()
    complaints = [
        "scores.json is missing",
        "calls/job.log.json is not the file of the manifest",
        "calls/queue.new.json is not in the manifest",
    ]
    assert list(broken_files(copy)) == complaints
    pack(copy)
    assert {"calls/queue.add.json is missing", *complaints} < set(broken_files(copy))


def test_the_manifest_says_whose_vectors_they_are() -> None:
    manifest = json.loads((FOLDER / "manifest.json").read_text("utf-8"))
    assert (manifest["bullmq"], manifest["prefix"]) == (BULLMQ_VERSION, "bull")
    assert manifest["scripts"]["addStandardJob"]["keys"] == 9


@pytest.mark.slow
def test_no_file_holds_upstream_text() -> None:
    texts = {path.name: path.read_bytes() for path in FOLDER.glob("**/*") if path.is_file()} | packed_calls()
    assert [name for name, text in texts.items() if b"redis.call" in text] == []


def _one_call(operation: str) -> tuple[str, Any]:
    return operation, CALLS[operation][0]


def _definition(schema: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The schema of one file, with what it refers to."""
    chosen = [part for pattern, part in schema["files"].items() if fnmatchcase(name, pattern)]
    return {**chosen[0], "$defs": schema["$defs"]} if chosen else None
