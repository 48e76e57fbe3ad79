"""The outcome of `bench` as data: what the JSON document holds, and what every renderer prints."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from conformance.problems import UsageProblem

SPEED_FILE = "bench.json"
SPEED_FORMAT = 1
"""Within a format, fields are added but never renamed, removed or given another meaning."""

MeasureState = Literal["measured", "not-declared", "not-measured"]
GateOutcome = Literal["holds", "fails", "undecided"]


class MeasuredRatio(msgspec.Struct, frozen=True, kw_only=True):
    """One measure. `client` and `oracle` are medians in `unit`; `ratios` are those of each round, more is better.

    `low` to `high` holds the true median with probability `confidence`. `reason`: why there is no number. `clients` and
    `oracles`: the values of each round. `starved`: the share of the time of the client's measurements in which the kit
    or a driver waited for a processor.
    """

    measure: str
    meaning: str
    unit: str
    state: MeasureState
    reason: str = ""
    client: float | None = None
    oracle: float | None = None
    ratios: list[float] = []
    median: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    clients: list[float] = []
    oracles: list[float] = []
    starved: float = 0.0


class SpeedGate(msgspec.Struct, frozen=True, kw_only=True):
    """A bound of `--at-least` or `--at-most`, and its outcome; `reason` in words.

    `unit`: of a bound of the client's own values; empty for a bound of the ratio.
    """

    measure: str
    outcome: GateOutcome
    reason: str
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""

    @property
    def text(self) -> str:
        """The bound in words: `pickup at most 10 ms`."""
        bound = f"at least {self.at_least:g}" if self.at_most is None else f"at most {self.at_most:g}"
        return f"{self.measure} {bound}{f' {self.unit}' if self.unit else ''}"


class SpeedReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole session. `jobs`: of one measurement. `load`: of the machine (1 min) before and after."""

    format: int = SPEED_FORMAT
    kit: str
    client: str
    oracle: str
    redis: str
    rounds: int
    jobs: int
    load: tuple[float, float]
    ratios: list[MeasuredRatio]
    gates: list[SpeedGate] = []

    @property
    def exit_code(self) -> int:
        """0: every gate holds, also where there is none; 1: one fails; 4: none fails, and one cannot be decided."""
        outcomes = {gate.outcome for gate in self.gates}
        return 1 if "fails" in outcomes else 4 if "undecided" in outcomes else 0


def read_speed(path: Path) -> SpeedReport:
    """Read a `bench.json`. Raises UsageProblem if it is not one, or of a later format."""
    try:
        report = msgspec.json.decode(path.read_bytes(), type=SpeedReport)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise UsageProblem(f"{path} is not a result of `bench`: {error}") from error
    if report.format > SPEED_FORMAT:
        raise UsageProblem(f"{path} has format {report.format}, this kit knows up to {SPEED_FORMAT}")
    return report
