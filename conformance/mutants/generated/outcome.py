"""A sweep's outcome: the mutants of a sample, what became of each, and what counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conformance.mutants.generated.areas import area_of
from conformance.mutants.generated.hunt import HuntedMutant
from conformance.mutants.generated.judgements import Judgement
from conformance.mutants.generated.rates import KillRate, kill_rate, rates_by


@dataclass(frozen=True)
class JudgedMutant:
    """A mutant, its fate, and its judgement.

    `line`: in its script or module, for people; `code`: the text of that line, of Python only.
    """

    hunted: HuntedMutant
    line: int
    judgement: Judgement | None
    code: str = ""

    @property
    def key(self) -> str:
        """Its name: `LANGUAGE/FILE/FUNCTION/OPERATOR/HASH`."""
        return self.hunted.key

    @property
    def language(self) -> str:
        """`lua` or `python`."""
        return self.key.partition("/")[0]

    @property
    def operator(self) -> str:
        """The kind of change."""
        return self.key.split("/")[-2]

    @property
    def is_killed(self) -> bool:
        """Whether a case noticed it."""
        return self.hunted.fate == "killed"

    @property
    def is_effective(self) -> bool:
        """Whether it counts: it breaks something, and the machine let the kit look."""
        return self.is_killed or (self.is_alive and self.judgement is None)

    @property
    def is_alive(self) -> bool:
        """Whether no case noticed it, with or without a judgement."""
        return self.hunted.fate in ("survived", "unreached")

    @property
    def is_hole(self) -> bool:
        """Whether the gate should have noticed it."""
        return self.is_alive and self.judgement is None

    @property
    def is_misjudged(self) -> bool:
        """Whether its judgement says that no case can notice it, and one did."""
        return self.is_killed and self.judgement is not None


@dataclass(frozen=True)
class SweepOutcome:
    """The results of one sample. `seed`: None if the mutants were not drawn. `cases`: how many could be run."""

    seed: int | None
    tier: str
    cases: int
    mutants: Sequence[JudgedMutant]

    @property
    def rate(self) -> KillRate:
        """Of all effective mutants."""
        return kill_rate(mutant.is_killed for mutant in self._effective)

    @property
    def by_language(self) -> dict[str, KillRate]:
        """For Lua and for Python."""
        return rates_by(self._effective, lambda each: each.language, lambda each: each.is_killed)

    @property
    def by_area(self) -> dict[str, KillRate]:
        """For each area."""
        return rates_by(self._effective, lambda each: area_of(each.key), lambda each: each.is_killed)

    @property
    def by_operator(self) -> dict[str, KillRate]:
        """For each kind of change."""
        return rates_by(self._effective, lambda each: each.operator, lambda each: each.is_killed)

    @property
    def only_warned(self) -> int:
        """How many of the killed ones would not fail a run, but warn."""
        return sum(mutant.is_killed and mutant.hunted.warns for mutant in self.mutants)

    def count(self, fate: str) -> int:
        """How many mutants had this fate."""
        return sum(mutant.hunted.fate == fate for mutant in self.mutants)

    def judged(self, verdict: str) -> list[JudgedMutant]:
        """The living mutants with this judgement."""
        return [each for each in self.mutants if each.is_alive and each.judgement and each.judgement.verdict == verdict]

    @property
    def holes(self) -> list[JudgedMutant]:
        """The mutants that the gate should have noticed."""
        return [mutant for mutant in self.mutants if mutant.is_hole]

    @property
    def misjudged(self) -> list[JudgedMutant]:
        """The mutants whose judgement is wrong."""
        return [mutant for mutant in self.mutants if mutant.is_misjudged]

    @property
    def _effective(self) -> list[JudgedMutant]:
        return [mutant for mutant in self.mutants if mutant.is_effective]
