"""Which cases of tier `full` are run in `core` as well: chosen by the code that they pass.

    python -m conformance.mutants.generated.core_choice --write

A table of a hundred crossings belongs to `full`, and most of its cases pass the same code. Those are run in `core`
that pass a statement of a script, or a line of the reference, which too few of core's own cases pass; the cheapest
first. The choice is kept in `CORE_CASES`. Without `--write` nothing is chosen: exit code 1 if core passes less than it
could.
"""

from __future__ import annotations

import heapq
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from conformance.mutants.generated.command import MutantConfig, MutantSession
from conformance.mutants.generated.reach import CaseReach
from conformance.mutants.matrix import ScenarioCase
from conformance.participants.marks import ASSIGNMENT, CORE_CASES, case_text, core_cases, tier_of
from conformance.participants.roles import Assignment

Passed = tuple[str, int]
"""A file, and a line or the first byte of a statement in it."""

MOST_PASSES = 2
"""Cases of core that pass each place, if as many of full do: one enters a condition, the other goes around it."""
_START_MS = 50.0
"""The cost of a case besides its own time, in ms."""
_LONGEST_TEXT = 120
"""Cases whose arguments are longer texts, in characters, are not named in a file that people read."""
_HEADING = """\
# Cases of tier full that core runs as well, by scenario. Together with core's own they pass every statement of the
# scripts, and every line of the reference, that scenarios of full pass, twice where they can: `make core-cases`.

"""


def choose(own: Iterable[CaseReach], others: Iterable[CaseReach], passes: int = MOST_PASSES) -> Iterator[CaseReach]:
    """So many of the others that, with core's own, each place is passed `passes` times, or as often as can be."""
    candidates = {reach.case: reach for reach in others}
    places = {case: _places(reach) for case, reach in candidates.items()}
    lacking = _lacking(own, candidates.values(), passes)

    def worth(case: str) -> float:
        # Per time: a quick case that passes as much is worth more.
        return len(places[case] & lacking.keys()) / (_START_MS + candidates[case].took_ms)

    # The worth of a case only falls while others are chosen, so that the old figure is a bound.
    waiting = [(-worth(case), case) for case in candidates]
    heapq.heapify(waiting)
    while waiting:
        _, case = heapq.heappop(waiting)
        today = worth(case)
        # Its worth has fallen since, so another case may be worth more now.
        if waiting and today < -waiting[0][0]:
            heapq.heappush(waiting, (-today, case))
        elif today:
            yield candidates[case]
            lacking.subtract(places[case] & lacking.keys())
            lacking = +lacking


def _lacking(own: Iterable[CaseReach], others: Iterable[CaseReach], passes: int) -> Counter[Passed]:
    """How often each place has still to be passed."""
    by_core = Counter(place for reach in own for place in _places(reach))
    by_others = Counter(place for reach in others for place in _places(reach))
    return +Counter({place: min(passes - by_core[place], count) for place, count in by_others.items()})


def _places(reach: CaseReach) -> set[Passed]:
    return {(file, place) for file, places in reach.passed.items() for place in places}


def chosen_cases(
    cases: Mapping[str, ScenarioCase],
    reaches: Mapping[str, CaseReach],
    kept: Mapping[str, frozenset[str]] | None = None,
) -> dict[str, list[str]]:
    """By scenario, the cases to be run in core besides its own and those that are `kept`."""
    named = kept or {}
    healthy = {name: case for name, case in cases.items() if name in reaches and reaches[name].healthy}
    own = {name for name, case in healthy.items() if _is_of_core(case) or _text_of(case) in named.get(case.id, ())}
    others = [reaches[name] for name, case in healthy.items() if _may_be_chosen(case)]
    found: dict[str, list[str]] = {}
    for reach in choose([reaches[name] for name in own], [reach for reach in others if reach.case not in own]):
        case = healthy[reach.case]
        found.setdefault(case.id, []).append(_text_of(case))
    return {scenario: sorted(found[scenario]) for scenario in sorted(found)}


def _is_of_core(case: ScenarioCase) -> bool:
    return case.scenario.tier != "full" and tier_of(case.scenario, case.arguments) != "full"


def _may_be_chosen(case: ScenarioCase) -> bool:
    """Whether it is of full, and core could run it: of the assignments of a hand-over, core runs only its own.

    Its arguments must also fit in a file: no long text, no object shown by its address.
    """
    assignment = case.arguments.get(ASSIGNMENT)
    if case.scenario.tier != "full" or (isinstance(assignment, Assignment) and not assignment.in_core):
        return False
    text = _text_of(case)
    return len(text) <= _LONGEST_TEXT and text.isprintable() and " at 0x" not in text


def _text_of(case: ScenarioCase) -> str:
    return case_text(case.scenario, case.arguments)


def as_toml(chosen: Mapping[str, list[str]]) -> str:
    """The text of `CORE_CASES`."""
    lines = [f"{_quoted(scenario)} = [\n{_listed(cases)}]\n" for scenario, cases in chosen.items()]
    return _HEADING + "\n".join(lines)


def _listed(cases: Iterable[str]) -> str:
    return "".join(f"    {_quoted(case)},\n" for case in cases)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def main(*, write: bool) -> int:
    """Choose and write the cases, or print those that core lacks. Returns the exit code."""
    session = MutantSession(MutantConfig())
    cases, reaches = session.baseline(lambda text: print(text, file=sys.stderr))
    if write:
        CORE_CASES.write_text(as_toml(chosen_cases(cases, reaches)), encoding="utf-8")
        return 0
    missing = chosen_cases(cases, reaches, core_cases())
    if missing:
        print(
            as_toml(missing),
            "core lacks these: run `make core-cases` to choose again",
            file=sys.stderr,
        )
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main(write="--write" in sys.argv[1:]))
