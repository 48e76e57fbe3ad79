"""The same things under two names: the model's prefix and made-up ids, and those of one participant."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from conformance.driver.ops import Op
from conformance.model.state import MODEL_PREFIX
from conformance.observe.rules.base import map_texts
from conformance.observe.tables import Snapshot

Value = TypeVar("Value")
OpType = TypeVar("OpType", bound=Op[Any])

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Names:
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
            for ours, theirs in zip(predicted, actual, strict=False):
                self.learn(ours, theirs)
        elif _is_uuid(predicted) and _is_uuid(actual) and predicted not in self._outward:
            self._outward[predicted], self._inward[actual] = actual, predicted
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
