"""Metrics in the text format of Prometheus, read without a library for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+\d+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Sample:
    """One line: the metric, its labels, and the value."""

    name: str
    labels: Mapping[str, str]
    value: float


def read_samples(text: str) -> list[Sample]:
    """Return every sample of a text; comments and lines of another form are left out."""
    found = [_SAMPLE.match(line.strip()) for line in text.splitlines() if not line.startswith("#")]
    return [
        Sample(line["name"], dict(_LABEL.findall(line["labels"] or "")), _number(line["value"]))
        for line in found
        if line
    ]


def total(text: str, metric: str, *labels: str, **values: str) -> float | None:
    """Return the sum of a metric's samples that have exactly these labels, those in `values` with this value.

    None if there is no such sample.
    """
    wanted = {*labels, *values}
    chosen = [
        sample.value
        for sample in read_samples(text)
        if sample.name == metric and set(sample.labels) == wanted and values.items() <= sample.labels.items()
    ]
    return sum(chosen) if chosen else None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
