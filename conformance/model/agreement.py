"""Does the real thing do what the model says? Calls, results and snapshots of both, compared in the model's words.

Left out is what no one can predict: ids that are drawn at random, the milliseconds by which a time to live has run
down, the order of members of a set, the text of stack traces, and who wrote `meta.version`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from conformance.driver.ops import Op
from conformance.model.calls import Prediction
from conformance.model.model import Model
from conformance.model.state import MODEL_PREFIX
from conformance.observe.canonical import FROZEN_CLOCK_RULES, without
from conformance.observe.canonical_rules import GENERATED_UUIDS, CanonicalContext, map_texts
from conformance.observe.diff import compare
from conformance.observe.differences import Difference, same_reading
from conformance.observe.tables import TABLES, Event, Job, Snapshot

Value = TypeVar("Value")
OpType = TypeVar("OpType", bound=Op[Any])

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

Summary = Mapping[str, Any]

_BY_VALUE = frozenset({"opts", "parent"})
"""Fields whose JSON was written by Lua: the order of the keys says nothing."""

TTL_TOLERANCE_MS = 9_000
"""How much real time a whole sequence may take, so that times to live can still be compared."""
UNORDERED = frozenset({"job.getDependencies.unprocessed", "flow.getFlow.flow.children", "queue.getWorkers.names"})
JSON_TEXTS = frozenset({"data_raw", "progress_raw", "returnvalue_raw", "template_data_raw"})
_WITH_TTL = ("locks", "deduplications", "limiters", "stalled_checks")


class NameTranslation:
    """Translates between the model and one participant. Ids are learned from the answers to flows."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._inward: dict[str, str] = {}
        self._outward: dict[str, str] = {}
        self._known: dict[str, str] = {}

    def learn(self, predicted: Any, actual: Any) -> None:
        """Pair the ids of two answers of the same form, where both are uuids."""
        if isinstance(predicted, dict) and isinstance(actual, dict):
            for name in predicted.keys() & actual.keys():
                self.learn(predicted[name], actual[name])
        elif isinstance(predicted, list) and isinstance(actual, list):
            # Not strict: a difference in length is reported by the comparison, with its place.
            for ours, theirs in zip(predicted, actual, strict=False):
                self.learn(ours, theirs)
        elif _is_uuid(predicted) and _is_uuid(actual) and predicted not in self._outward:
            self._outward[predicted], self._inward[actual] = actual, predicted
            # A new pair may change texts that were translated before.
            self._known.clear()

    def outward_id(self, job: str) -> str:
        """The participant's id of a job of the model."""
        return self._outward.get(job, job)

    def outward(self, op: OpType) -> OpType:
        """The operation as the participant understands it."""
        sent = _mapped(msgspec.to_builtins(op), self._out)
        translated: OpType = msgspec.convert(sent, type(op))
        return translated

    def inward(self, value: Value) -> Value:
        """A participant's answer in the model's words."""
        translated: Value = _mapped(value, self._in)
        return translated

    def of_model(self, snapshot: Snapshot) -> Snapshot:
        """A participant's snapshot in the model's words."""
        return replace(map_texts(snapshot, self._in), prefix=MODEL_PREFIX)

    def _out(self, text: str) -> str:
        known = _UUID.sub(lambda found: self._outward.get(found.group(), found.group()), text)
        return known.replace(f"{MODEL_PREFIX}:", f"{self._prefix}:")

    def _in(self, text: str) -> str:
        """Most texts are met again after each step."""
        known = self._known.get(text)
        if known is None:
            known = _UUID.sub(lambda found: self._inward.get(found.group(), found.group()), text)
            known = self._known[text] = known.replace(f"{self._prefix}:", f"{MODEL_PREFIX}:")
        return known


def _is_uuid(value: Any) -> bool:
    return isinstance(value, str) and _UUID.fullmatch(value) is not None


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(name): _mapped(item, change) for name, item in value.items()}
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    return value


def summary(snapshot: Snapshot) -> Summary:
    """A summary of the state, table by table: equal summaries mean that no canonical rule would find a difference.

    Comparing after each step is dear, and mostly nothing differs; where summaries differ, the canonical rules decide.
    The order of rows counts only for events.
    """
    others = {table: sorted(map(_row, getattr(snapshot, table)), key=repr) for table in TABLES}
    events: dict[str, list[tuple[tuple[str, str], ...]]] = {}
    for event in snapshot.events:
        events.setdefault(event.queue, []).append(event.fields)
    return {**others, "events": events}


def _row(row: Any) -> Any:
    if isinstance(row, Event):
        return None
    if isinstance(row, Job):
        return (row.queue, row.id, tuple(sorted((name, _field(name, value)) for name, value in row.fields.items())))
    return tuple(_value(name, getattr(row, name)) for name in row.__dataclass_fields__)


def _value(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(sorted((key, _field(key, text)) for key, text in value.items()))
    return float(value) if name in {"score", "next"} and value is not None else value


@lru_cache(maxsize=4096)
def _field(name: str, text: str) -> str:
    try:
        if name in _BY_VALUE:
            return json.dumps(json.loads(text), sort_keys=True)
        if name == "stacktrace":
            return str(len(json.loads(text)))
    except ValueError:
        pass
    return text


def compare_answers(
    prediction: Prediction,
    status: str,
    value: Any = None,
    code: str | None = None,
    *,
    names: NameTranslation | None = None,
) -> list[str]:
    """The differences between the prediction and an answer, one line each; empty if they agree.

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
        return expected == actual or same_reading(expected, actual)
    return bool(expected == actual)


def compare_snapshots(model: Model, real: Snapshot, *, names: NameTranslation | None = None) -> list[Difference]:
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
    context = CanonicalContext(lock_duration_ms=None)
    return compare(expected, aligned, rules, context)


def _with_times_to_live_of(expected: Snapshot, real: Snapshot) -> Snapshot:
    """The real snapshot, with each time to live that is near enough to the expected one replaced by that."""
    known = {_place(row): row.ttl_ms for table in _WITH_TTL for row in getattr(expected, table)}
    aligned: dict[str, Any] = {
        table: tuple(_aligned(row, known.get(_place(row))) for row in getattr(real, table)) for table in _WITH_TTL
    }
    return replace(real, **aligned)


def _place(row: Any) -> tuple[str, ...]:
    subject = next(getattr(row, name) for name in ("name", "id", "job") if hasattr(row, name))
    return (type(row).__name__, row.queue, subject)


def _aligned(row: Any, expected: float | None) -> Any:
    if expected is None or expected < 0 or row.ttl_ms < 0:
        return row
    near = expected - TTL_TOLERANCE_MS <= row.ttl_ms <= expected + 1
    return replace(row, ttl_ms=expected) if near else row
