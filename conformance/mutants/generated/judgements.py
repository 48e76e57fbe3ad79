"""Judgements of mutants that no scenario can notice, as data next to this file.

    judgement = [
      {verdict = "equivalent", reason = "why nothing can see it", mutants = ["lua/getRanges/main/boundary/1f3a9c2e77"]},
    ]

`lines = [[124, 148]]` holds it to these lines, inclusive: of Lua scripts, which are pinned and do not move.
`code = ["await self.ready()"]` holds it to lines with one of these texts: of Python modules, whose lines move.
`unreachable`: no operation of any client leads there. A mutant without a judgement that survives is a hole of the gate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from conformance.problems import EnvironmentProblem

JUDGEMENTS = Path(str(files("conformance.mutants.generated"))) / "judgements.toml"

Judged = Literal["equivalent", "unreachable"]
_Text = Annotated[str, msgspec.Meta(min_length=1)]


class Judgement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why mutants cannot be noticed. `mutants`: their keys, or globs over them.

    `lines` and `code`: where, if not everywhere.
    """

    mutants: Annotated[tuple[_Text, ...], msgspec.Meta(min_length=1)]
    verdict: Judged
    reason: _Text
    lines: tuple[tuple[int, int], ...] = ()
    code: tuple[_Text, ...] = ()

    def is_about(self, key: str, line: int, code: str) -> bool:
        """Whether the mutant with this key, on this line that holds this code, is one of these."""
        here = not self.lines or any(first <= line <= last for first, last in self.lines)
        so = not self.code or any(text in code for text in self.code)
        return here and so and _any_of(self.mutants).match(key) is not None


@cache
def _any_of(globs: tuple[str, ...]) -> re.Pattern[str]:
    """All globs at once: thousands of mutants are held against hundreds of them."""
    return re.compile("|".join(map(translate, globs)))


class _JudgementFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    judgement: tuple[Judgement, ...] = ()


@cache
def load_judgements(path: Path = JUDGEMENTS) -> tuple[Judgement, ...]:
    """Every judgement. Raises EnvironmentProblem for a file that cannot be read."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=_JudgementFile).judgement
    except (OSError, msgspec.DecodeError) as error:
        raise EnvironmentProblem(
            f"the judgements in {path} cannot be read: {error}", hint="repair the file, or reinstall bullmq-conformance"
        ) from error


def judgement_of(
    key: str, line: int, code: str = "", judgements: Sequence[Judgement] | None = None
) -> Judgement | None:
    """The first judgement about the mutant with this key; None if there is none.

    `line`: where it changes its script or module; `code`: the text of that line, of Python modules only.
    """
    known = load_judgements() if judgements is None else judgements
    return next((judgement for judgement in known if judgement.is_about(key, line, code)), None)
