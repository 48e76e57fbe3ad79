"""`docs/reference/kill-matrix.md`: rates, method and open survivors of sampled mutants, without any text of Lua."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from conformance.mutants.generated.outcome import JudgedMutant, SweepOutcome
from conformance.mutants.generated.rates import KillRate

_INTRODUCTION = """\
# Kill matrix

Small random changes to the official Lua scripts and to the code of the reference client each make a broken client, a
*mutant*. The gate should notice every one. The record of this page (`kill-matrix.json`) comes from

    {command}

A mutant is *killed* by the first case whose requirement fails or warns on it. Survivors that no client could show
(*equivalent*) or that no operation reaches (*unreachable*) do not count; their reasons are in
`conformance/mutants/generated/judgements.toml`. Every other survivor is a *hole* of the gate. Rates are killed of
effective mutants, with Wilson's 95 % interval. Half of each sample is Lua, half Python, and all operators take turns.
The same command prints the case that kills each mutant; `bullmq-conformance mutants --list --mutant KEY` shows the text
of a change.
"""


def kill_matrix_page(outcomes: Sequence[SweepOutcome], command: str) -> str:
    """The page in Markdown, at most 80 lines."""
    parts = [_INTRODUCTION.format(command=command), *_summary(outcomes), *_rates(outcomes), *_holes(outcomes)]
    return "\n".join(parts) + "\n"


_COLUMNS = (
    "seed",
    "tier",
    "mutants",
    "killed",
    "only a warning",
    "equivalent",
    "unreachable",
    "holes",
    "undecided",
    "does not start",
)


def _summary(outcomes: Sequence[SweepOutcome]) -> Iterator[str]:
    yield f"| {' | '.join(_COLUMNS)} |"
    yield "|---" * len(_COLUMNS) + "|"
    for each in outcomes:
        judged = [len(each.judged(verdict)) for verdict in ("equivalent", "unreachable")]
        counts = [each.only_warned, *judged, len(each.holes), each.count("undecided"), each.count("broken")]
        yield f"| {_seed(each)} | {each.tier} | {len(each.mutants)} | {each.rate} | {' | '.join(map(str, counts))} |"
    yield ""


def _rates(outcomes: Sequence[SweepOutcome]) -> Iterator[str]:
    """One table for sources, areas and operators: the rate over all seeds of a tier."""
    tiers = list(dict.fromkeys(outcome.tier for outcome in outcomes))
    merged = [
        SweepOutcome(None, tier, 0, [mutant for each in outcomes if each.tier == tier for mutant in each.mutants])
        for tier in tiers
    ]
    yield f"| killed, all seeds | {' | '.join(f'tier {tier}' for tier in tiers)} |"
    yield "|---|" + "---|" * len(tiers)
    for rates_of in _GROUPINGS:
        rates = [rates_of(outcome) for outcome in merged]
        for name in sorted(set().union(*rates)):
            yield f"| {name} | {' | '.join(str(each.get(name, '')) for each in rates)} |"
    yield ""


_GROUPINGS: Sequence[Callable[[SweepOutcome], Mapping[str, KillRate]]] = (
    lambda outcome: outcome.by_language,
    lambda outcome: outcome.by_area,
    lambda outcome: outcome.by_operator,
)


def _holes(outcomes: Sequence[SweepOutcome]) -> Iterator[str]:
    """The survivors of the last tier, which runs the most cases: no other tier kills them."""
    last = [outcome for outcome in outcomes if outcome.tier == outcomes[-1].tier]
    holes: dict[str, JudgedMutant] = {hole.key: hole for outcome in last for hole in outcome.holes}
    if holes:
        yield f"## Holes of tier {last[0].tier}\n"
        yield "| mutant | line | cases that notice nothing |"
        yield "|---|---|---|"
        for hole in holes.values():
            yield f"| `{hole.key}` | {hole.line} | {hole.hunted.passed} of {hole.hunted.reach} |"


def _seed(outcome: SweepOutcome) -> str:
    return "none" if outcome.seed is None else str(outcome.seed)
