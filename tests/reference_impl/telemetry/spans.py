"""Spans of a program, and how those of two programs are compared: as trees, in which nothing is different by chance."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

JOB_NAME = "bullmq.job.name"

_BY_CHANCE = {
    re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"): "UUID",
    re.compile(r"\b1\d{12}\b"): "0",  # a Unix time in ms
    re.compile(r'(\\*"delay\\*":)\d+'): r"\g<1>0",
}


_SAMPLED = "0[13]"
"""Flags of a span that is recorded; some libraries say as well that its trace has a random id."""


@dataclass(frozen=True)
class SeenSpan:
    """A span that has ended; `events` are pairs of a name and attributes."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str | None
    attributes: dict[str, Any]
    events: list[Any]

    @property
    def label(self) -> str:
        return f"{self.name} {self.attributes.get(JOB_NAME, '')}".strip()


def seen_in_python(spans: Sequence[ReadableSpan]) -> list[SeenSpan]:
    return [_seen(span) for span in spans]


def seen_in_node(spans: Sequence[dict[str, Any]]) -> list[SeenSpan]:
    return [SeenSpan(**span) for span in spans]


def _seen(span: ReadableSpan) -> SeenSpan:
    assert span.context is not None
    return SeenSpan(
        name=span.name,
        kind=span.kind.name,
        trace=f"{span.context.trace_id:032x}",
        id=f"{span.context.span_id:016x}",
        parent=None if span.parent is None else f"{span.parent.span_id:016x}",
        attributes=_plain(span.attributes),
        events=[[event.name, _plain(event.attributes)] for event in span.events],
    )


def _plain(attributes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(dict(attributes or {})))
    return plain


def compared(spans: Sequence[SeenSpan], seen: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return what two clients must have in common: trees of spans, and what was seen in Redis.

    A span that a job carries is identified by its name.
    """
    children: dict[str | None, list[SeenSpan]] = {}
    for span in spans:
        children.setdefault(span.parent, []).append(span)
    trees = _trees(children, None, None)
    text = json.dumps({"spans": trees, "seen": seen}, sort_keys=True).replace(f"{prefix}:", "P:")
    for span in spans:
        text = re.sub(f"00-{span.trace}-{span.id}-{_SAMPLED}", f"the span of {span.label}", text)
    for random_value, replacement in _BY_CHANCE.items():
        text = random_value.sub(replacement, text)
    masked: dict[str, Any] = json.loads(text)
    return _in_order(masked)


def _trees(children: dict[str | None, list[SeenSpan]], parent: str | None, trace: str | None) -> list[Any]:
    trees = []
    for span in children.get(parent, []):
        assert trace in {None, span.trace}, f"{span} is in another trace than its parent"
        below = _trees(children, span.id, span.trace)
        events = [[name, _without_stack(attributes)] for name, attributes in span.events]
        trees.append([span.name, span.kind, span.attributes, events, below])
    return trees


def _without_stack(attributes: dict[str, Any]) -> dict[str, Any]:
    """Replace the class and stack of an error, which differ between languages."""
    language_own = {"exception.stacktrace", "exception.type", "exception.escaped"}
    return {name: value for name, value in attributes.items() if name not in language_own}


def _in_order(comparison: dict[str, Any]) -> dict[str, Any]:
    return {**comparison, "spans": _sorted(comparison["spans"])}


def _sorted(trees: list[Any]) -> list[Any]:
    """Sort the children of each span: which of two has ended first is chance."""
    return sorted(([*tree[:-1], _sorted(tree[-1])] for tree in trees), key=json.dumps)
