"""Does the real thing do what the model says? Answers and snapshots, with what no one can predict left out.

Left out are: ids that are drawn at random, the milliseconds by which a time to live has run down, the order of members
of a set, the text of stack traces, and who wrote `meta.version`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from conformance.model.calls import Prediction
from conformance.model.model import Model
from conformance.model.names import Names
from conformance.model.summary import summary
from conformance.observe.canonical import FROZEN_CLOCK_RULES, canonicalise, without
from conformance.observe.compare.values import same_json
from conformance.observe.diff import diff
from conformance.observe.differences import Difference
from conformance.observe.rules.base import Context
from conformance.observe.rules.names import GENERATED_UUIDS
from conformance.observe.tables import Snapshot, parsed_json

TTL_TOLERANCE_MS = 9_000
"""How much real time a whole sequence may take, so that times to live still tell the same."""

UNORDERED = frozenset({"job.getDependencies.unprocessed", "flow.getFlow.flow.children", "queue.getWorkers.names"})
JSON_TEXTS = frozenset({"data_raw", "progress_raw", "returnvalue_raw", "template_data_raw"})


def compare_answers(
    prediction: Prediction, status: str, value: Any = None, code: str | None = None, *, names: Names | None = None
) -> list[str]:
    """What differs between the prediction and an answer, one line each; nothing where they agree.

    `names`: translates what the client calls by other names, its prefix and its random ids.
    """
    if (prediction.status, prediction.code) != (status, code):
        expected = prediction.code or prediction.status
        return [f"{prediction.op}: expected {expected}, got {code or status}"]
    if prediction.status != "ok":
        return []
    actual = names.inward(value) if names is not None else value
    return [
        f"{where}: expected {wanted!r}, got {got!r}"
        for where, wanted, got in _differences(prediction.op, prediction.value, actual or {})
    ]


def _differences(where: str, expected: Any, actual: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for name in {**expected, **actual}:
            yield from _differences(f"{where}.{name}", expected.get(name), actual.get(name))
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for wanted, got in zip(_ordered(where, expected), _ordered(where, actual), strict=True):
            yield from _differences(where, wanted, got)
    elif not _same(where, expected, actual):
        yield where, expected, actual


def _ordered(where: str, items: Sequence[Any]) -> Sequence[Any]:
    unordered = where in UNORDERED or (where.startswith("flow.getFlow.") and where.endswith(".children"))
    return sorted(items, key=str) if unordered else items


def _same(where: str, expected: Any, actual: Any) -> bool:
    if where == "queue.getRateLimitTtl.count" and isinstance(actual, int):
        return bool(expected - TTL_TOLERANCE_MS <= actual <= expected) and (actual > 0) == (expected > 0)
    if where == "queue.getVersion.value":
        return (expected is None) == (actual is None)
    if where.rpartition(".")[2] in JSON_TEXTS and isinstance(expected, str) and isinstance(actual, str):
        return expected == actual or same_json(parsed_json(expected), parsed_json(actual))
    return bool(expected == actual)


def compare_snapshots(model: Model, real: Snapshot, *, names: Names | None = None) -> list[Difference]:
    """The differences between the model (expected) and a snapshot read from Redis, both in canonical form.

    For participants with a settable clock: times are compared exactly, times to live up to the tolerance. With `names`,
    ids that are drawn at random are compared one by one; without, by the order of their appearance.
    """
    expected = model.snapshot()
    if names is not None:
        real = names.of_model(real)
        if summary(expected) == summary(_with_times_to_live_of(expected, real)):
            return []
    rules = FROZEN_CLOCK_RULES if names is None else without(FROZEN_CLOCK_RULES, GENERATED_UUIDS.name)
    aligned = _with_times_to_live_of(expected, real)
    context = Context(lock_duration_ms=None)
    return diff(canonicalise(expected, rules, context), canonicalise(aligned, rules, context))


def _with_times_to_live_of(expected: Snapshot, real: Snapshot) -> Snapshot:
    """The real snapshot, with each time to live that is near enough to the expected one replaced by that."""
    known = {_place(row): row.ttl_ms for table in _WITH_TTL for row in getattr(expected, table)}
    aligned: dict[str, Any] = {
        table: tuple(_aligned(row, known.get(_place(row))) for row in getattr(real, table)) for table in _WITH_TTL
    }
    return replace(real, **aligned)


_WITH_TTL = ("locks", "deduplications", "limiters", "stalled_checks")


def _place(row: Any) -> tuple[str, ...]:
    subject = next(getattr(row, name) for name in ("name", "id", "job") if hasattr(row, name))
    return (type(row).__name__, row.queue, subject)


def _aligned(row: Any, expected: float | None) -> Any:
    if expected is None or expected < 0 or row.ttl_ms < 0:
        return row
    near = expected - TTL_TOLERANCE_MS <= row.ttl_ms <= expected + 1
    return replace(row, ttl_ms=expected) if near else row
