"""Vectors that need no queue: values as BullMQ's packer writes them, and scores as its scripts calculate them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

from conformance.upstream.node import find_node
from conformance.upstream.package import ensure_package
from tests.reference_impl.corpus.steps import CorpusCase, case, one, queue
from tests.reference_impl.corpus.steps import add_bulk as added
from tests.vectors.format import PREFIX, CallVector, DelayedScore, PackedValue, PriorityScore
from tests.vectors.recorder import NOW, VectorRecorder, with_changes

WRITE = """
const { Packr } = require(process.argv[1]);
const packer = new Packr({ useRecords: false, encodeUndefinedAsNil: true });
const values = JSON.parse(require('fs').readFileSync(0, 'utf8'));
process.stdout.write(JSON.stringify(values.map(([name, value]) => [name, value, packer.pack(value).toString('hex')])));
"""
"""The options of Packr are those of BullMQ (upstream `src/classes/scripts.ts`)."""

BIT_WIDTHS = (5, 7, 8, 15, 16, 31, 32, 53, 64)
"""The widths at which MessagePack changes the form of a number; beyond 32 bits BullMQ writes doubles."""

TEXT_LENGTHS = (0, 1, 31, 32, 63, 64, 255, 256)
SIZES = (0, 1, 15, 16, 17)
DOUBLES = (0.5, -0.5, 1.5, 0.1, -2.25, 1e21, 1e-7, 1.7976931348623157e308, 5e-324, 3.0)
TEXTS = {"umlaut": "äöü", "euro": "€", "emoji": "\U0001f600", "nul": "\x00", "line-separator": "\u2028"}

DUE_AFTER_MS = (1, 1, 1, 7, 5000, 5000, 86_400_000, 3_155_760_000_000)
PRIORITIES = (1, 1, 2, 10, 10, 1, 4095, 2_097_151, 2_097_152)


def packed_values() -> list[PackedValue]:
    """All values, written by Node in one process. Its JSON gives members in JavaScript's order: small numbers first."""
    node = find_node(None)
    packer = ensure_package(node, announce=print).root / "node_modules" / "msgpackr"
    done = subprocess.run(
        [str(node.path), "-e", WRITE, str(packer)],
        input=json.dumps(list(_values())).encode(),
        capture_output=True,
        check=True,
        timeout=120,
    )
    return [PackedValue(name=name, value=value, hex=packed) for name, value, packed in json.loads(done.stdout)]


def _values() -> Iterator[tuple[str, Any]]:
    yield from (("null", None), ("true", True), ("false", False), ("zero", 0), ("one", 1), ("minus-one", -1))
    for bits in BIT_WIDTHS:
        for offset in (-1, 0, 1):
            yield f"2^{bits}{offset:+d}", 2**bits + offset
            yield f"-2^{bits}{offset:+d}", -(2**bits) + offset
    yield from ((f"double {value!r}", value) for value in DOUBLES)
    yield from ((f"text of {length}", "x" * length) for length in TEXT_LENGTHS)
    yield from ((f"text {name}", text) for name, text in TEXTS.items())
    yield from ((f"text of {length} umlauts", "ä" * length) for length in TEXT_LENGTHS)
    yield from ((f"list of {size}", list(range(size))) for size in SIZES)
    yield from ((f"object of {size}", {f"k{number}": number for number in range(size)}) for size in SIZES)
    yield from OBJECTS


OBJECTS: tuple[tuple[str, Any], ...] = (
    ("object whose names are numbers", {"10": "c", "b": "d", "9": "a"}),
    ("object in an object", {"backoff": {"type": "fixed", "delay": 1000}, "attempts": 3}),
    ("object with null", {"a": None}),
    (
        "options of a job",
        {"delay": 5000, "attempts": 3, "jobId": "mine", "removeOnComplete": {"count": 100, "age": 60}},
    ),
    ("options as they are stored", {"de": {"id": "d", "ttl": 100}, "kl": 5, "fpof": True, "tm": "m"}),
    ("list of lists", [[1, [2, [3]]], [], [{}]]),
    ("field list", ["returnvalue", '{"a":1}', "finishedOn", 1_700_000_000_000]),
)


def _score_case() -> CorpusCase:
    jobs = [one("delayed", delay=delay) for delay in DUE_AFTER_MS]
    jobs += [one("prioritized", priority=priority) for priority in PRIORITIES]
    return case("scores", queue(), *(added(job) for job in jobs))


def scores(recorder: VectorRecorder) -> tuple[list[DelayedScore], list[PriorityScore]]:
    """The scores of real jobs, in the order in which they were added."""
    delayed: list[DelayedScore] = []
    prioritized: list[PriorityScore] = []
    for _, vector in recorder.record("scores", _score_case()):
        opts = vector.arguments["jobs"][0]["opts"]
        if "delay" in opts:
            due_ms = NOW + opts["delay"]
            before = sum(known.due_ms == due_ms for known in delayed)
            delayed.append(DelayedScore(due_ms=due_ms, before=before, score=_score(vector, "delayed")))
        else:
            score = _score(vector, "prioritized")
            prioritized.append(PriorityScore(priority=opts["priority"], counter=_counter(vector), score=score))
    return delayed, prioritized


def _score(vector: CallVector, container: str) -> int:
    members = with_changes(vector)[f"{PREFIX}:q:{container}"].value
    found = [score for member, score in members if member == vector.answer["ids"][0]]
    assert len(found) == 1, f"{container}: {members}"
    return int(found[0])


def _counter(vector: CallVector) -> int:
    return int(with_changes(vector)[f"{PREFIX}:q:pc"].value)
