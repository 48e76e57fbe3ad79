"""An assertion that reads a field of a job names it: then a missing field counts against the row that owns it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SCENARIOS = sorted(Path("conformance/scenarios").rglob("[!d]*.py"))
"""Without `disputed_*.py`, which no client runs."""
ASSERTIONS = {"equal", "one_of", "between", "holds"}
FIELDS = {"ats", "atm", "stc", "delay", "priority", "timestamp", "processedOn", "finishedOn", "pb"}
FIELDS |= {"returnvalue", "failedReason"}
"""What the scripts write next to their work, each stated by a row of its own."""


def unnamed_reads(source: str) -> Iterator[str]:
    """The assertions on fields without `where`, and waits for fields that count. That a field is absent can be said."""
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        fields = set(_fields_in(call)) & ({"ats", "atm", "stc"} if name == "eventually" else FIELDS)
        # Some clients store a progress of 0 when they add the job.
        if name == "eventually" and "progress" in _fields_in(call) and ast.unparse(call.args[1]) == "bool":
            yield f"line {call.lineno}: any progress ends the wait"
        where = next((ast.unparse(word.value) for word in call.keywords if word.arg == "where"), "")
        if not fields or name not in ASSERTIONS | {"eventually"} or any(f"job.{field}" in where for field in fields):
            continue
        if name == "equal" and "None" in ast.unparse(call.args[1]):
            continue
        yield f"line {call.lineno}: {name} reads {', '.join(sorted(fields))}"


def _fields_in(call: ast.Call) -> Iterator[str]:
    """The names of fields read by `redis.field(job, NAME)` in the arguments."""
    for node in ast.walk(call):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "field" and len(node.args) > 1:
            yield ast.unparse(node.args[1]).strip("'")


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_assertions_name_the_field_that_they_read(path: Path) -> None:
    assert list(unnamed_reads(path.read_text("utf-8"))) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('equal(queue.redis.field("1", "ats"), "1", "it ran once")', 1),
        ('equal(queue.redis.field("1", "ats"), "1", "it was started", where="job.ats")', 0),
        ('equal(queue.redis.field("1", "stc"), None, "it was not counted")', 0),
        ('client.eventually(lambda: queue.redis.field("1", "ats"), bool, "it runs")', 1),
        ('client.eventually(lambda: queue.redis.field("1", "progress"), bool, "it runs")', 1),
        ('client.eventually(lambda: queue.redis.field("1", "progress"), {"1"}.__contains__, "it runs")', 0),
        ('equal(queue.redis.field("meta", "paused"), "1", "the queue is paused")', 0),
    ],
)
def test_such_reads_are_found(line: str, found: int) -> None:
    assert len(list(unnamed_reads(line))) == found
