"""Latencies as HDR histograms, which executors can fill apart and anybody can add up without losing precision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from hdrh.histogram import HdrHistogram

LARGEST_MS = 24 * 3600 * 1000
"""Longer latencies are counted as one day."""

DIGITS = 3

PERCENTILES = (50.0, 90.0, 99.0, 99.9, 100.0)


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """What a histogram says, in ms. `early`: values below zero (clocks that differ), counted as zero."""

    count: int
    mean: float
    percentiles: dict[str, float]
    early: int = 0


class Histogram:
    """A histogram of whole milliseconds."""

    def __init__(self) -> None:
        self._counts = HdrHistogram(1, LARGEST_MS, DIGITS)
        self.early = 0

    def record(self, ms: int) -> None:
        """Count one value."""
        if ms < 0:
            self.early += 1
        self._counts.record_value(min(max(ms, 0), LARGEST_MS))

    def encode(self) -> bytes:
        """As bytes, for the way from an executor to the driver."""
        encoded: bytes = self._counts.encode()
        return encoded

    def add(self, encoded: bytes, early: int) -> None:
        """Add what another one has counted."""
        self._counts.decode_and_add(encoded)
        self.early += early

    def latency(self) -> Latency:
        """Count, mean and percentiles."""
        counts = self._counts
        values = {f"{p:g}": float(counts.get_value_at_percentile(p)) for p in PERCENTILES}
        mean = float(counts.get_mean_value()) if counts.total_count else 0.0
        return Latency(count=counts.total_count, mean=round(mean, 3), percentiles=values, early=self.early)


def merged(parts: Iterable[tuple[str, bytes, int]]) -> Mapping[str, Histogram]:
    """Histograms by name, from triples of name, encoded histogram and early values."""
    found: dict[str, Histogram] = {}
    for name, encoded, early in parts:
        found.setdefault(name, Histogram()).add(encoded, early)
    return found
