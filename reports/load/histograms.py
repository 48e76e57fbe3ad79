"""HDR histograms of durations: executors fill theirs apart, and they add up without losing precision."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from hdrh.histogram import HdrHistogram

LARGEST_MS = 24 * 3600 * 1000
"""Longer durations are counted as one day."""

DIGITS = 3

PERCENTILES = (0.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99, 100.0)
"""Percentiles that results keep."""

SHOWN = ("50", "90", "99", "99.9", "100")
"""Those that tables show."""

_EXACT_BITS = 11
"""Numbers of this many bits are counted exactly: three digits need 2,000 steps."""

WholeNumbers: TypeAlias = npt.NDArray[np.int64]
Name = TypeVar("Name")


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of a histogram, in ms. `early`: values below zero (clocks that differ), counted as zero."""

    count: int
    mean: float
    percentiles: dict[str, float]
    early: int = 0


class Histogram:
    """A histogram of whole numbers of one unit. `per_ms`: how many units make a ms; 1000 counts microseconds."""

    def __init__(self, per_ms: int = 1) -> None:
        self._per_ms = per_ms
        self._counts = HdrHistogram(1, LARGEST_MS * per_ms, DIGITS)
        self.early = 0

    def record(self, value: int) -> None:
        """Count one value, in units."""
        self.record_all([value])

    def record_all(self, values: Sequence[int] | WholeNumbers) -> None:
        """Count many values, in units; grouped by the step that they fall into."""
        given = np.asarray(values, np.int64)
        self.early += int((given < 0).sum())
        kept = np.clip(given, 0, LARGEST_MS * self._per_ms)
        bits = np.frexp(kept.astype(np.float64))[1].astype(np.int64)
        dropped = np.maximum(bits - _EXACT_BITS, 0)
        alike, counts = np.unique((kept >> dropped) << dropped, return_counts=True)
        for value, count in zip(alike.tolist(), counts.tolist(), strict=True):
            self._counts.record_value(value, count)

    def encode(self) -> bytes:
        """As bytes, for the way from an executor to the driver."""
        encoded: bytes = self._counts.encode()
        return encoded

    def add(self, encoded: bytes, early: int = 0) -> None:
        """Add what another one of the same unit has counted."""
        self._counts.decode_and_add(encoded)
        self.early += early

    def latency(self) -> Latency:
        """Count, mean and percentiles, in ms."""
        counts = self._counts
        values = {f"{p:g}": float(counts.get_value_at_percentile(p)) / self._per_ms for p in PERCENTILES}
        mean = float(counts.get_mean_value()) / self._per_ms if counts.total_count else 0.0
        return Latency(count=counts.total_count, mean=round(mean, 3), percentiles=values, early=self.early)

    def hgrm(self) -> str:
        """The percentile distribution in ms, as HdrHistogram's own plotter and other tools read it (`.hgrm`)."""
        written = io.BytesIO()
        self._counts.output_percentile_distribution(written, self._per_ms)
        return written.getvalue().decode()


def merged(parts: Iterable[tuple[Name, bytes, int]]) -> Mapping[Name, Histogram]:
    """Histograms of ms by name, from triples of name, encoded histogram and early values."""
    found: dict[Name, Histogram] = {}
    for name, encoded, early in parts:
        found.setdefault(name, Histogram()).add(encoded, early)
    return found
